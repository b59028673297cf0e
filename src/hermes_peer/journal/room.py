"""Room on the disk: what is free, what must stay free, and a ballast that is given up when the disk itself is full.

Knows: pages, free bytes of the file system, one file. Refuses to know: rows, connections.
Called by: the SQLite store before it accepts new work, and after SQLITE_FULL.
"""

from __future__ import annotations

import os
from pathlib import Path

from hermes_peer.journal.store import disk_full
from hermes_peer.journal.values import Limits

PAGE = 4096


def cost(body: int) -> int:
    """Bytes that a row with `body` bytes may take: its pages, and pages of indexes that it may split."""
    return (body // PAGE + 6) * PAGE


class Room:
    """Refuses new work in time, so that the end of work that is under way can still be written.

    Two limits: the file's own bound (free pages), and the disk (free bytes as the system tells). As others can fill
    the disk between two looks, `ballast` bytes are held in a file of their own, which is given up when that happens.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path.with_name(path.name + ".ballast")
        self._folder = path.parent
        self._limits = limits
        self.full = False
        self.free = 0  # bytes, as of `look`

    def look(self, free_pages: int, log: int) -> None:
        """The free pages of the file now, and the bytes of the log that the file may still grow by; asks the system
        for the disk.
        """
        disk = os.statvfs(self._folder)
        self.free = min(free_pages * PAGE, disk.f_bavail * disk.f_frsize - log)

    def admit(self, body: int, unfinished: int, what: str) -> None:
        """Raises JournalError("disk full …") unless a new row fits and leaves room for the end of everything open."""
        need = cost(body)
        if self.full:
            self.fill()
        if self.full or self.free < need + cost(0) + (unfinished + 1) * self._limits.outcome_room:
            raise disk_full(what)
        self.free -= need

    def fill(self) -> None:
        """Makes the ballast if it is not there. If there is no room for it, the disk counts as full."""
        self.full = not self._filled()

    def _filled(self) -> bool:
        want = self._limits.ballast
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            have = os.fstat(fd)
            if have.st_size == want and have.st_blocks * 512 >= want:
                return True
            _allocate(fd, want)
            return True
        except OSError:
            os.ftruncate(fd, 0)
            return False
        finally:
            os.close(fd)

    def give_up(self) -> None:
        """Frees the ballast and refuses new work until it can be made again."""
        self.full = True
        try:
            os.truncate(self.path, 0)
        except OSError:
            pass

    def remove(self) -> None:
        """The journal is closed: no ballast is needed."""
        self.path.unlink(missing_ok=True)


def _allocate(fd: int, size: int) -> None:
    os.ftruncate(fd, size)
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    block = os.urandom(1) * (64 << 10)  # macOS: written, as a hole holds no room
    for at in range(0, size, len(block)):
        os.pwrite(fd, block[: size - at], at)
