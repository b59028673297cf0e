"""Bad situations: each ends in one plain sentence with what to do, and the right exit code; the agent goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Place, running

TWO = 'from hermes_peer import HermesAgent\na = HermesAgent("alpha")\nb = HermesAgent("beta")\n'


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("call", "rich", "nope"), 1, "there is no method `nope`; you may call `crash`"),
        (("call", "rich", "tokens"), 1, "field `n`: missing, expected int"),
        (("call", "rich", "tokens", "n=abc"), 1, "field `n`: expected int, got str"),
        (("call", "rich", "crash"), 1, "the method failed; its log has the reference"),
        (("call", "rich", "slow", "--ttl", "0.2", "tag=ttl"), 1, "slow of rich gave no answer within the ttl"),
        (("call", "rich", "Shout!"), 2, "cannot be a method name"),
        (("call", "rich", "echo", "abc"), 2, "'abc' is not key=value; write the payload as key=value"),
        (("call", "rich", "echo", "a=1", "a=2"), 2, "the key 'a' is given twice"),
        (("call", "rich", "echo", '{"a":'), 2, "the payload cannot be read: not JSON"),
        (("call", "rich", "echo", "[1]"), 2, "the payload must be one JSON object"),
        (("call", "rich", "echo", "--ttl", "-1"), 2, "seconds must be a number above 0; see 'hermes-peer call --help'"),
        (("call", "rich"), 2, "Missing argument 'METHOD'; see 'hermes-peer call --help'"),
        (("nonsense",), 2, "No such command 'nonsense'; see 'hermes-peer --help'"),
        (("call", "nobody", "x"), 3, "no agent named nobody is known here; running: rich"),
        (("ping", "hermes://127.0.0.1:1"), 2, "whose address is hermes://127.0.0.1:1?"),
        (("ping", "http://x"), 2, "'http://x' is not an address: it must start with hermes://"),
        (("call", "ab" * 32, "x"), 4, "is not trusted here; if you know it, run: hermes-peer trust add abab"),
    ],
)
def test_one_sentence(place: Place, words: tuple[str, ...], code: int, says: str) -> None:
    sentence = place.hp(*words, code=code).stderr.splitlines()[-1]
    assert says in sentence
    assert len(sentence) < 400


def test_dead_address_and_wrong_key_at_an_address(place: Place, tmp_path: Path) -> None:
    assert place.agent is not None
    key = place.hp("trust", "show", "rich").stdout.split()[3]
    dead = place.refusal("call", f"hermes://{key}@127.0.0.1:1", "echo", code=3)
    assert dead == "cannot connect to hermes://127.0.0.1:1: connection refused; check that the agent runs there"
    other = Place(tmp_path / "home", tmp_path)
    stranger = other.hp("trust", "show").stdout.split()[3]
    place.hp("trust", "add", stranger, "name=stranger")
    port = place.agent.address.rpartition(":")[2]
    said = place.refusal("call", f"hermes://{stranger}@127.0.0.1:{port}", "echo", code=3)
    assert f"it does not hold the key {stranger} of stranger" in said and "trust show" in said
    place.hp("trust", "remove", stranger)


def test_a_payload_over_the_limit(place: Place) -> None:
    large = '{"t": "' + "x" * 6 * 1024 * 1024 + '"}'
    said = place.refusal("call", "rich", "echo", "-", input=large, code=2)
    assert "is over the limit of 5242880" in said and "stream" in said
    assert place.hp("call", "rich", "echo", "a=1").stdout == '{"a": 1}\n'


@pytest.mark.parametrize(
    ("name", "text", "code", "says"),
    [
        ("two.py", TWO, 2, "two.py has 2 agents: a (alpha), b (beta); say which: two.py:a"),
        ("two.py:gamma", TWO, 2, "two.py has no agent gamma; it has a (alpha), b (beta)"),
        ("bad.py", "\ndef f(:\n", 2, "bad.py line 2 is not Python: "),
        ("raises.py", "import os\nprint(nope)\n", 2, "raises.py line 2 raised NameError: name 'nope' is not defined"),
        ("none.py", "x = 1\n", 2, 'none.py has no agent; write agent = HermesAgent("worker")'),
        ("exits.py", "import sys\nsys.exit(3)\n", 2, "exits.py ended by itself (exit 3)"),
        ("name.py", 'import hermes_peer as h\nh.HermesAgent("A B")\n', 2, "'A B' cannot be an agent name"),
        (".", None, 2, ". is a folder; name the Python file in it"),
        ("absent.py", None, 2, "there is no file absent.py in "),
    ],
)
def test_a_file_that_cannot_run(fresh: Place, name: str, text: str | None, code: int, says: str) -> None:
    if text is not None:
        (fresh.folder / name.partition(":")[0]).write_text(text)
    assert says in fresh.refusal("run", name, code=code)


def test_a_port_in_use(place: Place) -> None:
    assert place.agent is not None
    said = place.refusal("run", "rich.py", "--listen", place.agent.address, code=3)
    assert "cannot listen on" in said and "address already in use; stop the other program" in said


def test_a_key_that_cannot_be_used(fresh: Place) -> None:
    fresh.hp("trust", "show")
    key = fresh.home / "agents" / "cli" / "1" / "key.pem"
    os.chmod(key, 0o644)
    assert "chmod 600" in fresh.refusal("list", code=2)
    key.write_text("garbage")
    os.chmod(key, 0o600)
    assert "put a good copy back, or move it away to get a new one: mv " in fresh.refusal("call", "x", "y", code=2)


def test_a_home_that_cannot_be_made(fresh: Place) -> None:
    (fresh.folder / "file").write_text("")
    (fresh.folder / "a.py").write_text('from hermes_peer import HermesAgent\na = HermesAgent("a")\n')
    for words in (("init",), ("list",), ("call", "x", "y"), ("run", "a.py")):
        assert "is not a folder; move it away" in fresh.refusal(*words, "--home", "file", code=2)
    assert "cannot be made" in fresh.refusal("init", "--home", "/proc/hermes", code=2)


def test_a_home_made_at_first_use_is_told(fresh: Place) -> None:
    done = fresh.hp("call", "nobody", "x", code=3)
    assert done.stderr.splitlines()[0] == f"hermes-peer: made a new home in {fresh.home}"
    assert "no agent is running" in done.stderr


def test_debug_shows_the_traceback(fresh: Place) -> None:
    import subprocess

    from tests.cli.conftest import PROGRAM, environment

    env = environment(fresh.home, HERMES_PEER_DEBUG="1")
    done = subprocess.run([*PROGRAM, "run", "absent.py"], env=env, capture_output=True, text=True, cwd=fresh.folder)
    assert done.returncode == 2 and "Traceback" in done.stderr


def test_start_under_run_returns_at_once_and_the_listed_agent_is_found(fresh: Place) -> None:
    (fresh.folder / "two.py").write_text(TWO + "a.start()\nb.start()\nprint('imported', flush=True)\n")
    with running(fresh, "two.py:beta") as agent:
        assert agent.ready.startswith("beta is ready at hermes+unix://")
        assert "imported\n" in agent.lines
