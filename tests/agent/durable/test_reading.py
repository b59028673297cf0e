"""hermes.resume: from an offset on, gaps, what is unknown, and whose it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError
from hermes_peer.journal import operations as op
from tests.agent.durable.rig import crash, planner, worker
from tests.loops import case, until


async def resumed(me: Any, id: str, offset: int) -> tuple[list[Any], Any]:
    async with me.stream("worker", "hermes.resume", {"message_id": id, "offset": offset}) as stream:
        items = [item["i"] async for item in stream]
        return items, await stream.result()


async def done_stream(me: Any, n: int = 600) -> str:
    ticket = await me.submit("worker", "words", {"n": n})
    await ticket.result()
    return str(ticket.message_id)


@case("HPC-005")
async def test_from_any_offset_to_the_end(home: Path) -> None:
    async with planner(home) as me, worker(home):
        id = await done_stream(me)
        for offset in (0, 1, 255, 256, 344, 345, 599, 600):
            assert await resumed(me, id, offset) == (list(range(offset, 600)), {"n": 600}), offset


@case("HPC-005")
async def test_from_any_offset_after_a_restart(home: Path) -> None:
    async with planner(home) as me:
        async with worker(home):
            id = await done_stream(me)
        async with worker(home):
            for offset in (0, 500, 599, 600):
                assert await resumed(me, id, offset) == (list(range(offset, 600)), {"n": 600}), offset


async def test_beyond_the_end_and_trimmed_is_a_gap_and_never_a_splice(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        id = await done_stream(me)
        with pytest.raises(CallError) as beyond:
            await resumed(me, id, 601)
        assert (beyond.value.reason, beyond.value.details) == ("gap", {"first": 600, "next": 600})
        inbox, _ = await served._running().durable.open()
        await inbox.journal.commit(op.Trim(bytes.fromhex(me.fingerprint), id, 300))
        with pytest.raises(CallError) as gap:
            await resumed(me, id, 10)
        assert gap.value.reason == "gap" and gap.value.details["first"] >= 300
        assert await resumed(me, id, gap.value.details["first"])


async def test_a_damaged_piece_of_the_log_is_a_gap(home: Path) -> None:
    from tests.journal.rig import raw

    async with planner(home) as me:
        async with worker(home) as served:
            id = await done_stream(me)
            file = served._running().durable.path
        raw(file, "UPDATE hermes_items SET body = x'00' WHERE first = (SELECT max(first) FROM hermes_items)")
        async with worker(home) as served:
            with pytest.raises(CallError) as gap:
                async with asyncio.timeout(5):
                    await resumed(me, id, 0)
            assert gap.value.reason == "gap"


async def test_another_agent_hears_that_there_is_no_such_work(home: Path) -> None:
    async with planner(home) as me, worker(home), planner(home, name="other") as other:
        id = await done_stream(me, 5)
        for method in ("hermes.resume", "hermes.cancel", "hermes.settle"):
            payload = {"ids": [id]} if method == "hermes.settle" else {"message_id": id}
            if method == "hermes.resume":
                with pytest.raises(CallError) as unknown:
                    await resumed(other, id, 0)
                assert unknown.value.reason == "unknown"
            else:
                assert not await other.call("worker", method, payload)
        assert await resumed(me, id, 0) == (list(range(5)), {"n": 5})
        with pytest.raises(CallError) as unknown:
            await resumed(me, "no-such-id", 0)
        assert unknown.value.reason == "unknown"


async def test_several_readers_of_a_running_stream_see_the_same(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        ticket = await me.submit("worker", "words", {"n": 400, "stop": 300})
        await until(lambda: hasattr(served, "halted"))
        readers = [asyncio.ensure_future(resumed(me, ticket.message_id, offset)) for offset in (0, 10, 290, 299)]
        await asyncio.sleep(0.02)
        served.gate.set()
        for reader, offset in zip(readers, (0, 10, 290, 299), strict=True):
            assert await reader == (list(range(offset, 400)), {"n": 400})


async def test_a_reader_waits_for_work_that_has_not_come_as_far(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        ticket = await me.submit("worker", "words", {"n": 40, "stop": 5})
        await until(lambda: hasattr(served, "halted"))
        reader = asyncio.ensure_future(resumed(me, ticket.message_id, 30))
        await asyncio.sleep(0.02)
        assert not reader.done()
        served.gate.set()
        assert await reader == (list(range(30, 40)), {"n": 40})
        await crash(served)
