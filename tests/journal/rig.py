"""What the tests of the journal share: opening one, short operations, a raw look at its file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from hermes_peer.journal import operations as op
from hermes_peer.journal.sqlite import SqliteJournal
from hermes_peer.journal.values import Limits
from hermes_peer.testing.journal_contract import ONE, TWO, a_sent, a_taken, do

__all__ = ["KEY", "ONE", "TWO", "a_sent", "a_taken", "do", "flipped", "op", "opened", "raw"]

KEY = b"k" * 32


def opened(path: Path, **more: Any) -> SqliteJournal:
    more.setdefault("limits", Limits(ballast=0))
    return SqliteJournal(path, more.pop("key", KEY), entropy=os.urandom, **more)


def raw(path: Path, sql: str, *parameters: Any) -> list[Any]:
    """SQL behind the journal's back, while it is closed."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return db.execute(sql, parameters).fetchall()
    finally:
        db.close()


def flipped(value: Any, bit: int) -> Any:
    """The value of a column with one bit changed."""
    if value is None:
        return b""
    if isinstance(value, int):
        return value ^ (1 << bit)
    data = bytearray(value or b"\0")
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(data)
