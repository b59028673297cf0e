"""`run --reload`: a changed file is served a moment later, a broken one waits for its repair."""

from __future__ import annotations

from pathlib import Path

from hermes_peer.cli import reload
from tests.cli.conftest import Place, running

FILE = """from hermes_peer import HermesAgent

agent = HermesAgent("worker")

@agent.method("n")
async def n(): return """


def test_reload(fresh: Place) -> None:
    file = fresh.folder / "worker.py"
    file.write_text(FILE + "1\n")
    with running(fresh, "worker.py", "--reload") as agent:
        assert fresh.hp("call", "worker", "n").stdout == "1\n"
        assert agent.process.stdout is not None
        file.write_text(FILE + "(\n")
        said = [agent.process.stdout.readline() for _ in range(3)]
        assert said[0] == "hermes-peer: worker.py changed, starting again\n"
        assert "worker.py line 6 is not Python" in said[1] and "waiting for a change" in said[2]
        file.write_text(FILE + "20\n")
        while "is ready" not in (line := agent.process.stdout.readline()):
            assert line
        assert fresh.hp("call", "worker", "n").stdout == "20\n"
        assert agent.stop() == 0
    assert "no agent named worker" in fresh.hp("call", "worker", "n", code=3).stderr  # its child ended with it


def test_watched_files(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".git/c.py", "__pycache__/d.py", "env/e.py", "note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert {Path(each).name for each in reload.stamps(tmp_path / "a.py")} == {"a.py", "b.py"}
