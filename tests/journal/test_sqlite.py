"""The store on the disk: checkpoints, vacuum, gauges, room, a real small disk."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.values import Limits, SentState, TakenState

from .rig import ONE, a_sent, a_taken, do, op, raw


def until(true: Any) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_idle_journal_is_checkpointed(path: Path, make: Any) -> None:
    names: list[str] = []
    journal = make(idle_s=0.01, failpoint=names.append)
    do(journal, op.Submit(a_sent()))
    until(lambda: "after checkpoint" in names)
    assert b"m-1" in path.read_bytes(), "it is in the database file"
    count = len(names)
    time.sleep(0.1)
    assert len(names) == count, "and then it rests"


def test_a_long_log_is_checkpointed_without_a_pause(make: Any) -> None:
    names: list[str] = []
    journal = make(idle_s=60.0, failpoint=names.append)
    body = b"x" * 900_000
    for i in range(40):
        do(journal, op.Submit(a_sent(f"m-{i}", payload=body)), op.MarkDone(f"m-{i}", b""), op.Discard(f"m-{i}"))
    assert names.count("after checkpoint") >= 1
    assert journal.gauges().wal < 22 << 20


def test_freed_pages_are_given_back(path: Path, make: Any) -> None:
    journal = make(idle_s=0.01)
    for i in range(20):
        do(journal, op.Submit(a_sent(f"m-{i}", payload=b"x" * 200_000)), op.MarkDone(f"m-{i}", b"", 5))
    until(lambda: path.stat().st_size > 3_000_000)
    do(journal, op.Expire(5))
    until(lambda: path.stat().st_size < 500_000)


def test_gauges(make: Any) -> None:
    journal = make()
    do(journal, op.Submit(a_sent()), op.Submit(a_sent("m-2")), op.MarkDead("m-2", "x"), op.Take(a_taken()))
    gauges = journal.gauges()
    assert gauges.sent == {SentState.WAITING: 1, SentState.ACCEPTED: 0, SentState.DONE: 0, SentState.DEAD: 1}
    assert gauges.taken == {TakenState.ACCEPTED: 1, TakenState.RUNNING: 0, TakenState.DONE: 0}
    assert gauges.size > 0 and gauges.wal > 0 and gauges.free > 100 << 20
    assert gauges.last_commit_ms > 0 and (gauges.units, gauges.commits, gauges.queue) == (1, 1, 0)


def test_counts_are_right_after_a_restart(make: Any) -> None:
    journal = make(limits=Limits(rows_per_peer=2, ballast=0))
    do(journal, op.Submit(a_sent()), op.Submit(a_sent("m-2")), op.MarkDone("m-2", b""), op.Take(a_taken()))
    before = journal.gauges()
    journal.close()
    again = make(limits=Limits(rows_per_peer=2, ballast=0))
    assert (again.gauges().sent, again.gauges().taken) == (before.sent, before.taken)
    kinds = [do(again, op.Submit(a_sent(f"n-{i}")))[0].kind.value for i in range(2)]
    assert kinds == ["new", "refused"]


def test_order_of_arrival_survives(make: Any) -> None:
    for round_ in range(3):
        journal = make()
        for i in range(3):
            do(journal, op.Take(a_taken(f"m-{round_}{i}")))
        journal.close()
    ids = [row.message_id for row in make().find_taken().result(5)]
    assert ids == sorted(ids) and len(ids) == 9


def test_the_ballast_is_gone_when_it_is_closed(path: Path, make: Any) -> None:
    journal = make(limits=Limits(ballast=1 << 20))
    assert Path(f"{path}.ballast").stat().st_size == 1 << 20
    journal.close()
    assert not Path(f"{path}.ballast").exists()


def test_a_row_of_the_greatest_size(make: Any) -> None:
    journal = make()
    body = b"x" * (1 << 20)
    do(journal, op.Take(a_taken(envelope=b"", payload=body)), op.Run(ONE, "m-1"), op.Finish(ONE, "m-1", body, 9))
    row = journal.taken(ONE, "m-1").result(5)
    assert row.payload == body and row.outcome == body


def test_closed_is_clean(path: Path, make: Any) -> None:
    journal = make()
    do(journal, op.Submit(a_sent()))
    journal.close()
    assert raw(path, "SELECT clean FROM hermes_meta") == [(1,)]
    assert not Path(f"{path}-wal").exists() or Path(f"{path}-wal").stat().st_size == 0


TINY = """
import os, sys
sys.path[:0] = [{root!r}, {root!r} + "/src"]
from pathlib import Path
from tests.journal.rig import *
from hermes_peer.errors import JournalError
from hermes_peer.journal.values import Limits
folder = Path(sys.argv[1])
journal = opened(folder / "j", limits=Limits(ballast=400 << 10, outcome_room=4096), idle_s=0.0)
taken = 0
while True:
    promise = journal.commit(op.Take(a_taken(f"m-{{taken}}", payload=b"x" * 3000)), op.Run(ONE, f"m-{{taken}}"))
    if promise.exception(10):
        break
    taken += 1
assert "disk full" in str(promise.exception()), promise.exception()
filler = open(folder / "filler", "wb", buffering=0)
try:
    while filler.write(b"x" * 4096):
        pass
except OSError:
    pass
for i in range(min(taken, 10)):
    do(journal, op.Finish(ONE, f"m-{{i}}", b"x" * 2000, 9))
assert not journal.gauges().stopped, journal.gauges().stopped
filler.close()
(folder / "filler").unlink()
do(journal, op.Settle(ONE, tuple(f"m-{{i}}" for i in range(10))))
do(journal, op.Take(a_taken("again")))
journal.close()
again = opened(folder / "j")
print(taken, len(again.find_taken(limit=10000).result(10)), again.origin, again.notice)
again.close()
"""


def test_a_real_disk_that_is_full(tmp_path: Path) -> None:
    """Attack 72 on a tmpfs of 2 MiB, in a mount namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    code = tmp_path / "tiny.py"
    code.write_text(TINY.format(root=str(Path(__file__).parents[2])))
    command = f"mount -t tmpfs -o size=2m none {disk} && exec {sys.executable} {code} {disk}"
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace here (unshare -rm): the simulated full disk of test_powerloss stands for it")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken, left, origin, *notice = done.stdout.split()
    assert int(taken) > 20 and int(left) == int(taken) - 10 + 1 and origin == "same" and not notice


def test_a_file_that_cannot_grow(path: Path, make: Any) -> None:
    """max_page_count: what does not fit is told apart from what does."""
    journal = make(limits=Limits(size=1 << 20, outcome_room=0, ballast=0))
    taken = 0
    while (promise := journal.commit(op.Take(a_taken(f"m-{taken}", payload=b"x" * 20_000)))).exception(5) is None:
        taken += 1
    assert taken > 20 and "disk full" in str(promise.exception())
    do(journal, op.Run(ONE, "m-0"))
    with pytest.raises(JournalError, match="disk full"):
        do(journal, op.Finish(ONE, "m-0", b"x" * 900_000, 9))
    assert journal.gauges().stopped == ""
    do(journal, op.Finish(ONE, "m-0", b"x" * 2000, 9))
    assert path.stat().st_size <= 1 << 20
