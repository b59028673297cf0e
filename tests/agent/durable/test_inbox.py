"""Taking work: once, attached, refused; what the submitter and the policy may ask of it afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError
from hermes_peer.agent.durable import store
from hermes_peer.agent.durable.inbox import Reader
from hermes_peer.agent.durable.retry import read_end
from hermes_peer.errors import JournalError, UsageError
from hermes_peer.journal.values import Limits, TakenState
from hermes_peer.wire.messages import Envelope
from tests.agent.durable.rig import Clocks, crash, effects, empty, ended, planner, sent, taken, two, worker
from tests.loops import case, until

ME = b"p" * 32


class Heard(Reader):
    def __init__(self) -> None:
        self.words: list[Any] = []
        self.over = asyncio.Event()

    def accepted(self) -> None:
        self.words.append("accepted")

    def ended(self, outcome: bytes) -> None:
        end = read_end(outcome)
        self.words.append(end.error.reason if end.error else end.value)
        self.over.set()


async def offer(agent: Any, id: str, name: str = "plain", payload: bytes = b"{}", **more: Any) -> Heard:
    inbox, _ = await agent._running().durable.open()
    heard = Heard()
    envelope = Envelope("request", name, id, more.pop("ttl", 60.0), delivery="durable", **more)
    inbox.take(more.get("principal", ME), envelope, agent.methods.get(name), payload, heard)
    return heard


async def test_accepted_comes_before_the_end_and_after_the_commit(home: Path) -> None:
    async with worker(home) as served:
        heard = await offer(served, "m", "held")
        await served.begun.wait()
        assert heard.words == ["accepted"]
        assert [row.state for row in await taken(served)] == [TakenState.RUNNING]
        served.gate.set()
        await heard.over.wait()
        assert heard.words == ["accepted", "waited"]


@case("HPC-010")
@case("HPC-081")
async def test_many_at_once_with_one_id_run_once(home: Path) -> None:
    async with worker(home) as served:
        all_ = [await offer(served, "m", "held") for _ in range(20)]
        await served.begun.wait()
        served.gate.set()
        for heard in all_:
            await heard.over.wait()
            assert heard.words == ["accepted", "waited"]
        assert served.started == ["m"] and (await offer(served, "m", "held")).words == []


@case("HPC-010")
async def test_the_stored_outcome_answers_before_and_after_a_restart(home: Path) -> None:
    async with worker(home) as served:
        await (await offer(served, "m", "flaky")).over.wait()
        again = await offer(served, "m", "flaky")
        await again.over.wait()
        assert again.words == ["accepted", 1]
    async with worker(home) as served:
        again = await offer(served, "m", "flaky")
        await again.over.wait()
        assert again.words == ["accepted", 1] and served.started == []


async def test_an_id_is_one_submitters_own(home: Path) -> None:
    async with worker(home) as served:
        one = await offer(served, "m", "plain", b'{"x":1}')
        inbox, _ = await served._running().durable.open()
        heard = Heard()
        envelope = Envelope("request", "plain", "m", 60.0, delivery="durable")
        inbox.take(b"q" * 32, envelope, served.methods.get("plain"), b"{}", heard)
        await asyncio.gather(one.over.wait(), heard.over.wait())
        assert len(served.started) == 2


async def test_other_work_under_the_same_id_or_key_is_a_conflict(home: Path) -> None:
    async with worker(home) as served:
        await (await offer(served, "m", idempotency_key="k")).over.wait()
        for id, payload in (("m", b'{"x":1}'), ("n", b'{"x":1}')):
            heard = await offer(served, id, payload=payload, idempotency_key="k")
            await heard.over.wait()
            assert heard.words == ["conflict"]
        heard = await offer(served, "n", idempotency_key="k")
        await heard.over.wait()
        assert heard.words == ["accepted", "ran"] and len(served.started) == 1


async def test_a_full_inbox_refuses_and_keeps_what_it_has(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "LIMITS", Limits(rows_per_peer=2))
    async with worker(home) as served:
        held = [await offer(served, f"m-{i}", "held") for i in range(2)]
        heard = await offer(served, "m-2")
        await heard.over.wait()
        assert heard.words == ["full"]
        served.gate.set()
        for each in held:
            await each.over.wait()
            assert each.words == ["accepted", "waited"]


async def test_refused_for_room_is_sent_again_without_counting(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes_peer.agent.durable.early.RETRY_AFTER_S", 0.05)
    monkeypatch.setattr(store, "LIMITS", Limits(rows_per_peer=3))
    async with two(home) as (me, served):
        first = [await me.submit("worker", "held_again", {}) for _ in range(3)]
        await until(lambda: len(served.started) == 3)
        monkeypatch.setattr(store, "LIMITS", Limits())
        served.gate.set()
        for ticket in first:
            await ticket.result()
        more = [await me.submit("worker", "held_again", {}) for _ in range(3)]
        assert [await ticket.result() for ticket in more] == ["waited"] * 3
        assert {attempt for attempt, _ in served.seen} == {1}


async def test_too_little_time_for_the_method_is_refused_but_a_stored_outcome_is_given(home: Path) -> None:
    async with worker(home) as served:
        served.add_method("slow", served.methods.get("plain").handler, min_ttl=5.0)
        heard = await offer(served, "m", "slow", ttl=2.0)
        await heard.over.wait()
        assert heard.words == ["min_ttl"] and served.started == []
        await (await offer(served, "m", "slow", ttl=20.0)).over.wait()
        heard = await offer(served, "m", "slow", ttl=2.0)
        await heard.over.wait()
        assert heard.words == ["accepted", "ran"]


async def test_min_ttl_over_the_wire(home: Path) -> None:
    async with two(home) as (me, served):
        served.add_method("slow", served.methods.get("plain").handler, min_ttl=50.0)
        assert (await ended(await me.submit("worker", "slow", {}, ttl=20))).reason == "min_ttl"
        assert served.started == []


async def test_what_waits_for_a_place_is_ended_when_its_time_is_over(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes_peer.agent.durable.inbox.AT_ONCE", 1)
    async with worker(home) as served:
        first = await offer(served, "a", "held")
        await served.begun.wait()
        second = await offer(served, "b", ttl=0.1)
        await second.over.wait()
        assert second.words == ["accepted", "expired"]
        third = await offer(served, "c")
        served.gate.set()
        await asyncio.gather(first.over.wait(), third.over.wait())
        assert served.started == ["a", "c"]


async def test_an_agent_that_ends_begins_nothing_more(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes_peer.agent.durable.inbox.AT_ONCE", 1)
    async with planner(home) as me:
        async with worker(home) as served:
            served.drain_s = 10.0
            running = await me.submit("worker", "held", {}, message_id="a")
            await served.begun.wait()
            waiting = await me.submit("worker", "plain", {}, message_id="b")
            await waiting.accepted()
            life = served._running()
            closing = asyncio.ensure_future(served.aclose())
            await until(lambda: not life.running)
            served.gate.set()
            await closing
            assert served.started == ["a"]
        async with worker(home) as served:
            assert await running.result() == "waited" and await waiting.result() == "ran"
            assert served.started == ["b"]


async def test_what_was_on_its_way_to_an_agent_that_ends_is_kept(home: Path) -> None:
    async with worker(home) as served:
        served.drain_s = 10.0
        first = await offer(served, "a", "held")
        await served.begun.wait()
        life = served._running()
        closing = asyncio.ensure_future(served.aclose())
        await until(lambda: not life.running)
        second = await offer(served, "b")
        await until(lambda: second.words)
        assert [row.message_id for row in await taken(served, TakenState.ACCEPTED)] == ["b"]
        served.gate.set()
        await closing
        assert (first.words, second.words, served.started) == (["accepted", "waited"], ["accepted"], ["a"])


@pytest.mark.parametrize("loop_kind", ["asyncio"])  # uvloop shows nobody its timers
async def test_a_timer_that_is_not_needed_any_more_holds_nothing(home: Path, loop_kind: str) -> None:
    async with worker(home) as served:
        loop: Any = asyncio.get_running_loop()
        for i in range(30):
            await (await offer(served, f"m-{i}", ttl=3600.0)).over.wait()
        inbox, _ = await served._running().durable.open()
        held = [h for h in loop._scheduled if not h.cancelled() and "Work" in repr(h._args)]
        assert not held and not inbox.works


async def test_cancel_reaches_what_is_just_being_taken(home: Path) -> None:
    async with worker(home) as served:
        heard = await offer(served, "m", "held")
        inbox, _ = await served._running().durable.open()
        await asyncio.sleep(0)
        assert await inbox.cancel(ME, "m")
        await heard.over.wait()
        assert heard.words == ["accepted", "cancelled"]
        assert not await inbox.cancel(ME, "m") and not await inbox.cancel(b"q" * 32, "m")


async def test_cancel_of_what_waits_for_a_place(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes_peer.agent.durable.inbox.AT_ONCE", 1)
    async with worker(home) as served:
        first = await offer(served, "a", "held")
        await served.begun.wait()
        second = await offer(served, "b")
        await until(lambda: second.words)
        inbox, _ = await served._running().durable.open()
        assert await inbox.cancel(ME, "b")
        await second.over.wait()
        served.gate.set()
        await first.over.wait()
        third = await offer(served, "c")
        await third.over.wait()
        assert served.started == ["a", "c"] and inbox._running == 0


async def test_settle_forgets_only_what_is_done_and_ones_own(home: Path) -> None:
    async with worker(home) as served:
        await (await offer(served, "a")).over.wait()
        running = await offer(served, "b", "held")
        await until(lambda: len(served.started) == 2)
        inbox, _ = await served._running().durable.open()
        assert await inbox.settle(b"q" * 32, ["a", "b"]) == 0
        assert await inbox.settle(ME, ["a", "b", "c"]) == 1
        served.gate.set()
        await running.over.wait()
        assert [row.message_id for row in await taken(served)] == ["b"]


async def test_a_policy_that_is_taken_back_ends_what_runs_and_what_waits(home: Path, monkeypatch: Any) -> None:
    async with two(home) as (me, served):
        ticket = await me.submit("worker", "held", {})
        await served.begun.wait()
        inbox, _ = await served._running().durable.open()
        inbox.recheck()
        assert not ticket_done(me)
        monkeypatch.setattr(inbox, "may", lambda principal, name: False)
        served._running().durable.recheck()
        assert (await ended(ticket)).reason == "policy"


def ticket_done(me: Any) -> bool:
    return not me._running().durable.outbox.entries


async def test_the_sweep_forgets_after_the_retention_and_not_before(home: Path, clocks: Clocks) -> None:
    async with worker(home) as served:
        for i in range(5):
            await (await offer(served, f"m-{i}")).over.wait()
        inbox, _ = await served._running().durable.open()
        clocks.wall(86_400 * 3)  # a jump, not time that passed
        await inbox.sweep()
        assert len(await taken(served)) == 5
        inbox.clock._began += 86_400_000 * 2
        await inbox.sweep()
        assert await taken(served) == []


async def test_a_journal_that_fails_is_a_typed_refusal_and_calls_go_on(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        await (await me.submit("worker", "plain", {})).result()
        served._running().durable.journal._writer._stop(OSError("EIO"))
        heard = await offer(served, "m")
        await heard.over.wait()
        assert heard.words == ["journal"]
        assert await me.call("worker", "plain") == "ran"
        ticket = await me.submit("worker", "plain", {}, ttl=5)
        await asyncio.sleep(0.05)
        assert await ticket.state() == "waiting"
        await crash(served)
    async with planner(home) as me, worker(home) as served:
        assert await me.ticket(ticket.message_id).result() == "ran"


async def test_one_damaged_row_is_unknown_and_the_rest_runs(home: Path) -> None:
    """One bit of one row: that work is never run and never answered wrongly; the others go on."""
    from tests.journal.rig import raw

    async with planner(home) as me:
        async with worker(home) as served:
            tickets = [await me.submit("worker", "held_again", {}, message_id=f"m-{i}") for i in range(3)]
            await until(lambda: len(served.started) == 3)
            file = served._running().durable.path
            await crash(served)
        raw(file, "UPDATE hermes_taken SET payload = ? WHERE message_id = ?", b'{"x":1}', b"m-1")
        async with worker(home) as served:
            served.gate.set()
            assert [await tickets[i].result() for i in (0, 2)] == ["waited"] * 2
            assert (await ended(tickets[1])).reason == "outcome_unknown"
            assert served.started == ["m-0", "m-2"]
            status = served.status()["durable"]
            assert status["set_aside"] == 1 and "set aside" in status["problem"]


async def test_durable_work_takes_no_items_and_no_oversize(home: Path) -> None:
    async with worker(home) as served:
        heard = await offer(served, "m", payload=b'"' + b"x" * (1 << 20) + b'"')
        await heard.over.wait()
        assert heard.words == ["too_large"]


async def test_durable_events_return_once_they_are_on_the_other_disk(home: Path) -> None:
    async with two(home) as (me, served):
        got: list[Any] = []

        @served.event("noted")
        async def noted(x: int) -> None:
            await served.gate.wait()
            got.append(x)

        await me.emit("worker", "noted", {"x": 7}, durable=True)
        assert got == [] and [row.state for row in await taken(served)] == [TakenState.RUNNING]
        served.gate.set()
        await until(lambda: got == [7])
        with pytest.raises(CallError):
            await me.emit("worker", "no.such", {"x": 7}, durable=True)


async def test_a_failing_submit_of_a_handler_is_told(home: Path) -> None:
    async with two(home) as (me, served):
        served.broken = JournalError("disk full: somewhere else")
        error = await ended(await me.submit("worker", "breaks", {}))
        assert error.reason == "journal" and not error.retryable and len(served.started) == 1
        with pytest.raises(UsageError):
            me.ticket("x") and await me.ticket("x").result()


async def test_effects_are_there_once_whatever_attaches(home: Path) -> None:
    async with worker(home) as served:
        served.gate.set()
        all_ = [await offer(served, "m", "effect", b'{"k":"e"}') for _ in range(5)]
        for heard in all_:
            await heard.over.wait()
        assert await effects(served) == ["e"]
        await empty()
        assert await sent(served) == []
