"""`run`: files that are no agent, ports in use, the agent that is meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hermes_peer.cli.run import find, load, split
from hermes_peer.errors import UsageError
from tests.cli.conftest import Place, running

TWO = 'from hermes_peer import HermesAgent\na = HermesAgent("alpha")\nb = HermesAgent("beta")\n'


def read(words: str) -> None:
    path, wanted = split(words)
    find(load(path), path, wanted)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("two.py", TWO, r"two.py has 2 agents: a \(alpha\), b \(beta\); say which: .*two.py:a"),
        ("two.py:gamma", TWO, r"two.py has no agent gamma; it has a \(alpha\), b \(beta\)"),
        ("raises.py", "import os\nprint(nope)\n", "raises.py line 2 raised NameError: name 'nope' is not defined"),
        ("none.py", "x = 1\n", r'none.py has no agent; write agent = HermesAgent\("worker"\)'),
        ("exits.py", "import sys\nsys.exit(3)\n", r"exits.py ended by itself \(exit 3\)"),
        ("name.py", 'import hermes_peer as h\nh.HermesAgent("A B")\n', "'A B' cannot be an agent name"),
        ("folder", None, "folder is a folder; name the Python file in it"),
    ],
)
def test_a_file_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, says: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [])
    if text is not None:
        (tmp_path / name.partition(":")[0]).write_text(text)
    with pytest.raises(UsageError, match=says):
        read(str(tmp_path / name))


def test_a_file_that_is_not_python_or_not_there(fresh: Place) -> None:
    (fresh.folder / "bad.py").write_text("\ndef f(:\n")
    assert fresh.refusal("run", "bad.py", code=2).startswith("bad.py line 2 is not Python: invalid syntax; correct it")
    assert "there is no file absent.py in " in fresh.refusal("run", "absent.py", code=2)


def test_a_port_in_use(place: Place) -> None:
    assert place.agent is not None
    said = place.refusal("run", "rich.py", "--listen", place.agent.address, code=3)
    assert "cannot listen on" in said and "address already in use; stop the other program" in said


def test_start_under_run_returns_at_once_and_the_listed_agent_is_found(fresh: Place) -> None:
    (fresh.folder / "two.py").write_text(TWO + "a.start()\nb.start()\nprint('imported', flush=True)\n")
    with running(fresh, "two.py:beta") as agent:
        assert agent.ready.startswith("beta is ready at hermes+unix://")
        assert "imported\n" in agent.lines


def test_file_and_agent(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("")
    assert split(str(file)) == (file, "")
    assert split(f"{file}:x") == (file, "x")
    odd = tmp_path / "a:b.py"
    odd.write_text("")
    assert split(str(odd)) == (odd, "")
