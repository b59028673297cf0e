"""Statements: they use their indexes, check what they read, and refuse an id whose row was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.tables import SENT_BY_ID, TAKEN_BY_ID, TAKEN_BY_KEY
from hermes_peer.journal.values import Kind

from .rig import ONE, a_sent, a_taken, do, op, raw


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (f"SELECT * {SENT_BY_ID}", "sqlite_autoindex_hermes_sent_1"),
        (f"SELECT * {TAKEN_BY_ID}", "sqlite_autoindex_hermes_taken_1"),
        (f"SELECT * {TAKEN_BY_KEY}", "hermes_taken_key"),
        ("SELECT * FROM hermes_sent WHERE state = 4 AND seq>? ORDER BY seq", "hermes_sent_dead"),
        (
            "SELECT * FROM hermes_sent WHERE keep_until_ms>0 AND keep_until_ms<=? ORDER BY keep_until_ms",
            "hermes_sent_keep",
        ),
        (
            "SELECT * FROM hermes_taken WHERE keep_until_ms>0 AND keep_until_ms<=? ORDER BY keep_until_ms",
            "hermes_taken_keep",
        ),
        ("SELECT max(first) FROM hermes_items WHERE work=? AND first<=?", "sqlite_autoindex_hermes_items_1"),
    ],
)
def test_no_scan(sql: str, index: str, path: Path, make: Any) -> None:
    make().close()
    plan = " ".join(row[3] for row in raw(path, f"EXPLAIN QUERY PLAN {sql}", *[1] * sql.count("?")))
    assert index in plan and "TEMP B-TREE" not in plan.replace("TEMP B-TREE FOR LAST TERM", ""), plan


def test_a_row_that_decayed_in_use_is_set_aside_once(path: Path, make: Any) -> None:
    journal = make()
    do(journal, op.Take(a_taken()), op.Take(a_taken("m-2")))
    do(journal, op.Finish(ONE, "m-1", b"out", 9_000))
    journal.close()
    raw(path, "UPDATE hermes_taken SET outcome=x'00' WHERE state=3")  # DONE rows are looked at when they are read
    again = make()
    assert again.notice == "" and again.set_aside().result(5) == []
    verdict, after = do(again, op.Take(a_taken()), op.Run(ONE, "m-1"))
    assert verdict.kind is Kind.REFUSED and "damaged" in verdict.why and after is None
    assert again.taken(ONE, "m-1").result(5) is None
    assert [(r.principal, r.message_id) for r in again.set_aside().result(5)] == [(ONE, "m-1")]
    assert do(again, op.Run(ONE, "m-2")) == (1,), "the rest runs"
    again.close()
    assert do(make(), op.Take(a_taken()))[0].kind is Kind.REFUSED, "and it stays refused: it may have run"


def test_a_read_meets_a_damaged_row(path: Path, make: Any) -> None:
    journal = make()
    for id in ("m-1", "m-2", "m-3"):
        do(journal, op.Submit(a_sent(id)), op.MarkDone(id, b"out"))
    journal.close()
    raw(path, "UPDATE hermes_sent SET payload=x'FF' WHERE seq IN (1,3)")
    again = make()
    assert [row.message_id for row in again.find_sent().result(5)] == ["m-2"]
    assert again.gauges().set_aside == 2


def test_a_handler_s_transaction_that_meets_one_fails_and_runs_once(path: Path, make: Any) -> None:
    journal = make()
    do(journal, op.Submit(a_sent()), op.MarkDone("m-1", b"out"))
    journal.close()
    raw(path, "UPDATE hermes_sent SET outcome=x'00'")
    again = make()
    runs: list[int] = []
    promise = again.transaction(lambda sql: runs.append(1), lambda _: [op.Discard("m-1")])
    assert isinstance(promise.exception(5), JournalError) and runs == [1]


def test_expiry_is_taken_in_portions(make: Any) -> None:
    journal = make()
    for i in range(5):
        do(journal, op.Take(a_taken(f"m-{i}")), op.Finish(ONE, f"m-{i}", b"", 10 + i))
    do(journal, op.Take(a_taken("open")))
    assert do(journal, op.Expire(12, limit=2)) == (2,)
    assert [r.message_id for r in journal.find_taken().result(5)] == ["m-2", "m-3", "m-4", "open"]
