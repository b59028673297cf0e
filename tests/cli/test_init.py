"""`init` says where the home is, and does no harm twice."""

from __future__ import annotations

import json

from tests.cli.conftest import Place


def test_init_says_where_and_does_no_harm_twice(quick: Place) -> None:
    first = quick.hp("init").stdout
    assert first.startswith(f"made a new home in {quick.home}\n") and "trust.toml" in first and "policy.toml" in first
    (quick.home / "trust.toml").write_text("# mine\n")
    assert quick.hp("init").stdout == f"the home is in {quick.home}; nothing was changed\n"
    assert (quick.home / "trust.toml").read_text() == "# mine\n"
    (quick.home / "policy.toml").unlink()
    assert "put back" in quick.hp("init").stdout
    assert json.loads(quick.hp("init", "--json", "--home", "other").stdout) == {
        "home": str(quick.folder / "other"),
        "made": [str(quick.folder / "other")],
    }


def test_a_home_that_cannot_be_made(fresh: Place) -> None:
    (fresh.folder / "file").write_text("")
    (fresh.folder / "a.py").write_text('from hermes_peer import HermesAgent\na = HermesAgent("a")\n')
    for words in (("init",), ("run", "a.py")):
        assert "is not a folder; move it away" in fresh.refusal(*words, "--home", "file", code=2)
    assert "cannot be made" in fresh.refusal("init", "--home", "/proc/hermes", code=2)


def test_a_home_made_at_first_use_is_told(fresh: Place) -> None:
    done = fresh.hp("call", "nobody", "x", code=3)
    assert done.stderr.splitlines()[0] == f"hermes-peer: made a new home in {fresh.home}"
    assert "no other agent is running" in done.stderr
