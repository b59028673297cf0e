"""Tickets: here, in a new process, read from an offset, cancelled, forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError
from hermes_peer.errors import Cancelled, JournalError, UsageError
from hermes_peer.journal.values import SentState
from tests.agent.durable.rig import crash, empty, ended, left, planner, sent, two, until_error, worker
from tests.loops import case, until


async def test_states(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "held", {})
        assert await ticket.state() == "waiting" and ticket.message_id in repr(ticket)
        async with worker(home) as served:
            await ticket.accepted()
            assert await ticket.state() == "accepted"
            served.gate.set()
            await ticket.result()
            assert await ticket.state() == "done"


async def test_a_new_process_of_the_same_home_asks(home: Path) -> None:
    async with worker(home) as served:
        async with planner(home) as me:
            id = (await me.submit("worker", "held_again", {})).message_id
        async with planner(home) as me:
            served.gate.set()
            assert await me.ticket(id).result() == "waited"
        async with planner(home) as me:
            assert await me.ticket(id).result() == "waited" and await me.ticket(id).state() == "done"


async def test_of_another_agent_there_is_no_such_ticket(home: Path) -> None:
    async with planner(home) as me, planner(home, name="other") as other:
        id = (await me.submit("worker", "plain", {})).message_id
        for ask in (other.ticket(id).result, other.ticket(id).state, other.ticket(id).cancel, other.ticket(id).forget):
            with pytest.raises(UsageError, match="knows of no ticket"):
                await ask()


@case("HPC-005")
async def test_items_over_restarts_of_both_sides(home: Path) -> None:
    got: list[int] = []
    async with planner(home) as me:
        id = (await me.submit("worker", "words", {"n": 300, "stop": 200})).message_id
        async with worker(home) as served:
            async for item in me.ticket(id).items():
                got.append(item["i"])
                if len(got) == 150:
                    break
            await until(lambda: hasattr(served, "halted"))
            await crash(served)
    async with worker(home) as served, planner(home) as me:
        served.gate.set()
        async for item in me.ticket(id).items(len(got)):
            got.append(item["i"])
        assert got == list(range(300))
        assert await me.ticket(id).result() == {"n": 300}
        await empty(me, served)


async def test_a_reader_sees_nothing_of_a_restart(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "words", {"n": 300, "stop": 200})

        async def read() -> list[int]:
            return [item["i"] async for item in ticket.items()]

        reader = asyncio.ensure_future(read())
        async with worker(home) as served:
            await until(lambda: hasattr(served, "halted"))
            await crash(served)
        async with worker(home) as served:
            served.gate.set()
            assert await reader == list(range(300))
            await empty(me, served)


async def test_the_default_offset_is_where_the_last_reader_stopped(home: Path) -> None:
    async with worker(home):
        async with planner(home) as me:
            ticket = await me.submit("worker", "words", {"n": 100})
            items = ticket.items()
            first = [(await anext(items))["i"] for _ in range(70)]
            await items.aclose()
            rest = ticket.items()
            first += [(await anext(rest))["i"] for _ in range(5)]
            await rest.aclose()
        async with planner(home) as me:
            first += [item["i"] async for item in me.ticket(ticket.message_id).items()]
            assert first == list(range(100))


async def test_what_nobody_reads_is_kept_until_it_is_forgotten(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        ticket = await me.submit("worker", "words", {"n": 50})
        await ticket.result()
        await asyncio.sleep(0.1)
        assert left(served) == {"taken done": 1}
        await ticket.forget()
        await empty(me, served)
        with pytest.raises(CallError) as gone:
            _ = [item async for item in ticket.items(0)]
        assert gone.value.reason == "unknown"


async def test_forget_before_the_end(home: Path) -> None:
    async with two(home) as (me, served):
        ticket = await me.submit("worker", "words", {"n": 50, "stop": 40})
        await until(lambda: hasattr(served, "halted"))
        await ticket.forget()
        served.gate.set()
        assert await ticket.result() == {"n": 50}


async def test_reading_to_the_end_forgets_on_both_sides(home: Path) -> None:
    async with two(home) as (me, _):
        ticket = await me.submit("worker", "words", {"n": 10})
        assert len([item async for item in ticket.items()]) == 10
        assert [item async for item in ticket.items()] == []


async def test_a_cancel_before_it_was_sent(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "plain", {})
        await ticket.cancel()
        assert isinstance(await ended(ticket), Cancelled)
        async with worker(home) as served:
            assert await (await me.submit("worker", "plain", {}, message_id="b")).result() == "ran"
            assert served.started == ["b"]
        await ticket.cancel()  # harmless


async def test_whoever_waits_hears_that_the_agent_is_closed(home: Path) -> None:
    async def items(ticket: Any) -> list[Any]:
        return [item async for item in ticket.items()]

    me = planner(home)
    async with me:
        ticket = await me.submit("worker", "plain", {})
        waiting = [asyncio.ensure_future(each) for each in (ticket.result(), ticket.accepted(), items(ticket))]
        await ticket.state()  # they wait by now
    for each in waiting:
        with pytest.raises(JournalError, match="is kept"):
            await each
    for ask in (ticket.result, ticket.accepted, ticket.state, ticket.cancel, ticket.forget):
        with pytest.raises(UsageError, match="not running"):
            await ask()
    async with me, worker(home):  # a ticket outlives a run
        assert await ticket.result() == "ran"


async def test_a_cancel_that_cannot_be_stored_is_no_cancel(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "plain", {})
        entry = me._running().durable.outbox.entries[ticket.message_id]  # type: ignore[union-attr]
        me._running().durable.journal.close()  # type: ignore[union-attr]
        with pytest.raises(JournalError):
            await ticket.cancel()
        drop = me._running().durable.outbox.drop  # type: ignore[union-attr]
        with pytest.raises(JournalError):
            await drop(entry, Cancelled("cancelled", "not yet"))
        assert not entry.done.done()
    async with planner(home) as me, worker(home):
        assert await me.ticket(ticket.message_id).result() == "ran"


async def test_a_cancel_is_carried_through_without_whoever_asked(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "plain", {})
        entry = me._running().durable.outbox.entries[ticket.message_id]  # type: ignore[union-attr]
        asked = asyncio.ensure_future(ticket.cancel())
        while not entry.busy:
            await asyncio.sleep(0)
        asked.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(Cancelled):
                await ticket.result()
        assert await ticket.state() == "done"


async def test_a_cancel_right_behind_the_submission(home: Path) -> None:
    async with two(home) as (me, _served):
        await (await me.submit("worker", "plain", {})).result()
        for _ in range(10):
            ticket = await me.submit("worker", "held", {})
            await ticket.cancel()
            assert isinstance(await ended(ticket), Cancelled)
        assert all(row.state is SentState.DONE for row in await sent(me))


async def test_a_cancel_between_two_tries(home: Path) -> None:
    async with two(home) as (me, served):
        served.fails = 5
        ticket = await me.submit("worker", "flaky", {"after": 30})
        await until(lambda: served.started)
        await until(lambda: not me.status()["durable"]["on_the_way"])
        await ticket.cancel()
        assert isinstance(await ended(ticket), Cancelled)
        assert len(served.started) == 1
        me._running().durable.outbox.consumed_all(ticket.message_id)


async def test_a_cancelled_stream_ends_its_reader(home: Path) -> None:
    async with two(home) as (me, served):
        ticket = await me.submit("worker", "words", {"n": 50, "stop": 10})
        reader = asyncio.ensure_future(until_error(ticket, Cancelled))
        await until(lambda: hasattr(served, "halted"))
        await ticket.cancel()
        got, _ = await reader
        assert got == [{"i": i} for i in range(10)]


async def test_a_stream_that_waits_for_its_first_item_is_not_hurried(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "words", {"n": 5})
        items: Any = ticket.items()
        first = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0.02)
        assert not first.done()
        async with worker(home):
            assert await first == {"i": 0}
            assert [item["i"] async for item in items] == [1, 2, 3, 4]
