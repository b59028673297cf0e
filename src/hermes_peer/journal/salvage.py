"""What can still be read of a damaged database goes to a new one.

Knows: reading row by row around what cannot be read. Refuses to know: why it is damaged, what the rows mean.
Called by: the opening, when SQLite says that the structure is damaged.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any

from hermes_peer.journal.schema import OURS, SENT, TAKEN, Side
from hermes_peer.journal.store import Connection
from hermes_peer.journal.stream_table import chunk_of

HIGHEST = 10_000_000  # rows that are looked for if not even the highest number can be read


def salvage(old: Connection, new: Connection) -> None:
    """Copies sound rows, their stream items, rows set aside, and as much as can be read of a handler's own tables.

    Closes `old`. A row that cannot be read is not mentioned: the damaged file is kept for that.
    """
    try:
        new.execute("BEGIN IMMEDIATE")
        for side in (SENT, TAKEN):
            _rows(old, new, side)
        for name, sql in _tables(old):
            if not name.startswith(OURS):
                with suppress(sqlite3.Error):
                    new.execute(sql)
            if name == "hermes_aside" or not name.startswith(OURS):
                with suppress(sqlite3.Error):
                    _copy(old, new, name)
        new.execute("COMMIT")
    finally:
        with suppress(sqlite3.Error):
            old.close()


def _rows(old: Connection, new: Connection, side: Side) -> None:
    misses = 0
    for seq in range(1, _highest(old, side) + 1):
        row = _try(old, f"SELECT {side.whole} FROM {side.table} NOT INDEXED WHERE seq=?", seq)
        misses = 0 if row else misses + 1
        if misses > HIGHEST // 10:
            return
        if not row or side.damage(row[0]):
            continue
        with suppress(sqlite3.IntegrityError):
            new.execute(side.insert, row[0])
            if side is TAKEN:
                _items(old, new, seq)


def _items(old: Connection, new: Connection, work: int) -> None:
    for chunk in _try(old, "SELECT work,first,count,sum,body FROM hermes_items WHERE work=?", work):
        if chunk_of(chunk) is not None:
            new.execute("INSERT INTO hermes_items (work,first,count,sum,body) VALUES (?,?,?,?,?)", chunk)


def _highest(old: Connection, side: Side) -> int:
    with suppress(sqlite3.Error):
        found = old.execute(f"SELECT max(seq) FROM {side.table}").fetchone()[0]
        return min(int(found or 0), HIGHEST)
    return HIGHEST


def _try(old: Connection, sql: str, value: int) -> list[Any]:
    with suppress(sqlite3.Error):
        return old.execute(sql, (value,)).fetchall()
    return []


def _tables(old: Connection) -> list[tuple[str, str]]:
    with suppress(sqlite3.Error):
        return old.execute(
            "SELECT name,sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type<>'table'"
        ).fetchall()
    return []


def _copy(old: Connection, new: Connection, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    rows = iter(old.execute(f"SELECT * FROM {quoted}"))  # type: ignore[call-overload]
    for row in rows:
        new.execute(f"INSERT INTO {quoted} VALUES ({','.join('?' * len(row))})", row)
