"""What a new user does: init, run, list, inspect, ping, call, stream, tap."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.cli.conftest import Place, environment, running


def test_init_says_where_and_does_no_harm_twice(fresh: Place) -> None:
    first = fresh.hp("init").stdout
    assert first.startswith(f"made a new home in {fresh.home}\n") and "trust.toml" in first and "policy.toml" in first
    (fresh.home / "trust.toml").write_text("# mine\n")
    assert fresh.hp("init").stdout == f"the home is in {fresh.home}; nothing was changed\n"
    assert (fresh.home / "trust.toml").read_text() == "# mine\n"
    (fresh.home / "policy.toml").unlink()
    assert "put back" in fresh.hp("init").stdout
    assert json.loads(fresh.hp("init", "--json", "--home", "other").stdout) == {
        "home": str(fresh.folder / "other"),
        "made": [str(fresh.folder / "other")],
    }


def test_help_and_version(fresh: Place) -> None:
    help = fresh.hp().stdout
    for name in ("init", "run", "list", "inspect", "ping", "call", "stream", "tap", "trust", "policy", "id", "ttl"):
        assert f"\n  {name} " in help
    for later in ("submit", "ticket", "dead", "doctor", "studio", "conform", "registry", "trace", "bench"):
        assert f"\n  {later} " not in help
    assert help == fresh.hp("--help").stdout and "\x1b" not in help
    assert "trust add" in fresh.hp("trust", "add", "--help", COLUMNS="20").stdout
    assert "hermes-peer call worker text.shout text=hi" in fresh.hp("call", "--help").stdout
    assert fresh.hp("--version").stdout.startswith("hermes-peer 0.")
    assert not fresh.home.exists()  # help makes nothing


def test_call(place: Place) -> None:
    assert place.hp("call", "rich", "text.shout", "text=hi").stdout == '{"text": "HI"}\n'
    done = place.hp("call", "rich", "echo", "n=3", 's="3"', "name=Ann", "list=[1]", "zero=007", "x=a=b", "--json")
    sent = {"n": 3, "s": "3", "name": "Ann", "list": [1], "zero": "007", "x": "a=b"}
    assert json.loads(done.stdout) == {"result": sent} and done.stderr == ""
    assert json.loads(place.hp("call", "rich", "echo", '{"a": {"b": null}}').stdout) == {"a": {"b": None}}
    assert json.loads(place.hp("call", "rich", "echo", "-", input='{"a": "é"}').stdout) == {"a": "é"}
    assert place.hp("call", "rich", "trace", "--trace-id", "abc").stdout == "abc\n"
    done = place.hp("call", "rich", "slow", "seconds=0.01", "tag=quick")
    assert done.stdout == "done\n" and done.stderr == "hermes-peer: thinking, 3 tokens\n"


def test_what_a_peer_says_gives_no_orders_to_the_terminal(place: Place) -> None:
    assert place.hp("call", "rich", "nasty").stdout == '"a\\u001b[31mred\\u0007\\u202egnp"\n'
    assert place.refusal("call", "rich", "fail", code=1) == "there is none left\\u001b[2J"


def test_an_error_as_json(place: Place) -> None:
    done = place.hp("call", "rich", "fail", "--json", code=1)
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["reason"], error["details"]) == (10, "no_stock", {"sku": 3})
    assert done.stderr.count("\n") == 1


def test_stream(place: Place) -> None:
    done = place.hp("stream", "rich", "tokens", "n=2")
    assert done.stdout == '{"i": 0}\n{"i": 1}\n' and done.stderr == 'hermes-peer: result: {"n": 2}\n'
    done = place.hp("stream", "rich", "tokens", "n=1", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"item": {"i": 0}}, {"result": {"n": 1}}]
    assert done.stderr == ""


def test_list(place: Place) -> None:
    head, row = place.hp("list").stdout.splitlines()
    assert head.split() == ["AGENT", "INSTANCE", "LINK", "RTT", "LOAD", "SEALED", "ADDRESS"]
    assert row.split()[0] == "rich" and row.split()[2] == "connected" and "hermes://127.0.0.1:" in row
    found = json.loads(place.hp("list", "--json").stdout)
    assert (found["agent"], found["link"], found["running"], found["sealed"]) == ("rich", "connected", 0, True)
    assert 0 < found["rtt_ms"] < 1000


def test_list_says_that_an_agent_is_gone(fresh: Place, place: Place) -> None:
    """Its record lives on for a minute after a kill: a record is no proof of life."""
    (fresh.folder / "rich.py").write_bytes((place.folder / "rich.py").read_bytes())
    with running(fresh, "rich.py") as agent:
        agent.process.kill()
        agent.process.wait()
        done = fresh.hp("list")
    assert "unreachable" in done.stdout and "check that the agent runs there" in done.stdout
    assert "connected" not in done.stdout.replace("cannot connect", "")
    assert "no agent is running in this home" in fresh.hp("list", "--home", "empty").stderr


def test_inspect(place: Place) -> None:
    text = place.hp("inspect", "rich").stdout
    assert "  text.shout(text: string) -> object\n      Says it louder.\n" in text
    assert '  tokens(n: integer, pause: number = 0.0, tag: string = "") yields' in text
    assert "capabilities text" in text and "hermes://127.0.0.1:" in text and "hermes.ping" not in text
    found = json.loads(place.hp("inspect", "rich", "--json").stdout)
    assert found["status"]["calls"]["running"] == 1  # the question itself: no earlier test left anything behind
    assert {each["name"] for each in found["methods"]} >= {"echo", "tokens"}


def test_ping(place: Place) -> None:
    assert place.agent is not None
    lines = place.hp("ping", "rich", "-n", "2", "-i", "0").stdout.splitlines()
    assert len(lines) == 4 and lines[1].startswith("ping 1: ") and "2 of 2 answered" in lines[-1]
    done = place.hp("ping", place.agent.address, "-n", "1", "--json").stdout.splitlines()
    assert json.loads(done[-1])["answered"] == 1 and json.loads(done[0])["rtt_ms"] > 0


def test_tap_shows_frames_and_hides_payloads(place: Place) -> None:
    for more, secret in (((), False), (("--payload",), True)):
        tap = place.open("tap", "rich", "--peer", "cli", *more)
        assert tap.stderr is not None and tap.stdout is not None
        assert "listening to the links of rich" in tap.stderr.readline()
        place.hp("call", "rich", "echo", "word=hush")
        seen = ""
        while "message=END" not in seen:
            seen += tap.stdout.readline()
        tap.terminate()
        assert tap.wait(5) == 143
        tap.communicate()
        opened = next(line for line in seen.splitlines() if "message=OPEN" in line)
        assert "<- cli DATA stream=1 seq=0 flags=SYN|FIN length=" in opened and "method=echo" in opened
        assert ("hush" in seen) is secret


def test_tap_as_json(place: Place) -> None:
    tap = place.open("tap", "rich", "--json")
    assert tap.stdout is not None
    assert json.loads(tap.stdout.readline())["tapped"] == "rich"
    place.hp("ping", "rich", "-n", "1")
    frames = [json.loads(tap.stdout.readline()) for _ in range(3)]
    assert {frame["dir"] for frame in frames} == {"in", "out"} and frames[0]["type"] == "LINK"
    tap.terminate()
    tap.communicate()


def test_id_and_ttl(fresh: Place) -> None:
    done = fresh.hp("id", "db-query-service", "prod", "db-node-01")
    # `uuid.UUID(bytes=sha256(b"db-query-service-prod-db-node-01")[:16], version=4)`, worked out by hand.
    assert done.stdout == "c7e72067-cd67-428d-9e87-ba0f4ae25fb4\n" and "SHA-256" in done.stderr
    done = fresh.hp("ttl", "--hop-ms", "300", "--chain", "5", "--task-s", "8")
    assert done.stdout == "61\n"
    assert "2 x 300 ms on the way + 5 agents x 8 s x 1.5 in reserve = 60.6 s, rounded up to 61 s" in done.stderr
    assert json.loads(fresh.hp("ttl", "--hop-ms", "0", "--chain", "1", "--task-s", "0.1", "--json").stdout)["ttl"] == 1
    assert "--chain 1 or more" in fresh.refusal("ttl", "--hop-ms", "1", "--chain", "0", "--task-s", "8", code=2)
    assert not fresh.home.exists()


def test_the_program_is_quick_to_start(fresh: Place) -> None:
    """What `call` needs is imported by `call`: neither the help nor `id` may load keys, sockets or the console."""
    code = (
        "import sys; sys.argv=['hermes-peer','--help']\n"
        "try:\n import hermes_peer.cli.main as m; m.run()\n"
        "except SystemExit: pass\n"
        "heavy = 'asyncio', 'cryptography', 'msgspec', 'rich.console', 'hermes_peer.agent'\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(fresh.home), capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done
