"""A disk in memory under SQLite that can lose power, and a connection like sqlite3's on top of it. Needs apsw.

A write is only promised once the file was synced. At a cut, of what was not: all is dropped, or a prefix is kept, or a
random part, each write perhaps torn at 512 bytes. The same disk can be small (SQLITE_FULL) or fail a sync (IOERR).
"""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
from typing import Any

import apsw

SECTOR = 512
_numbers = itertools.count()


class File:
    def __init__(self) -> None:
        self.now = bytearray()
        self.safe = b""
        self.pending: list[tuple[int, bytes] | int] = []  # writes, or a truncation

    def write(self, data: bytes, at: int) -> None:
        put(self.now, data, at)
        self.pending.append((at, bytes(data)))

    def truncate(self, size: int) -> None:
        del self.now[size:]
        self.pending.append(size)

    def sync(self) -> None:
        self.safe, self.pending = bytes(self.now), []

    def after_cut(self, dice: random.Random) -> bytes:
        kept = bytearray(self.safe)
        how = dice.choice(["none", "prefix", "random"])
        upto = dice.randint(0, len(self.pending))
        for i, change in enumerate(self.pending):
            if how == "none" or (how == "prefix" and i >= upto) or (how == "random" and dice.random() < 0.5):
                continue
            if isinstance(change, int):
                del kept[change:]
                continue
            at, data = change
            sectors = range(0, len(data), SECTOR)
            torn = how == "random" and dice.random() < 0.3
            for start in sectors:
                if not torn or dice.random() < 0.5:
                    put(kept, data[start : start + SECTOR], at + start)
        return bytes(kept)


def put(into: bytearray, data: bytes, at: int) -> None:
    if len(into) < at:
        into.extend(bytes(at - len(into)))
    into[at : at + len(data)] = data


class Disk:
    """`cut_at`: the write or sync at which the power goes; from then on everything fails."""

    def __init__(self, cut_at: int = 0, size: int = 1 << 40) -> None:
        self.files: dict[str, File] = {}
        self.cut_at, self.size = cut_at, size
        self.done = 0
        self.fail_sync = 0
        self.extra = lambda: 0
        self.dead = False
        self.name = f"disk-{next(_numbers)}"
        self.vfs = Vfs(self)

    def step(self) -> None:
        self.done += 1
        if self.dead or self.done == self.cut_at:
            self.dead = True
            raise apsw.IOError("the power is gone")

    def room(self, more: int) -> None:
        if sum(len(f.now) for f in self.files.values()) + self.extra() + more > self.size:
            raise apsw.FullError("the disk is full")

    def after_cut(self, dice: random.Random) -> Disk:
        """Another disk with what this one would hold when the power is back."""
        new = Disk()
        for name, file in self.files.items():
            kept = new.files[name] = File()
            kept.now = bytearray(file.after_cut(dice))
            kept.sync()
        return new

    def connect(self, sync: bool = True) -> Any:
        return lambda path: Connection(path, self.name, sync)


class Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        super().__init__(disk.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        text = name.filename() if isinstance(name, apsw.URIFilename) else name or f"temp-{next(_numbers)}"
        flags[1] = flags[0]
        return Handle(self.disk, self.disk.files.setdefault(text, File()))

    def xAccess(self, path: str, flags: int) -> bool:
        return path in self.disk.files

    def xDelete(self, path: str, sync: bool) -> None:
        self.disk.step()
        self.disk.files.pop(path, None)


class Handle:
    def __init__(self, disk: Disk, file: File) -> None:
        self.disk, self.file = disk, file

    def xRead(self, amount: int, at: int) -> bytes:
        return bytes(self.file.now[at : at + amount])

    def xWrite(self, data: bytes, at: int) -> None:
        self.disk.room(max(0, at + len(data) - len(self.file.now)))
        self.file.write(data, at)
        self.disk.step()

    def xTruncate(self, size: int) -> None:
        self.disk.step()
        self.file.truncate(size)

    def xSync(self, flags: int) -> None:
        self.disk.step()
        if self.disk.fail_sync:
            self.disk.fail_sync -= 1
            raise apsw.IOError("fsync failed")
        self.file.sync()

    def xFileSize(self) -> int:
        return len(self.file.now)

    def xClose(self) -> None: ...
    def xLock(self, level: int) -> None: ...
    def xUnlock(self, level: int) -> None: ...
    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class Rows(list[Any]):
    def fetchall(self) -> list[Any]:
        return list(self)

    def fetchone(self) -> Any:
        return self[0] if self else None


class Connection:
    """apsw with the face of sqlite3. Without `sync` it is synchronous=OFF that says it is FULL."""

    def __init__(self, path: str, vfs: str, sync: bool) -> None:
        self._sync = sync
        self._db = self._told(lambda: apsw.Connection(os.fspath(path), vfs=vfs))

    def _told(self, run: Any) -> Any:
        try:
            return run()
        except apsw.Error as error:
            told = sqlite3.OperationalError(str(error))
            ours = {apsw.FullError: 13, apsw.IOError: 10}.get(type(error), 1)  # raised in this file: without a code
            told.sqlite_errorcode = getattr(error, "extendedresult", 0) or ours  # type: ignore[misc]
            raise told from error
        except ValueError as error:  # a null character in SQL that a damaged schema holds
            raise sqlite3.ProgrammingError(str(error)) from error

    @property
    def in_transaction(self) -> bool:
        return bool(self._db.in_transaction)

    def execute(self, sql: str, parameters: Any = ()) -> Rows:
        if not self._sync and sql == "PRAGMA synchronous":
            return Rows([(2,)])
        if not self._sync and sql == "PRAGMA synchronous=FULL":
            sql = "PRAGMA synchronous=OFF"
        return Rows(self._told(lambda: list(self._db.execute(sql, parameters))))

    def executemany(self, sql: str, parameters: Any) -> Rows:
        return Rows(self._told(lambda: list(self._db.executemany(sql, parameters))))

    def set_authorizer(self, callback: Any) -> None:
        self._db.set_authorizer(callback)

    def set_progress_handler(self, callback: Any, n: int) -> None:
        self._db.set_progress_handler(callback, n or 20)

    def close(self) -> None:
        self._told(self._db.close)
