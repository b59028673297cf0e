"""Interactive transactions: who waits, what ends them, and that nothing of a lost one is stored."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.values import Kind

from .rig import ONE, a_sent, a_taken, do, op


@pytest.fixture
def journal(make: Any) -> Any:
    journal = make()
    do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"))
    journal.transaction(lambda sql: sql.execute("CREATE TABLE mine (id PRIMARY KEY)")).result(5)
    return journal


async def mine(journal: Any) -> Any:
    return [id for (id,) in await journal.transaction(lambda sql: sql.execute("SELECT id FROM mine"))]


async def test_they_come_one_after_the_other(journal: Any) -> None:
    async def one(i: int) -> None:
        transaction = await journal.begin()
        count = (await transaction.execute("SELECT count(*) FROM mine"))[0][0]
        await asyncio.sleep(0)
        await transaction.execute("INSERT INTO mine VALUES (?)", (count,))
        await transaction.commit(op.Submit(a_sent(f"m-{i}")))

    await asyncio.gather(*(one(i) for i in range(20)))
    assert await mine(journal) == list(range(20))


async def test_a_failed_statement_leaves_it_usable(journal: Any) -> None:
    transaction = await journal.begin()
    await transaction.execute("INSERT INTO mine VALUES (1)")
    for sql in ("INSERT INTO mine VALUES (1)", "SELECT nonsense", "DELETE FROM hermes_taken", "COMMIT"):
        with pytest.raises(sqlite3.DatabaseError):
            await transaction.execute(sql)
    await transaction.commit(op.Finish(ONE, "m-1", b"out", 9))
    assert await mine(journal) == [1]
    assert (await journal.taken(ONE, "m-1")).outcome == b"out"


async def test_a_statement_that_rolls_back_ends_it(journal: Any) -> None:
    transaction = await journal.begin()
    await transaction.execute("INSERT INTO mine VALUES (1)")
    with pytest.raises(sqlite3.IntegrityError):
        await transaction.execute("INSERT OR ROLLBACK INTO mine VALUES (1)")
    with pytest.raises(JournalError, match="has ended"):
        await transaction.commit(op.Finish(ONE, "m-1", b"out", 9))
    assert await mine(journal) == [] and journal.gauges().stopped == ""


async def test_a_statement_beyond_the_limit_is_interrupted(journal: Any) -> None:
    transaction = await journal.begin(limit_s=0.1)
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(JournalError, match="longer than its limit"):
        await transaction.execute(slow)
    assert (await journal.commit(op.Submit(a_sent())))[0].kind is Kind.NEW


async def test_the_limit_frees_the_writer_and_tells(journal: Any) -> None:
    transaction = await journal.begin(limit_s=0.05)
    await transaction.execute("INSERT INTO mine VALUES (1)")
    await asyncio.sleep(0.1)
    with pytest.raises(JournalError, match=r"longer than 0\.05 s and was rolled back"):
        await transaction.execute("SELECT 1")
    await transaction.rollback()
    assert await mine(journal) == []


async def test_cancelled_while_it_waits(journal: Any) -> None:
    first = await journal.begin()
    waiting = asyncio.ensure_future(journal.begin())
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.sleep(0)
    await first.commit()
    await asyncio.wait_for(waiting_for(journal.commit(op.Submit(a_sent()))), 2)


async def test_close_waits_for_it_within_its_limit(journal: Any) -> None:
    transaction = await journal.begin(limit_s=0.2)
    await transaction.execute("INSERT INTO mine VALUES (1)")
    await asyncio.wait_for(asyncio.to_thread(journal.close), 5)
    with pytest.raises(JournalError):
        await transaction.commit()


async def test_a_refused_operation_takes_the_sql_back(journal: Any) -> None:
    transaction = await journal.begin()
    await transaction.execute("INSERT INTO mine VALUES (1)")
    with pytest.raises(Exception, match="no work 'absent'"):
        await transaction.commit(op.Finish(ONE, "m-1", b"out", 9), op.Run(ONE, "absent"))
    assert await mine(journal) == []
    assert (await journal.taken(ONE, "m-1")).outcome is None


async def waiting_for(promise: Any) -> Any:
    return await promise
