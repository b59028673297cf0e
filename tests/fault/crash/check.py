"""What must hold once all is quiet: read from the files that the two programs left."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fault.crash.plan import call_id, method_of, stream_id, whole
from tests.fault.crash.planner import known, unanswered


def check(folder: Path, calls: int, streams: int, items: int) -> dict[str, int]:
    """Raises AssertionError; gives figures to print."""
    outcomes = known(folder)
    worker, planner = (folder / f"home/agents/{name}/1/journal.db" for name in ("worker", "planner"))
    log = folder / "once.log"
    started = Counter(log.read_text().split() if log.exists() else ())
    effects = Counter(id for (id,) in rows(worker, "SELECT id FROM effects")) if calls > 1 else Counter[str]()
    unknown = 0
    for call in range(calls):
        id, outcome = call_id(call), outcomes.get(call_id(call))
        if method_of(call) == "once":
            assert started[id] <= 1, f"{id} has no contract and was started {started[id]} times"
            assert outcome == call + 1 or outcome == "unknown", f"{id}: {outcome!r}"
            assert outcome == "unknown" or started[id] == 1, f"{id} has a result and was never started"
            unknown += outcome == "unknown"
        else:
            assert outcome == call + 1, f"{id} of {method_of(call)}: {outcome!r}"
        if method_of(call) == "effect":
            assert effects[id] == 1, f"{id} has {effects[id]} effects"
    for stream in range(streams):
        id = stream_id(stream)
        assert outcomes.get(id) == {"items": items}, f"{id}: {outcomes.get(id)!r}"
        got, wanted = (folder / f"{id}.bin").read_bytes(), whole(id, items)
        assert got == wanted, f"{id} differs from byte {first_difference(got, wanted)} on ({len(got)} of {len(wanted)})"
    assert not unanswered(folder), f"submitted and not answered: {unanswered(folder)}"
    sent = {id for (id,) in rows(planner, "SELECT message_id FROM hermes_sent")}
    orphans = 0
    for journal in (worker, planner):
        assert rows(journal, "PRAGMA integrity_check") == [("ok",)], f"{journal} is damaged"
        logged = rows(journal, "SELECT count(*) FROM hermes_items")[0][0]
        left = rows(journal, "SELECT message_id, state FROM hermes_taken")
        lost = [row for row in left if journal == worker and orphan(*row, sent)]
        orphans += len(lost)
        assert not logged and left == lost, f"{journal} still holds {left}, and {logged} items"
    open_rows = rows(planner, "SELECT message_id, state FROM hermes_sent WHERE state IN (1, 2)")
    assert not open_rows, f"open: {open_rows}"
    dead = rows(planner, "SELECT count(*) FROM hermes_sent WHERE state = 4")[0][0]
    assert dead == unknown, f"{dead} dead letters, {unknown} unknown outcomes"
    return {
        "outcomes": len(outcomes),
        "unknown": unknown,
        "effects": sum(effects.values()),
        "started": len(started),
        "ahead": ahead(folder),
        "orphans": orphans,
    }


def orphan(id: Any, state: int, sent: set[Any]) -> bool:
    """What left while it was stored, by a planner that died before it was: it has ended, and is kept for its time."""
    return state == 3 and id not in sent and not id.startswith((b"call", b"stream"))


def ahead(folder: Path) -> int:
    """How many submissions left while they were stored."""
    path = folder / "lone.jsonl"
    return path.read_text().count('["ahead"]') if path.exists() else 0


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()


def first_difference(one: bytes, other: bytes) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
