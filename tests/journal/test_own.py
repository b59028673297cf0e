"""A handler's own SQL: what it may not touch, whatever way it tries."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from hermes_peer.errors import JournalError, UsageError

from .rig import ONE, a_sent, a_taken, do, op


@pytest.fixture
def journal(make: Any) -> Any:
    journal = make()
    do(journal, op.Submit(a_sent()), op.Take(a_taken()))
    journal.transaction(lambda sql: sql.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY, x)")).result(5)
    return journal


def run(journal: Any, *statements: str) -> Any:
    return journal.transaction(lambda sql: [sql.execute(each) for each in statements][-1]).result(5)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT payload FROM hermes_sent",
        "SELECT * FROM HERMES_TAKEN",
        "SELECT count(*) FROM mine, hermes_meta",
        "INSERT INTO hermes_items VALUES (1,1,1,x'00',x'00')",
        "UPDATE hermes_taken SET state=3",
        "DELETE FROM hermes_sent",
        "DELETE FROM hermes_sent WHERE seq=?1",
        "DROP TABLE hermes_sent",
        "ALTER TABLE hermes_sent ADD COLUMN x",
        "CREATE INDEX i ON hermes_sent (why)",
        "CREATE TRIGGER t AFTER INSERT ON hermes_sent BEGIN DELETE FROM mine; END",
        "CREATE TEMP TRIGGER t AFTER INSERT ON main.hermes_sent BEGIN DELETE FROM mine; END",
        "CREATE TABLE hermes_new (x)",
        "CREATE TABLE copy AS SELECT * FROM hermes_sent",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
        "DROP INDEX hermes_sent_keep",
        "REINDEX hermes_sent",
        "ANALYZE",
        "VACUUM",
        "PRAGMA writable_schema=ON",
        "PRAGMA user_version=5",
        "UPDATE sqlite_master SET sql=''",
        "ATTACH 'x' AS y",
        "DETACH main",
        "BEGIN",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT x",
        "RELEASE unit",
        "ROLLBACK TO unit",
    ],
)
def test_forbidden(journal: Any, sql: str) -> None:
    parameters = (1,) if "?1" in sql else ()
    with pytest.raises(sqlite3.DatabaseError):
        journal.transaction(lambda c: c.execute(sql, parameters)).result(5)
    assert journal.gauges().stopped == ""
    assert journal.sent("m-1").result(5) is not None and journal.taken(ONE, "m-1").result(5) is not None
    assert run(journal, "SELECT name FROM sqlite_master WHERE name IN ('i','t','hermes_new','copy','v')") == []


def test_behind_a_view_or_a_trigger_of_its_own(journal: Any) -> None:
    with pytest.raises(sqlite3.DatabaseError):
        run(journal, "CREATE VIEW v AS SELECT * FROM hermes_sent", "SELECT * FROM v")
    trigger = "CREATE TRIGGER t AFTER INSERT ON mine BEGIN DELETE FROM hermes_sent; END"
    with pytest.raises(sqlite3.DatabaseError):
        run(journal, trigger, "INSERT INTO mine VALUES (1, 1)")
    assert journal.sent("m-1").result(5) is not None


def test_a_statement_of_ours_cannot_be_borrowed_from_the_cache(journal: Any) -> None:
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        journal.transaction(lambda c: c.execute("DELETE FROM hermes_sent WHERE seq=?", (1,))).result(5)
    do(journal, op.MarkDone("m-1", b""), op.Discard("m-1"))  # now it is in the cache
    do(journal, op.Submit(a_sent()))
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        journal.transaction(lambda c: c.execute("DELETE FROM hermes_sent WHERE seq=?", (2,))).result(5)


def test_what_is_allowed(journal: Any) -> None:
    assert run(journal, "INSERT INTO mine VALUES (1, 'a') RETURNING id") == [(1,)]
    journal.transaction(lambda sql: sql.executemany("INSERT INTO mine VALUES (?, ?)", [(2, "b"), (3, "ü")])).result(5)
    assert run(journal, "SELECT x FROM mine ORDER BY id") == [("a",), ("b",), ("ü",)]
    run(journal, "CREATE INDEX mine_x ON mine (x)", "CREATE TABLE more (y)", "ALTER TABLE more ADD COLUMN z")
    run(journal, "DROP INDEX mine_x", "DROP TABLE more", "UPDATE mine SET x=x||'!' WHERE id=:id".replace(":id", "1"))


def test_the_cursor_is_not_for_keeping(journal: Any) -> None:
    kept: list[Any] = []
    journal.transaction(kept.append).result(5)
    with pytest.raises(UsageError, match="has ended"):
        kept[0].execute("SELECT 1")


def test_effects_survive_with_their_outcome(journal: Any, make: Any) -> None:
    do(journal, op.Run(ONE, "m-1"))
    promise = journal.transaction(
        lambda sql: sql.execute("INSERT INTO mine VALUES (7, 'effect')"), lambda _: [op.Finish(ONE, "m-1", b"out", 9)]
    )
    promise.result(5)
    journal.close()
    again = make()
    assert run(again, "SELECT x FROM mine") == [("effect",)]
    assert again.taken(ONE, "m-1").result(5).outcome == b"out"


def test_writing_beyond_the_time_limit(journal: Any) -> None:
    many = "INSERT INTO mine (x) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n"
    slow = journal.transaction(lambda sql: sql.execute(many), limit_s=0.05)
    beside = journal.commit(op.Submit(a_sent("beside")))
    assert isinstance(slow.exception(5), JournalError) and "longer than its limit" in str(slow.exception())
    assert beside.result(5) and run(journal, "SELECT count(*) FROM mine") == [(0,)]
