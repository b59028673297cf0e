"""The stream log as SQL: items in chunks, each chunk one row with a checksum.

Knows: how items become chunks and come back. Refuses to know: whose work it is and whether it may be appended to.
Called by: the SQLite tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hermes_peer.journal.schema import Columns, digest8, pack, unpack
from hermes_peer.journal.store import Connection

CHUNK = 256 << 10  # bytes of items in one row, unless a single item is larger
READ = 1 << 20  # bytes of items in one answer, about

_INSERT = "INSERT INTO hermes_items (work,first,count,sum,body) VALUES (?,?,?,?,?)"
_START = "SELECT max(first) FROM hermes_items WHERE work=? AND first<=?"
_FROM = "SELECT work,first,count,sum,body FROM hermes_items WHERE work=? AND first>? ORDER BY first LIMIT 4"


class StreamTable:
    """Items of one work (its `seq`), counted from 0."""

    def __init__(self, db: Connection) -> None:
        self.db = db

    def append(self, work: int, first: int, items: Sequence[bytes]) -> None:
        for at, chunk in _chunks(items):
            body = pack(chunk)
            key = (work, first + at, len(chunk))
            self.db.execute(_INSERT, (*key, digest8("items", *key, body), body))

    def trim(self, work: int, below: int) -> None:
        """Forgets the chunks that lie below index `below` as a whole."""
        self.db.execute("DELETE FROM hermes_items WHERE work=? AND first+count<=?", (work, below))

    def forget(self, work: int) -> None:
        self.db.execute("DELETE FROM hermes_items WHERE work=?", (work,))

    def read(self, work: int, start: int, limit: int) -> tuple[int, list[bytes], list[Columns]]:
        """(index of the first item, at most `limit` items without a gap, the damaged chunks that were met)."""
        first, items, size, damaged = start, list[bytes](), 0, list[Columns]()
        begin = self.db.execute(_START, (work, start)).fetchone()[0]
        last = start - 1 if begin is None else begin - 1
        while len(items) < limit and size < READ:
            rows = self.db.execute(_FROM, (work, last)).fetchall()
            for row in rows:
                last = row[1]
                chunk = chunk_of(row)
                if chunk is None:
                    damaged.append(row)
                    continue
                if last > first + len(items):  # something is missing before this one
                    if items:
                        return first, items[:limit], damaged
                    first = last
                new = chunk[first + len(items) - last :]
                items += new
                size += sum(map(len, new))
            if not rows:
                break
        return first, items[:limit], damaged


def chunk_of(row: Columns) -> tuple[bytes, ...] | None:
    """The items of a sound chunk, or None."""
    work, first, count, total, body = row
    try:
        if digest8("items", work, first, count, body) != total:
            return None
        return unpack(body)
    except (TypeError, ValueError, msgspec.DecodeError):
        return None


def _chunks(items: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    start = size = 0
    for at, item in enumerate(items):
        if at > start and size + len(item) > CHUNK:
            yield start, items[start:at]
            start, size = at, 0
        size += len(item)
    if start < len(items):
        yield start, items[start:]
