"""Room: the reserve grows with what is unfinished; the ballast is real blocks and comes back."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.room import PAGE, Room, cost
from hermes_peer.journal.values import Limits


def test_the_reserve_grows_with_unfinished_rows(path: Path) -> None:
    room = Room(path, Limits(ballast=0, outcome_room=8 * PAGE))
    need = cost(100) + cost(0)
    room.look((need // PAGE) + 8 * 5, 0)
    room.admit(100, 4, "new work")
    room.look((need // PAGE) + 8 * 5, 0)
    with pytest.raises(JournalError, match="disk full: the journal has no room for new work"):
        room.admit(100, 5, "new work")


def test_the_disk_must_have_room_for_the_log_too(path: Path) -> None:
    room = Room(path, Limits(ballast=0))
    disk = os.statvfs(path.parent)
    room.look(1 << 40, 0)
    assert abs(room.free - disk.f_bavail * disk.f_frsize) < 1 << 30
    with_log = disk.f_bavail * disk.f_frsize * 2
    room.look(1 << 40, with_log)
    with pytest.raises(JournalError, match="disk full"):
        room.admit(10, 0, "new work")


def test_admissions_of_one_batch_add_up(path: Path) -> None:
    room = Room(path, Limits(ballast=0, outcome_room=0))
    room.look(100, 0)
    admitted = 0
    with contextlib.suppress(JournalError):
        while admitted < 100:
            room.admit(4 * PAGE, 0, "new work")
            admitted += 1
    assert 5 < admitted < 15 and room.free > 0


def test_the_ballast_is_of_real_blocks(path: Path) -> None:
    room = Room(path, Limits(ballast=1 << 20))
    room.fill()
    assert not room.full and os.stat(room.path).st_blocks * 512 >= 1 << 20
    assert os.stat(room.path).st_mode & 0o777 == 0o600
    room.give_up()
    assert room.full and os.stat(room.path).st_size == 0
    room.look(1000, 0)
    room.admit(10, 0, "new work")  # there is room, so it is made again first
    assert not room.full and os.stat(room.path).st_blocks * 512 >= 1 << 20
    room.remove()
    assert not room.path.exists()


def test_without_a_ballast_the_disk_counts_as_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(path, Limits(ballast=1 << 20))
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    room.fill()
    room.look(1000, 0)
    with pytest.raises(JournalError, match="disk full"):
        room.admit(10, 0, "new work")
    assert os.stat(room.path).st_size == 0
