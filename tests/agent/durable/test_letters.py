"""agent/durable/letters: who hears of dead letters; one more try, with all that is known; forgotten on both sides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError
from hermes_peer.agent.durable import lane, letters
from hermes_peer.agent.durable.rows import now_ms
from hermes_peer.errors import UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal.values import Sent
from tests.agent.durable.rig import (
    ended,
    planner,
    sent,
    taken,
    two,
    worker,
)
from tests.loops import case, until


@case("HPC-016")
async def test_a_replay_runs_once_more_with_its_own_id(home: Path) -> None:
    heard: list[Sent] = []
    async with two(home) as (me, served):
        me.on_dead_letter(lambda row: heard.append(row))
        served.broken = CallError("nope", "broken")
        ticket = await me.submit("worker", "breaks", {}, ttl=5, message_id="m-3")
        assert (await ended(ticket)).reason == "nope"
        _, box = await me._running().durable.open()
        assert [row.message_id for row in await box.letters.page()] == ["m-3"] == [row.message_id for row in heard]
        assert await me.ticket("m-3").state() == "dead"
        served.broken = None
        row = await box.letters.replay("m-3", "operator")
        assert (row.attempts, row.requeued_by) == (0, "operator") and row.expires_ms > now_ms() + 50_000
        assert await ticket.result() == "repaired"
        assert served.started == ["m-3", "m-3"] and await box.letters.page() == []
        with pytest.raises(UsageError, match="no dead letter"):
            await box.letters.replay("m-3", "operator")


@case("HPC-016")
async def test_what_had_succeeded_is_answered_from_the_stored_result(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes_peer.agent.durable.entry.LATE_S", 0.0)
    async with planner(home) as me, worker(home) as served:
        ticket = await me.submit("worker", "held_again", {}, ttl=1, message_id="m-5")
        await served.begun.wait()
        _, box = await me._running().durable.open()
        monkeypatch.setattr(lane.Lane, "_answered", lane_that_hears_nothing)
        served.gate.set()
        assert (await ended(ticket)).reason == "expired"
        monkeypatch.undo()
        await box.letters.replay("m-5", "operator")
        assert await ticket.result() == "waited"
        assert served.started == ["m-5"]


async def lane_that_hears_nothing(self: Any, entry: Any, *_: Any) -> None:
    entry.busy = False
    entry.next_try = self._loop.time() + 100


@case("HPC-016")
async def test_a_replay_survives_a_restart_of_the_submitter(home: Path, monkeypatch: Any) -> None:
    async with worker(home) as served:
        monkeypatch.setattr("hermes_peer.agent.durable.settling.BATCH_S", 100.0)  # the receiver keeps the failure
        async with planner(home) as me:
            served.broken = CallError("nope", "broken")
            await ended(await me.submit("worker", "breaks", {}, message_id="m-4"))
        assert len(await taken(served)) == 1
        served.broken = None
        async with planner(home, listen=False) as me:
            _, box = await me._running().durable.open()
            await box.journal.commit(op.Requeue("m-4", now_ms(), "operator", now_ms() + 60_000))
        async with planner(home) as me:
            assert await me.ticket("m-4").result() == "repaired"


async def test_discarded_letters_are_gone_on_both_sides(home: Path) -> None:
    async with two(home) as (me, served):
        served.broken = CallError("nope", "broken")
        await ended(await me.submit("worker", "breaks", {}, message_id="m"))
        _, box = await me._running().durable.open()
        await box.letters.discard("m")
        assert await sent(me) == []
        with pytest.raises(UsageError):
            await box.letters.discard("m")


async def test_a_hook_may_be_a_coroutine_function(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    async with two(home) as (me, served):

        @me.on_dead_letter
        async def broken(row: Sent) -> None:
            raise LookupError

        @me.on_dead_letter
        async def told(row: Sent) -> None:
            heard.append(row.message_id)

        served.broken = CallError("nope", "broken")
        await ended(await me.submit("worker", "breaks", {}, message_id="m"))
        await until(lambda: heard == ["m"] and "dead letters failed" in caplog.text)
    caplog.clear()


async def test_a_replay_goes_on_without_whoever_asked(home: Path) -> None:
    async with two(home) as (me, served):
        served.broken = CallError("nope", "broken")
        ticket = await me.submit("worker", "breaks", {}, message_id="m")
        await ended(ticket)
        served.broken = None
        _, box = await me._running().durable.open()
        asked = asyncio.ensure_future(box.letters.replay("m", "operator"))
        await asyncio.sleep(0)
        asked.cancel()
        await until(lambda: len(served.started) == 2)
        assert await ticket.result() == "repaired"


async def test_a_list_of_many_and_long_ones_comes_in_pages(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "PAGE", 2)
    async with two(home) as (me, served):
        served.broken = CallError("nope", "x" * 3000, details={"dump": "x" * 500_000})
        for n in range(3):
            await ended(await me.submit("worker", "breaks", {}, message_id=f"m-{n}"))
        page = await served.call("planner", "hermes.dead", {"action": "list"})
        assert [seen["message_id"] for seen in page] == ["m-0", "m-1"]
        assert all("details" not in seen["error"] and len(seen["error"]["message"]) == 1000 for seen in page)
        rest = await served.call("planner", "hermes.dead", {"action": "list", "after": page[-1]["seq"]})
        assert [seen["message_id"] for seen in rest] == ["m-2"]


async def test_a_hook_that_fails_spoils_nothing(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two(home) as (me, served):
        me.on_dead_letter(lambda row: 1 / 0)
        served.broken = CallError("nope", "broken")
        assert (await ended(await me.submit("worker", "breaks", {}))).reason == "nope"
    assert "dead letters failed" in caplog.text
    caplog.clear()
