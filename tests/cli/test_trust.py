"""Two homes, as two machines: trust by command, refusals seen from the caller's side."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Inside, Place, running, until


@pytest.fixture(scope="module")
def there(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Another home whose agent `far` listens on TCP and knows nobody."""
    folder = tmp_path_factory.mktemp("there")
    far = Place(folder / "home", folder)
    text = (place.folder / "rich.py").read_text().replace('HermesAgent("rich"', 'HermesAgent("far"')
    (folder / "far.py").write_text(text)
    with running(far, "far.py", "--listen", "hermes://127.0.0.1:0") as agent:
        far.agent = agent
        yield far


def test_one_line_each_way_and_every_refusal_on_the_way(place: Place, there: Place, quick: Inside) -> None:
    here, over = quick.at(place), quick.at(there)
    line = there.hp("trust", "show").stdout.strip()
    assert line.startswith("hermes-peer trust add ") and " name=far at=hermes://127.0.0.1:" in line
    assert "is trusted as far at hermes://" in here.hp(*shlex.split(line)[1:]).stdout
    assert "already" in here.refusal(*shlex.split(line)[1:], code=2)

    said = place.refusal("call", "far", "echo", "a=1", code=4)
    own = here.hp("trust", "show", "cli").stdout.strip()
    key = own.split()[3]
    assert "does not trust cli" in said and said.endswith(f"run over there: hermes-peer trust add {key} name=cli")
    assert "refused" in place.hp("list").stdout

    over.hp("trust", "add", key, "name=other")
    said = until(place, "as other", "call", "far", "echo", "a=1")
    assert f"run over there: hermes-peer trust add {key} name=cli" in said
    over.hp("trust", "remove", key)
    over.hp(*shlex.split(own)[1:])
    said = until(place, "may not call", "call", "far", "echo", "a=1")
    assert place.refusal("call", "far", "echo", "a=1", code=4) == (
        "cli may not call echo of far; a rule in that agent's policy.toml would allow it"
    )
    assert "1 of 1 answered" in place.hp("ping", "far", "-n", "1").stdout  # the line needs trust only
    place.refusal("inspect", "far", code=4)
    place.refusal("tap", "far", code=4)
    row = json.loads(place.hp("list", "--json").stdout.splitlines()[0])
    assert row["agent"] == "far" and row["link"] == "connected" and "may not call hermes.status" in row["problem"]

    with (there.home / "policy.toml").open("a") as file:
        file.write('\n[[rule]]\ncaller = "cli"\nagent = "far"\nmethod = ["echo", "read"]\nallow = true\n')
    assert '{"a": 1}' in until(place, '{"a": 1}', "call", "far", "echo", "a=1")
    assert "  echo(any object)" in place.hp("inspect", "far").stdout
    place.refusal("tap", "far", code=4)  # `read` is not `operate`

    over.hp("trust", "deny", key, "reason=stolen laptop")
    assert "does not trust cli" in until(place, "does not trust", "call", "far", "echo")
    listed = over.hp("trust", "list").stdout
    assert "stolen laptop" in listed and "cli   denied" in listed
    over.hp("trust", "remove", key)
    here.hp("trust", "remove", line.split()[3])
    assert here.hp("trust", "remove", line.split()[3], code=1).stdout == ""


def test_trust_words(quick: Place) -> None:
    key = quick.hp("trust", "show", "--home", "other").stdout.split()[3]
    assert "say what to call this key here: name=worker" in quick.refusal("trust", "add", key, code=2)
    assert "this takes name= and at=" in quick.refusal("trust", "add", key, "nam=x", code=2)
    quick.hp("init")
    assert "name= is given twice" in quick.refusal("trust", "add", key, "name=a", "name=b", code=2)
    assert "64 hex digits" in quick.refusal("trust", "add", "abc", "name=a", code=2)
    assert "is not an address" in quick.refusal("trust", "add", key, "name=a", "at=somewhere", code=2)
    assert "nobody is trusted yet" in quick.hp("trust", "list").stderr
    assert "no agent named x has run in this home" in quick.refusal("trust", "show", "x", code=2)
    quick.hp("trust", "add", key, "name=a", "at=hermes://192.0.2.7:7891")
    row = json.loads(quick.hp("trust", "list", "--json").stdout)
    assert (row["name"], row["state"], row["at"]) == ("a", "trusted", "hermes://192.0.2.7:7891")
    (quick.home / "trust.toml").write_text("[[pin]]\nfingerprint = 3\n")
    assert "trust.toml" in quick.hp("trust", "list", code=2).stderr


def test_trust_show_of_an_agent_that_only_this_machine_can_reach(place: Place, fresh: Place) -> None:
    (fresh.folder / "rich.py").write_bytes((place.folder / "rich.py").read_bytes())
    with running(fresh, "rich.py"):
        done = fresh.hp("trust", "show")
        assert " at=" not in done.stdout and "--listen hermes://0.0.0.0:7891" in done.stderr
        assert len(done.stdout.splitlines()) == 1
    assert "does not run now" in fresh.hp("trust", "show").stderr
