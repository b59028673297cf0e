"""SIGKILL at each failpoint and at random: what was promised is there, once, and the rest is whole."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.journal.values import Origin, TakenState

from .rig import ONE, opened, raw

ROOT = Path(__file__).resolve().parents[2]
POINTS = ["before commit", "after commit", "before answer", "after answer", "before checkpoint", "after checkpoint"]
KILLS = int(os.environ.get("HERMES_KILLS", "6"))


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory: a kill says nothing about the disk, so that the disk need not be waited for."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name) / "journal"


def run(path: Path, point: str, n: int, after_s: float = 60.0) -> list[str]:
    """What the victim promised before it was killed."""
    command = [sys.executable, "-m", "tests.journal.victim", str(path), point, str(n)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
    assert child.stdout is not None
    lines = [child.stdout.readline()] if point == "-" else []
    if point == "-":
        time.sleep(after_s)
        child.kill()
    lines += child.stdout.read().splitlines(keepends=True)
    child.stdout.close()
    assert child.wait(60) == -9, child.returncode
    return [line.decode().strip() for line in lines if line.endswith(b"\n")]


def judge(path: Path, promised: list[str]) -> None:
    journal = opened(path)
    try:
        assert journal.origin is Origin.SAME and journal.notice == ""
        taken = {row.message_id: row for row in journal.find_taken(limit=100_000).result(10)}
        sent = {row.message_id for row in journal.find_sent(limit=100_000).result(10)}
        rows = journal.transaction(lambda sql: sql.execute("SELECT id FROM effects")).result(10)
        effects = [id for (id,) in rows]
        for line in promised:
            word, id = line.split()
            row = taken[id]
            assert word != "items" or row.next_item == 2
            assert word != "done" or row.state is TakenState.DONE
            assert word != "sent" or id in sent
        done = {id for id, row in taken.items() if row.state is TakenState.DONE}
        assert done == set(effects) and len(effects) == len(done), "an effect without its outcome, or the reverse"
        for id, row in taken.items():
            found = journal.items(ONE, id, 0).result(10)
            assert found is not None and found.items == ((b"a", b"b") if row.next_item else ())
        assert list(taken) == [f"m-{i}" for i in range(len(taken))], "in order, without a hole"
    finally:
        journal.close()
    assert raw(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, place: Path) -> None:
    promised: list[str] = []
    for n in (7, 23):
        promised += run(place, point, n)
        judge(place, promised)
    assert len(promised) > 4


def test_killed_at_random_again_and_again(place: Path) -> None:
    dice = random.Random(5)
    promised: list[str] = []
    for _ in range(KILLS):
        promised += run(place, "-", 0, dice.uniform(0.005, 0.15))
        judge(place, promised)
    assert len(promised) > 5 * KILLS


def test_an_fsync_that_fails_by_strace(tmp_path: Path) -> None:
    """The real thing: EIO from the kernel at an fdatasync. The journal stops; the restart finds what was promised."""
    if not shutil.which("strace"):
        pytest.skip("no strace here: test_powerloss fails the sync in the simulated disk")
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.journal.rig import *\n"
        "journal = opened(Path(sys.argv[1]), idle_s=60.0)\n"
        "for i in range(60):\n"
        "    error = journal.commit(op.Submit(a_sent(f'm-{i}'))).exception(30)\n"
        "    print('ok' if error is None else error, flush=True)\n"
    )
    inject = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:error=EIO:when=30",
    ]
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(
        [*inject, sys.executable, "-c", code, str(tmp_path / "j")],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip("strace may not trace here: test_powerloss fails the sync in the simulated disk")
    lines = done.stdout.splitlines()
    good = lines.index(next(line for line in lines if line != "ok"))
    assert 5 < good < 60 and all("stopped because the disk failed it" in line for line in lines[good:]), done
    journal = opened(tmp_path / "j")
    ids = [row.message_id for row in journal.find_sent().result(5)]
    journal.close()
    assert ids[:good] == [f"m-{i}" for i in range(good)] and len(ids) <= good + 1
