"""The stream log: chunks, offsets, and gaps that stay gaps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.journal.stream_table import CHUNK

from .rig import ONE, a_taken, do, op, raw


@pytest.fixture
def journal(make: Any) -> Any:
    journal = make()
    do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"))
    return journal


def read(journal: Any, offset: int, limit: int = 1000) -> Any:
    return journal.items(ONE, "m-1", offset, limit).result(5)


def test_any_slicing_gives_the_same_items(journal: Any) -> None:
    dice = random.Random(1)
    items = [b"%d-" % i + b"x" * dice.choice([0, 1, 50, 5000]) for i in range(400)]
    at = 0
    while at < len(items):
        size = dice.randint(1, 60)
        do(journal, op.Append(ONE, "m-1", at, tuple(items[at : at + size])))
        at += size
    for _ in range(60):
        offset, limit = dice.randint(0, 400), dice.randint(1, 90)
        found = read(journal, offset, limit)
        assert (found.first, list(found.items), found.next_item) == (offset, items[offset : offset + limit], 400)


def test_large_appends_are_split(journal: Any, path: Path) -> None:
    items = tuple(bytes([i]) * 100_000 for i in range(10))
    do(journal, op.Append(ONE, "m-1", 0, items))
    journal.close()
    sizes = [size for (size,) in raw(path, "SELECT length(body) FROM hermes_items ORDER BY first")]
    assert len(sizes) == 5 and max(sizes) < CHUNK


def test_a_damaged_chunk_is_a_gap_and_is_set_aside(journal: Any, path: Path, make: Any) -> None:
    for at in (0, 2, 4):
        do(journal, op.Append(ONE, "m-1", at, (b"a%d" % at, b"b%d" % at)))
    journal.close()
    raw(path, "UPDATE hermes_items SET body=CAST(body||x'00' AS BLOB) WHERE first=2")
    again = make()
    found = read(again, 1)
    assert (found.first, found.items) == (1, (b"b0",)), "what is sound before the gap, and no further"
    found = read(again, 2)
    assert (found.first, found.items, found.next_item) == (4, (b"a4", b"b4"), 6), "a gap, never a splice"
    assert [(each.side, each.why) for each in again.set_aside().result(5)] == [
        ("items", "a piece of a stream does not match its checksum")
    ]
    assert again.gauges().set_aside == 1


def test_all_that_is_left_is_damaged(journal: Any, path: Path, make: Any) -> None:
    do(journal, op.Append(ONE, "m-1", 0, (b"a",)), op.Append(ONE, "m-1", 1, (b"b",)))
    journal.close()
    raw(path, "UPDATE hermes_items SET count=7 WHERE first=1")
    again = make()
    found = read(again, 1)
    assert (found.first, found.items, found.next_item) == (2, (), 2)


def test_forgotten_with_the_work(journal: Any, path: Path) -> None:
    do(journal, op.Append(ONE, "m-1", 0, (b"a",)), op.Append(ONE, "m-1", 1, (b"b", b"c")), op.Trim(ONE, "m-1", 2))
    do(journal, op.Finish(ONE, "m-1", b"", 5), op.Expire(5))
    journal.close()
    assert raw(path, "SELECT count(*) FROM hermes_items") == [(0,)]
