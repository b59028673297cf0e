"""`run --reload`: a changed file is served a moment later, a broken one waits for its repair."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


ORDERLY = """import asyncio, os, pathlib
from hermes_peer import HermesAgent

agent = HermesAgent("worker")

@agent.lifespan
async def life(agent):
    yield
    print(f"process {os.getpid()} ends", flush=True)
    while not pathlib.Path("may end").exists():
        await asyncio.sleep(0.01)
    print("in an orderly way", flush=True)
"""


@contextlib.contextmanager
def reloaded(place: Place) -> Iterator[subprocess.Popen[str]]:
    """`run --reload` as a shell runs it, in a process group of its own; its agent waits with its end."""
    (place.folder / "worker.py").write_text(ORDERLY)
    process = place.open("run", "worker.py", "--reload", start_new_session=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        while "is ready" not in (line := process.stdout.readline()):
            assert line
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ending(process: subprocess.Popen[str]) -> int:
    """The agent's process, which has begun to end."""
    assert process.stdout is not None
    word, number, _ = process.stdout.readline().split()
    assert word == "process"
    return int(number)


CTRL_C = (os.killpg, signal.SIGINT)  # a terminal sends it to the whole group
Sent = tuple[Callable[[int, int], None], int]


@pytest.mark.parametrize("sent", [CTRL_C, (os.kill, signal.SIGINT), (os.kill, signal.SIGTERM)])
def test_its_agent_ends_in_an_orderly_way(fresh: Place, sent: Sent) -> None:
    send, number = sent
    with reloaded(fresh) as process:
        (fresh.folder / "may end").touch()
        send(process.pid, number)
        out, errors = process.communicate(timeout=30)
        assert out.splitlines()[-1] == "in an orderly way" and errors == ""
        assert process.returncode == 0


@pytest.mark.parametrize("sent", [CTRL_C, (os.kill, signal.SIGTERM)])
def test_a_second_signal_ends_both_at_once(fresh: Place, sent: Sent) -> None:
    send, number = sent
    with reloaded(fresh) as process:
        send(process.pid, number)
        agent = ending(process)
        send(process.pid, number)
        out, errors = process.communicate(timeout=30)
        assert process.returncode == reload.FORCED and out == "" and errors == ""
        with pytest.raises(ProcessLookupError):
            os.kill(agent, 0)


STUBBORN = """import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
"""


def test_an_agent_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "END_S", 0.1)
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child, reload._caught() as signals:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        assert reload._end(child, signals, told=False) == 128 + signal.SIGKILL


def test_watched_files(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".git/c.py", "__pycache__/d.py", "env/e.py", "note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert {Path(each).name for each in reload.stamps(tmp_path / "a.py")} == {"a.py", "b.py"}
