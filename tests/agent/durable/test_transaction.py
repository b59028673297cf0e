"""Effect and outcome in one commit, or neither."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, Request
from hermes_peer.errors import UsageError
from tests.agent.durable.rig import crash, effects, ended, planner, sql, two, worker


async def test_effect_and_outcome_are_one_commit(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "effect", {"k": "x"})
        async with worker(home) as served:
            await served.begun.wait()
            await asyncio.sleep(0.02)  # the insert is made, the handler waits
            await crash(served)
        async with worker(home) as served:
            await served.begun.wait()
            served.gate.set()
            assert await ticket.result() == "stored"
            assert await effects(served) == ["x"] and served.seen == [(2, 0)]


async def test_a_failed_try_leaves_no_effect(home: Path) -> None:
    async with two(home) as (me, served):
        served.gate.set()
        served.fails = 2
        ticket = await me.submit("worker", "effect", {"k": "x", "fail": True})
        assert await ticket.result() == "stored"
        assert await effects(served) == ["x"] and len(served.started) == 3


async def test_an_error_after_the_block_leaves_no_effect(home: Path) -> None:
    async with two(home) as (me, served):

        @served.method("late", contract="transactional")
        async def late(request: Request) -> None:
            async with request.transaction() as db:
                await db.execute("CREATE TABLE IF NOT EXISTS effects (k TEXT)")
                await db.execute("INSERT INTO effects VALUES ('late')")
            raise CallError("nope", "after the block")

        assert (await ended(await me.submit("worker", "late", {}))).reason == "nope"
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await effects(served)


async def test_too_slow_a_transaction_stores_nothing_and_is_tried_again(home: Path, monkeypatch: Any) -> None:
    async with two(home) as (me, served):
        slow = [True]
        await sql(served, "CREATE TABLE effects (k TEXT)")
        inbox, _ = await served._running().durable.open()
        real = inbox.journal.begin
        monkeypatch.setattr(inbox.journal, "begin", lambda: real(limit_s=0.05))

        @served.method("slow", contract="transactional")
        async def handler(request: Request) -> str:
            async with request.transaction() as db:
                await db.execute("INSERT INTO effects VALUES ('once')")
                if slow.pop() if slow else False:
                    await asyncio.sleep(0.2)
            return "stored"

        ticket = await me.submit("worker", "slow", {})
        assert await ticket.result() == "stored"
        assert await effects(served) == ["once"]


async def test_a_constraint_that_fails_at_the_commit_is_the_handlers_failure(home: Path, caplog: Any) -> None:
    async with two(home) as (me, served):
        await sql(served, "CREATE TABLE parent (k TEXT PRIMARY KEY)")

        @served.method("bad", contract="transactional")
        async def bad(request: Request) -> None:
            async with request.transaction() as db:
                await db.execute("INSERT INTO parent VALUES ('a')")
                await db.execute("INSERT INTO parent VALUES ('a')")

        assert (await ended(await me.submit("worker", "bad", {}))).reason == "internal"
        assert await sql(served, "SELECT * FROM parent") == []
    caplog.clear()


async def test_a_result_that_is_too_large_takes_the_effect_back(home: Path) -> None:
    async with two(home) as (me, served):
        await sql(served, "CREATE TABLE effects (k TEXT)")

        @served.method("large", contract="transactional")
        async def large(request: Request) -> str:
            async with request.transaction() as db:
                await db.execute("INSERT INTO effects VALUES ('x')")
            return "x" * (1 << 20)

        await ended(await me.submit("worker", "large", {}))
        assert await effects(served) == []


async def test_items_inside_are_stored_with_it(home: Path) -> None:
    async with two(home) as (me, served):
        await sql(served, "CREATE TABLE effects (k TEXT)")

        @served.method("stream", contract="transactional")
        async def stream(request: Request) -> AsyncIterator[Any]:
            yield "before"
            async with request.transaction() as db:
                await db.execute("INSERT INTO effects VALUES ('x')")
                yield "inside"
            yield "after"

        ticket = await me.submit("worker", "stream", {})
        assert [item async for item in ticket.items()] == ["before", "inside", "after"]
        assert await effects(served) == ["x"]


async def test_misuse(home: Path, caplog: Any) -> None:
    async with two(home) as (me, served):

        @served.method("plain.transaction")
        async def plain(request: Request) -> None:
            async with request.transaction():
                pass

        @served.method("twice", contract="transactional")
        async def twice(request: Request) -> str:
            first = request.transaction()
            with pytest.raises(UsageError, match="async with"):
                await first.execute("SELECT 1")
            async with first:
                pass
            with pytest.raises(UsageError, match="one transaction"):
                async with request.transaction():
                    pass
            return "ok"

        assert "transactional" in (await ended(await me.submit("worker", "plain.transaction", {}))).message
        assert await (await me.submit("worker", "twice", {})).result() == "ok"
        with pytest.raises(CallError):
            await me.call("worker", "twice")  # volatile: there is no transaction
    caplog.clear()


async def test_a_stopped_journal_stores_neither(home: Path, caplog: Any) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            await me.submit("worker", "effect", {"k": "x"}, message_id="m")
            await served.begun.wait()
            await asyncio.sleep(0.02)
            served._running().durable.journal._writer._stop(OSError("EIO"))
            await crash(served)
        async with worker(home) as served:
            served.gate.set()
            assert await me.ticket("m").result() == "stored"
            assert await effects(served) == ["x"]
    caplog.clear()
