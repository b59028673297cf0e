"""What can still be read of a damaged database goes to a new one.

Knows: reading row by row around what cannot be read. Refuses to know: why it is damaged, what the rows mean.
Called by: the opening, when SQLite says that the structure is damaged.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from itertools import pairwise
from typing import Any

from hermes_peer.journal.aside import INSERT
from hermes_peer.journal.schema import OURS, SENT, TAKEN, Side, aside
from hermes_peer.journal.store import Connection
from hermes_peer.journal.stream_table import chunk_of

GAP = 100_000  # missing numbers between two rows that are looked for one by one


def salvage(old: Connection, new: Connection) -> None:
    """Copies sound rows, their stream items, rows set aside, and as much as can be read of a handler's own tables.

    Closes `old`. A row that cannot be read is not mentioned: the damaged file is kept for that.
    """
    try:
        with suppress(sqlite3.Error):
            old.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            old.execute("PRAGMA writable_schema=ON").fetchall()  # else a file that is too short is refused as a whole
            old.execute("PRAGMA query_only=ON").fetchall()
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
    for seq in _numbers(old, side):
        row = _try(old, f"SELECT {side.whole} FROM {side.table} NOT INDEXED WHERE seq=?", seq)
        if not row:
            continue
        why = side.damage(row[0])
        if why:
            new.execute(INSERT, aside(side.name, row[0], why))
            continue
        with suppress(sqlite3.IntegrityError):
            new.execute(side.insert, row[0])
            if side is TAKEN:
                _items(old, new, seq)


def _numbers(old: Connection, side: Side) -> list[int]:
    """Every seq that the table, from both ends, or its index still tells of, and those in small gaps between."""
    found: set[int] = set()
    for how in (
        "NOT INDEXED ORDER BY seq",
        "NOT INDEXED ORDER BY seq DESC",
        f"INDEXED BY sqlite_autoindex_{side.table}_1",
    ):
        with suppress(sqlite3.Error):
            for (seq,) in old.execute(f"SELECT seq FROM {side.table} {how}"):
                if isinstance(seq, int):
                    found.add(seq)
    known = sorted({0, *found})
    for low, high in pairwise(known):
        if high - low <= GAP:
            found.update(range(low + 1, high))
    return sorted(found)


def _items(old: Connection, new: Connection, work: int) -> None:
    for chunk in _try(old, "SELECT work,first,count,sum,body FROM hermes_items WHERE work=?", work):
        if chunk_of(chunk) is not None:
            with suppress(sqlite3.IntegrityError):
                new.execute("INSERT INTO hermes_items (work,first,count,sum,body) VALUES (?,?,?,?,?)", chunk)


def _try(old: Connection, sql: str, value: int) -> list[Any]:
    with suppress(sqlite3.Error):
        return old.execute(sql, (value,)).fetchall()
    return []


def _tables(old: Connection) -> list[tuple[str, str]]:
    with suppress(sqlite3.Error):
        return old.execute(
            "SELECT name,sql FROM sqlite_master WHERE typeof(name)='text' AND typeof(sql)='text'"
            " AND name NOT LIKE 'sqlite_%' ORDER BY type<>'table'"
        ).fetchall()
    return []


def _copy(old: Connection, new: Connection, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    for row in old.execute(f"SELECT * FROM {quoted}"):
        new.execute(f"INSERT INTO {quoted} VALUES ({','.join('?' * len(row))})", row)
