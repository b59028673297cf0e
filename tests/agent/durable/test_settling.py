"""The receiver is told that it may forget, once, also if nobody was there to hear it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hermes_peer.agent.durable import settling
from hermes_peer.agent.durable.rows import settled
from tests.agent.durable.rig import crash, empty, left, planner, sent, two, worker
from tests.loops import until


async def test_in_one_batch_and_noted(home: Path, monkeypatch: Any) -> None:
    async with two(home) as (me, served):
        calls: list[int] = []
        inbox, _ = await served._running().durable.open()
        real = inbox.settle
        monkeypatch.setattr(inbox, "settle", lambda principal, ids: calls.append(len(ids)) or real(principal, ids))
        tickets = await asyncio.gather(*(me.submit("worker", "plain", {}) for _ in range(100)))
        await asyncio.gather(*(ticket.result() for ticket in tickets))
        await empty(me, served)
        assert sum(calls) == 100 and len(calls) < 30
        await until_settled(me)


async def test_what_ends_while_others_are_told_of_waits_for_the_next_batch(home: Path, monkeypatch: Any) -> None:
    async with two(home) as (me, served):
        inbox, _ = await served._running().durable.open()
        _, box = await me._running().durable.open()
        calls: list[int] = []
        another = asyncio.Event()
        real = inbox.settle

        async def slow(principal: bytes, ids: list[str]) -> int:
            calls.append(len(ids))
            if len(calls) == 1:
                monkeypatch.setattr(settling, "BATCH_S", 1.5)
                await (await me.submit("worker", "plain", {})).result()
                await until(lambda: len(box.settling) == 2)
                another.set()
            return await real(principal, ids)

        monkeypatch.setattr(inbox, "settle", slow)
        await (await me.submit("worker", "plain", {})).result()
        await another.wait()
        await until(lambda: len(box.settling) == 1)  # the first is told, the second waits
        await (await me.submit("worker", "plain", {})).result()
        await empty(me, served)
        assert calls == [1, 2]


async def until_settled(me: Any) -> None:
    while not all(settled(row) for row in await sent(me)):
        await asyncio.sleep(0.005)


async def test_a_restarted_submitter_tells_what_was_not_told(home: Path, monkeypatch: Any) -> None:
    async with worker(home) as served:
        with monkeypatch.context() as patch:
            patch.setattr(settling, "BATCH_S", 100.0)
            async with planner(home) as me:
                await (await me.submit("worker", "plain", {})).result()
        assert left(served) == {"taken done": 1}
        async with planner(home) as me:
            await empty(me, served)
            await until_settled(me)
        async with planner(home) as me:
            await asyncio.sleep(0.1)
            assert me.status()["links"] == []  # nobody is dialled for what was told


async def test_a_receiver_that_was_away_is_told_at_the_next_link(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(settling, "BATCH_S", 1.0)
    async with planner(home) as me:
        async with worker(home) as served:
            await (await me.submit("worker", "plain", {})).result()
            await crash(served)
        monkeypatch.setattr(settling, "REACH_S", 0.1)
        box = me._running().durable.outbox
        assert box is not None
        await until(lambda: len(box.settling) == 1 and not box.settling._telling)
        monkeypatch.setattr(settling, "BATCH_S", 0.01)
        async with worker(home) as served:
            assert left(served) == {"taken done": 1}
            assert await me.call("worker", "plain") == "ran"
            await empty(me, served)
