"""Power loss by a disk that forgets unsynced writes (layer E): FULL loses nothing, and this test can tell.

kill -9 says nothing about fsync, as the page cache survives the process. HERMES_CUTS=400 is the full form.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.values import Limits, Origin, TakenState

from .rig import ONE, a_sent, a_taken, do, op, opened

CUTS = int(os.environ.get("HERMES_CUTS", "80"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the little files beside the simulated disk: in memory, as their fsyncs are real."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name)


def work(journal: Any, dice: random.Random) -> dict[str, tuple[int, int]]:
    """Works until the power goes. What was accepted: id -> (state, items)."""
    accepted: dict[str, tuple[int, int]] = {}
    waiting: list[tuple[Any, str, tuple[int, int]]] = []
    for i in range(60):
        id = f"m-{i}"
        big = b"x" * dice.choice([10, 1000, 9000])
        waiting.append((journal.commit(op.Take(a_taken(id, payload=big)), op.Run(ONE, id)), id, (2, 0)))
        if dice.random() < 0.5:
            waiting.append((journal.commit(op.Append(ONE, id, 0, (b"a" * 700, b"b"))), id, (2, 2)))
        if dice.random() < 0.5:
            waiting.append((journal.commit(op.Finish(ONE, id, b"out" * 500, 9)), id, (3, 0)))
        waiting.append((journal.commit(op.Submit(a_sent(id))), f"sent {id}", (1, 0)))
        if dice.random() < 0.3:
            for promise, _, _ in waiting[-3:]:
                promise.exception(10)
    for promise, id, (state, items) in waiting:
        if promise.exception(10) is None:
            old = accepted.get(id, (0, 0))
            accepted[id] = (max(state, old[0]), max(items, old[1]))
        else:
            assert isinstance(promise.exception(), JournalError)
    return accepted


def one_cut(folder: Path, seed: int, sync: bool) -> tuple[int, str]:
    """(accepted commits, what was lost or broken)."""
    from .powerloss import Disk

    dice = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    disk = Disk(cut_at=dice.randint(20, 500))
    idle = dice.choice([0.0, 0.0, 1.0])  # 0: a checkpoint at every pause
    try:
        journal = opened(folder / "j", connect=disk.connect(sync), idle_s=idle)
    except JournalError:
        return 0, ""  # the cut came while it was opened
    accepted = work(journal, dice)
    disk.dead = True
    journal.close()
    after = disk.after_cut(dice)
    try:
        again = opened(folder / "j", connect=after.connect())
    except JournalError as error:
        return len(accepted), f"it does not open: {error}"
    try:
        if again.origin is not Origin.SAME:
            return len(accepted), f"origin {again.origin}"
        for id, (state, items) in accepted.items():
            if id.startswith("sent "):
                if again.sent(id[5:]).result(10) is None:
                    return len(accepted), f"{id} is lost"
                continue
            row = again.taken(ONE, id).result(10)
            if row is None or row.state < state or row.next_item < items:
                return len(accepted), f"{id} is {row}, not {TakenState(state)} with {items} items"
            if items:
                found = again.items(ONE, id, 0).result(10)
                if found is None or found.items != (b"a" * 700, b"b"):
                    return len(accepted), f"items of {id} are lost"
        if again.set_aside().result(10):
            return len(accepted), "rows are damaged"
        do(again, op.Take(a_taken("after")))
    finally:
        again.close()
    db = after.connect()(str(folder / "j"))
    db.execute("PRAGMA locking_mode=EXCLUSIVE")  # this disk has no shared memory
    whole = db.execute("PRAGMA integrity_check").fetchone()[0]
    db.close()
    return len(accepted), "" if whole == "ok" else whole


def test_a_power_cut_loses_nothing_that_was_accepted(folder: Path) -> None:
    results = [one_cut(folder / "d", seed, sync=True) for seed in range(CUTS)]
    assert [(seed, broken) for seed, (_, broken) in enumerate(results) if broken] == []
    assert sum(accepted for accepted, _ in results) > 10 * CUTS, "the cuts came too early to prove anything"


def test_without_fsync_the_same_run_fails(folder: Path) -> None:
    """The checker, checked: synchronous=OFF must lose what was accepted."""
    results = [one_cut(folder / "d", seed, sync=False) for seed in range(CUTS // 4)]
    broken = [broken for _, broken in results if broken]
    assert len(broken) > CUTS // 16, broken


def test_a_failed_fsync_stops_the_journal(folder: Path) -> None:
    """SQLite itself would go on (its next commit says ok), but a failed fsync may have dropped pages (fsyncgate)."""
    from .powerloss import Disk

    disk = Disk()
    journal = opened(folder / "j", connect=disk.connect())
    do(journal, op.Submit(a_sent("before")))
    disk.fail_sync = 1
    with pytest.raises(JournalError, match="stopped because the disk failed"):
        do(journal, op.Submit(a_sent("lost")))
    assert disk.fail_sync == 0, "the disk is well again"
    for call in (journal.commit(op.Submit(a_sent("later"))), journal.sent("before"), journal.transaction(lambda c: 1)):
        with pytest.raises(JournalError, match="stopped"):
            call.result(5)
    assert "stopped" in journal.gauges().stopped
    journal.close()
    with opened_again(folder, disk) as again:
        assert again.sent("before").result(5) is not None
        assert again.sent("later").result(5) is None


def test_a_full_disk_refuses_new_work_and_keeps_room_for_outcomes(folder: Path) -> None:
    """Attack 72. Somebody else fills the disk: the ballast is given up, so that what runs can still end."""
    from .powerloss import Disk

    disk = Disk()
    limits = Limits(ballast=256 << 10)
    ballast = folder / "j.ballast"
    disk.extra = lambda: ballast.stat().st_size if ballast.exists() else 0
    journal = opened(folder / "j", connect=disk.connect(), limits=limits)
    for i in range(10):
        do(journal, op.Take(a_taken(f"m-{i}")), op.Run(ONE, f"m-{i}"))
    assert ballast.stat().st_size == 256 << 10
    disk.size = sum(len(f.now) for f in disk.files.values()) + disk.extra()  # full to the last byte
    with pytest.raises(JournalError, match="disk full"):
        do(journal, op.Take(a_taken("new", payload=b"x" * 20_000)))
    for i in range(10):
        do(journal, op.Finish(ONE, f"m-{i}", b"x" * 4000, 9))
    assert journal.gauges().stopped == ""
    disk.size = 1 << 40
    do(journal, op.Take(a_taken("again")))
    assert ballast.stat().st_size == 256 << 10, "with room, the ballast is there again"
    journal.close()
    with opened_again(folder, disk) as again:
        rows = again.find_taken((TakenState.DONE,)).result(5)
        assert len(rows) == 10 and all(row.outcome == b"x" * 4000 for row in rows)


def test_what_shares_a_commit_with_a_full_disk_is_told_apart(folder: Path) -> None:
    """One too large unit must not take the others of its batch with it."""
    from .powerloss import Disk

    disk = Disk()
    journal = opened(folder / "j", connect=disk.connect())
    do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"))
    disk.size = sum(len(f.now) for f in disk.files.values()) + 150_000
    started, go = threading.Event(), threading.Event()
    gate = journal.transaction(lambda sql: [started.set(), go.wait(5)])
    assert started.wait(5)
    promises = [journal.commit(op.MarkDead("absent", "x")), journal.commit(op.Run(ONE, "m-1"))]
    promises.append(journal.commit(op.Append(ONE, "m-1", 0, (b"x" * 400_000,))))
    promises.append(journal.commit(op.Finish(ONE, "m-1", b"out", 9)))
    go.set()
    gate.result(5)
    errors = [promise.exception(5) for promise in promises]
    assert "disk full" in str(errors[2]) and errors[1] is None and errors[3] is None, errors
    assert journal.gauges().stopped == ""
    journal.close()


class opened_again:
    def __init__(self, folder: Path, disk: Any) -> None:
        self.journal = opened(folder / "j", connect=disk.connect())

    def __enter__(self) -> Any:
        return self.journal

    def __exit__(self, *_: object) -> None:
        self.journal.close()
