"""From which slot of `cli` the work of an id or a key of the user's own is submitted.

Knows: one small SQLite file beside the slots. Refuses to know: works, who holds a slot. Called by: visit, for submit.

A receiver tells works of one id apart by the key that submits them, and each slot has a key of its own. So the first
command that names an id or a key claims it for its slot, and every later one submits from there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes_peer.errors import UsageError

FILE = "ids.db"
BUSY_S = 5.0
KEPT_S = 100 * 86_400  # longer than any work may wait, with a replay, and than its outcome is kept
TABLE = "CREATE TABLE IF NOT EXISTS claim (name TEXT PRIMARY KEY, slot INTEGER, used_s INTEGER) WITHOUT ROWID"


def names_of(id: str, key: str) -> list[str]:
    """What a submission claims."""
    return [f"{kind}:{text}" for kind, text in (("id", id), ("key", key)) if text]


def slot_of(folder: Path, names: Sequence[str]) -> int | None:
    """The slot that has claimed one of these; None if none has. Raises UsageError as `claim` does."""
    if not names or not (folder / FILE).exists():
        return None
    with _opened(folder) as db:
        return _slot_of(db, names)


def claim(folder: Path, names: Sequence[str], number: int) -> int:
    """Claim these for the slot `number`; returns the slot that has them, which was perhaps quicker.

    It is on the disk before it returns. Raises UsageError if two slots have one each, or the file is damaged.
    """
    if not names:
        return number
    now = int(time.time())
    with _opened(folder) as db:
        slot = _slot_of(db, names) or number
        db.executemany("REPLACE INTO claim VALUES (?, ?, ?)", [(name, slot, now) for name in names])
        db.execute("DELETE FROM claim WHERE used_s < ?", (now - KEPT_S,))
    return slot


def _slot_of(db: sqlite3.Connection, names: Sequence[str]) -> int | None:
    marks = ", ".join("?" * len(names))
    found = db.execute(f"SELECT DISTINCT slot FROM claim WHERE name IN ({marks})", names).fetchall()
    if len(found) > 1:
        raise UsageError("this id and this key were used for two works already: take a new id, or a new key")
    return int(found[0][0]) if found else None


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """One transaction, in which nobody else writes."""
    path = folder / FILE
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(TABLE)
            yield db
            db.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        raise UsageError(
            f"{path} cannot be used ({getattr(error, 'strerror', None) or error}), and without it an id might be "
            "submitted twice; make room, or move it away once no work of an id of yours is open"
        ) from None
