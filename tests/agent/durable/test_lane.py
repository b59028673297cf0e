"""Sending: order, windows, retries by class, refusals, expiry, other instances."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_peer import CallError
from hermes_peer.agent.durable import entry as entry_file
from hermes_peer.agent.durable import lane, retry
from hermes_peer.errors import Cancelled, LinkError, RateLimited, SessionLost
from hermes_peer.journal.values import SentState
from tests.agent.durable.rig import (
    Clocks,
    crash,
    effects,
    empty,
    ended,
    planner,
    quick_retries,
    sent,
    two,
    worker,
)
from tests.loops import case, until


@case("HPC-014")
async def test_a_retryable_error_is_tried_five_times_and_spaced(home: Path, monkeypatch: Any) -> None:
    with quick_retries(0.1):
        monkeypatch.setattr(retry.random, "uniform", lambda low, high: low)
        async with two(home) as (me, served):
            served.fails = 99
            error = await ended(ticket := await me.submit("worker", "flaky", {}))
            assert error.reason == "later" and await ticket.state() == "dead"
            assert [attempt for attempt, _ in served.seen] == [1, 2, 3, 4, 5]
            assert set(served.started) == {ticket.message_id}
            gaps = [b - a for a, b in zip(served.times, served.times[1:], strict=False)]
            assert all(gap >= wanted for gap, wanted in zip(gaps, (0.1, 0.2, 0.4, 0.8), strict=True)), gaps
            (row,) = await sent(me)
            assert row.attempts == 5


@case("HPC-014")
async def test_it_succeeds_inside_the_budget(home: Path) -> None:
    async with two(home) as (me, served):
        served.fails = 3
        ticket = await me.submit("worker", "flaky", {})
        assert await ticket.result() == 4


async def test_what_the_error_asks_for_is_waited(home: Path) -> None:
    async with two(home) as (me, served):
        served.fails = 1
        assert await (await me.submit("worker", "flaky", {"after": 0.3})).result() == 2
        assert served.times[1] - served.times[0] >= 0.3


@pytest.mark.parametrize("error", [CallError("nope", "broken"), ValueError("stray"), LinkError("downstream")], ids=repr)
async def test_a_permanent_error_is_not_tried_again(home: Path, error: Any, caplog: Any) -> None:
    async with two(home) as (me, served):
        served.broken = error
        await ended(await me.submit("worker", "breaks", {}))
        assert len(served.started) == 1
    caplog.clear()


@pytest.mark.parametrize("reason", ["draining", "journal", "full", "expired"])
async def test_an_applications_own_word_is_not_taken_for_a_refusal(home: Path, reason: str) -> None:
    async with two(home) as (me, served):
        served.broken = CallError(reason, "said by the handler", retryable=True)
        assert (await ended(await me.submit("worker", "breaks", {}))).reason == reason
        assert len(served.started) == 5


async def test_a_rate_limit_is_retried(home: Path) -> None:
    async with two(home) as (me, served):
        served.broken = RateLimited("busy", "too many", retryable=True, retry_after=0.01)
        ticket = await me.submit("worker", "breaks", {})
        await until(lambda: len(served.started) == 2)
        served.broken = None
        assert await ticket.result() == "repaired"


async def test_what_the_policy_forbids_and_what_is_not_there_is_dead_at_once(home: Path) -> None:
    async with two(home) as (me, _):
        assert (await ended(await me.submit("worker", "none.such", {}))).reason
        error = await ended(await me.submit("worker", "add", {"a": "x", "b": 1}))
        assert error.reason == "invalid_payload"
        with pytest.raises(CallError):
            await me.emit("worker", "no.such.event", {}, durable=True)


async def test_order_per_sender(home: Path) -> None:
    async with planner(home) as me:
        for i in range(150):
            await me.submit("worker", "plain", {}, message_id=f"m-{i:03}")
        async with worker(home) as served:
            await until(lambda: len(served.started) == 150)
            assert served.started == [f"m-{i:03}" for i in range(150)]
            for i in range(150, 200):
                await me.submit("worker", "plain", {}, message_id=f"m-{i:03}")
            await until(lambda: len(served.started) == 200)
            await empty(me, served)
        assert served.started == [f"m-{i:03}" for i in range(200)]


async def test_order_over_a_receiver_that_dies(home: Path) -> None:
    """What was sent before and what was submitted while it was away arrive in the order of submission."""
    async with planner(home) as me:
        async with worker(home) as served:
            first = [await me.submit("worker", "held_again", {}, message_id=f"m-{i}") for i in range(5)]
            await until(lambda: len(served.started) == 5)
            await crash(served)
        later = [await me.submit("worker", "held_again", {}, message_id=f"m-{i}") for i in range(5, 10)]
        async with worker(home) as served:
            served.gate.set()
            assert await asyncio.gather(*(t.result() for t in first + later)) == ["waited"] * 10
            assert served.started == [f"m-{i}" for i in range(10)]
            await empty(me, served)


def test_a_receiver_that_is_down_for_an_hour(home: Path, clocks: Clocks) -> None:
    asyncio.run(an_hour(home, clocks))  # without the limit of other tests: it would be over, too


async def an_hour(home: Path, clocks: Clocks) -> None:
    async with planner(home) as me:
        lasting = [await me.submit("worker", "plain", {}, ttl=7200, message_id=f"m-{i}") for i in range(6)]
        brief = [await me.submit("worker", "plain", {}, ttl=600) for _ in range(3)]
        clocks.both(3600)
        for ticket in brief:
            error = await ended(ticket)
            assert error.reason == "expired" and "did not run" in error.message
        _, box = await me._running().durable.open()
        assert [row.message_id for row in await box.letters.page()] == [ticket.message_id for ticket in brief]
        async with worker(home) as served:
            assert [await ticket.result() for ticket in lasting] == ["ran"] * 6
            assert served.started == [f"m-{i}" for i in range(6)]
            await empty(me, served)


async def test_expiry_over_a_restart_of_the_submitter(home: Path, clocks: Clocks) -> None:
    async with planner(home) as me:
        await me.submit("worker", "plain", {}, ttl=60, message_id="brief")
        await me.submit("worker", "plain", {}, ttl=6000, message_id="lasting")
    clocks.wall(600)
    async with planner(home) as me, worker(home) as served:
        assert (await ended(me.ticket("brief"))).reason == "expired"
        assert await me.ticket("lasting").result() == "ran"
        assert served.started == ["lasting"]


@case("HPC-038")
@pytest.mark.parametrize("seconds", [-86_400.0, -5.0, 5.0, 3600.0, 86_400.0 * 400])
async def test_a_wall_clock_that_jumps_changes_nothing(home: Path, clocks: Clocks, seconds: float) -> None:
    async with two(home) as (me, served):
        ticket = await me.submit("worker", "held_again", {}, ttl=30)
        await served.begun.wait()
        clocks.wall(seconds)
        other = await me.submit("worker", "plain", {}, ttl=30)
        assert await other.result() == "ran"
        served.gate.set()
        assert await ticket.result() == "waited"
        inbox, _ = await served._running().durable.open()
        await inbox.sweep()


async def test_what_was_sent_and_never_answered_is_not_called_unrun(home: Path, monkeypatch: Any) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            ticket = await me.submit("worker", "held_again", {}, ttl=1.0)
            await served.begun.wait()
            await crash(served)
        monkeypatch.setattr(entry_file, "LATE_S", 0.0)
        error = await ended(ticket)
        assert error.reason == "expired" and "whether it ran is not known" in error.message


async def test_a_handler_that_overstays_its_ttl_is_answered_so(home: Path) -> None:
    async with two(home) as (me, served):
        error = await ended(await me.submit("worker", "held", {}, ttl=1.0))
        assert (error.reason, len(served.started)) == ("ttl", 1)


async def test_one_unreachable_instance_holds_up_nobody(home: Path) -> None:
    """Work that must go back to an instance that is gone does not stand before what others can take."""
    async with planner(home) as me:
        async with worker(home, slot=1) as gone:
            await me.submit("worker", "held_again", {}, message_id="stays")
            await gone.begun.wait()
            await crash(gone)
        async with worker(home, slot=2) as other:
            tickets = [await me.submit("worker", "plain", {}) for _ in range(3)]
            assert [await ticket.result() for ticket in tickets] == ["ran"] * 3
            assert "stays" not in other.started
        async with worker(home, slot=1) as back:
            back.gate.set()
            assert await me.ticket("stays").result() == "waited"


async def test_a_draining_instance_passes_it_on(home: Path) -> None:
    async with planner(home) as me, worker(home, slot=1) as one:
        await (await me.submit("worker", "plain", {})).result()
        one._running().server.draining = True  # it refuses, and nobody has heard yet that it ends
        tickets = [await me.submit("worker", "plain", {}) for _ in range(4)]
        _, box = await me._running().durable.open()
        await until(lambda: all(entry.refused for entry in box.entries.values()))
        async with worker(home, slot=2) as other:
            assert [await ticket.result() for ticket in tickets] == ["ran"] * 4
            assert len(one.started) == 1 and len(other.started) == 4
            one._running().server.draining = False


async def test_what_was_sent_before_is_not_passed_on(home: Path) -> None:
    """Its acceptance may have been lost: only the same journal can tell."""
    async with planner(home) as me, worker(home, slot=1) as one, worker(home, slot=2) as other:
        await me.submit("worker", "held_again", {}, message_id="m")
        await until(lambda: one.started or other.started)
        has, hasnt = (one, other) if one.started else (other, one)
        await until(lambda: me._running().durable.outbox.entries["m"].accepted.done())
        await crash(has)
        await asyncio.sleep(0.3)  # several tries
        assert not hasnt.started
        assert (await me.ticket("m").state()) == "accepted"


def contact_of(me: Any, other: Any) -> Any:
    return me._running().endpoint.contact(bytes.fromhex(other.fingerprint))


async def test_works_that_run_long_leave_room_for_calls(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        tickets = await asyncio.gather(*(me.submit("worker", "held_again", {}) for _ in range(300)))
        await until(lambda: len(served.started) == lane.WINDOW)
        assert me.status()["durable"]["on_the_way"] == lane.WINDOW
        answers = await asyncio.gather(*(me.call("worker", "hermes.ping", ttl=5) for _ in range(40)))
        assert len(answers) == 40
        served.gate.set()
        assert await asyncio.gather(*(ticket.result() for ticket in tickets)) == ["waited"] * 300
        await empty(me, served)


async def test_a_crowd_does_not_run_at_once(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes_peer.agent.durable.inbox.AT_ONCE", 5)
    async with two(home) as (me, served):
        tickets = await asyncio.gather(*(me.submit("worker", "held_again", {}) for _ in range(40)))
        await until(lambda: len(served.started) == 5)
        await until(lambda: served.status()["durable"]["taken"]["accepted"] == 35)
        assert len(served.started) == 5
        served.gate.set()
        assert await asyncio.gather(*(ticket.result() for ticket in tickets)) == ["waited"] * 40


async def test_a_lost_line_is_not_noticed(home: Path) -> None:
    async with two(home) as (me, served):
        ticket = await me.submit("worker", "held", {})
        await served.begun.wait()
        contact_of(me, served).pump.abort()
        served.gate.set()
        assert await ticket.result() == "waited"
        assert len(served.started) == 1


async def test_an_address_as_target_survives_a_restart_of_the_submitter(home: Path) -> None:
    async with worker(home, listen="hermes://127.0.0.1:0") as served:
        address = next(text for text in served.addresses if text.startswith("hermes://"))
        async with planner(home) as me:
            ticket = await me.submit(address, "held_again", {})
            await served.begun.wait()
            await crash(me)
        served.gate.set()
        async with planner(home) as me:
            assert await me.ticket(ticket.message_id).result() == "waited"
            by_key = await me.submit(served.fingerprint, "plain", {})
            assert await by_key.result() == "ran"


async def test_an_effect_survives_any_number_of_restarts(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "effect", {"k": "x"})
        for _ in range(3):
            async with worker(home) as served:
                await served.begun.wait()
                await crash(served)
        async with worker(home) as served:
            served.gate.set()
            assert await ticket.result() == "stored"
            assert await effects(served) == ["x"]
            await empty(me, served)


async def test_cancelled_work_is_no_dead_letter(home: Path) -> None:
    async with two(home) as (me, served):
        ticket = await me.submit("worker", "held", {})
        await served.begun.wait()
        await ticket.cancel()
        assert isinstance(await ended(ticket), Cancelled)
        assert [row.state for row in await sent(me)] == [SentState.DONE]


async def test_drain_lets_what_runs_end(home: Path) -> None:
    async with planner(home) as me:
        served = worker(home)
        served.drain_s = 5.0
        async with served:
            ticket = await me.submit("worker", "held", {})
            await served.begun.wait()
            closing = asyncio.ensure_future(served.aclose())
            await asyncio.sleep(0)
            served.gate.set()
            assert await ticket.result() == "waited"
            await closing
        assert len(served.started) == 1


@case("HPC-076")
async def test_a_handler_that_takes_no_notice_does_not_hold_the_end_up(home: Path) -> None:
    stuck = asyncio.Event()
    free = asyncio.Event()
    async with planner(home) as me, worker(home) as served:

        @served.method("stubborn")
        async def stubborn() -> None:
            stuck.set()
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    pass

        await me.submit("worker", "stubborn", {})
        await stuck.wait()
        async with asyncio.timeout(2):
            await served.aclose()
        free.set()


@pytest.mark.parametrize(("said", "blind", "free"), [("no", False, True), ("unknown", True, False)])
async def test_only_what_provably_never_ran_may_go_to_another(home: Path, said: Any, blind: bool, free: bool) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "plain", {})
        _, box = await me._running().durable.open()
        entry, line = box.entries[ticket.message_id], box._lanes["worker"]
        call: Any = SimpleNamespace(contact=SimpleNamespace(peer=SimpleNamespace(fingerprint=b"p" * 32)))
        box.flying[b"p" * 32] = 1
        ended_so = asyncio.get_running_loop().create_future()
        ended_so.set_exception(SessionLost("the session was lost", ran=said))
        line._ended(entry, call, ended_so)
        assert (entry.blind, entry.free) == (blind, free)
