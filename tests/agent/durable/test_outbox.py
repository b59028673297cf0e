"""Submitting: kept before it returns, attached to what is there, gone on with after a restart; dead letters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_peer import CallError, HermesAgent
from hermes_peer.agent.durable import outbox, store
from hermes_peer.agent.durable.rows import now_ms
from hermes_peer.errors import DeadlineExceeded, JournalError, UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal.values import Limits, Sent, SentState
from hermes_peer.wire.messages import Envelope
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


async def test_submit_returns_after_the_local_commit_with_nobody_there(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "add", {"a": 1, "b": 2})
        assert await ticket.state() == "waiting"
        (row,) = await sent(me)
        assert (row.message_id, row.state, row.payload) == (ticket.message_id, SentState.WAITING, b'{"a":1,"b":2}')
        async with worker(home) as served:
            assert await ticket.result() == 3
            assert await ticket.state() == "done"
            await empty(me, served)


async def test_the_same_id_attaches_in_flight_done_and_after_a_restart(home: Path) -> None:
    async with worker(home) as served:
        async with planner(home) as me:
            first = await me.submit("worker", "held_again", {}, message_id="m-1")
            await served.begun.wait()
            second = await me.submit("worker", "held_again", {}, message_id="m-1")
            served.gate.set()
            assert [await first.result(), await second.result()] == ["waited"] * 2
            assert await (await me.submit("worker", "held_again", {}, message_id="m-1")).result() == "waited"
            await empty(me, served)
            with pytest.raises(UsageError, match="other work"):
                await me.submit("worker", "held_again", {"x": 1}, message_id="m-1")
        async with planner(home) as me:
            assert await (await me.submit("worker", "held_again", {}, message_id="m-1")).result() == "waited"
        assert served.started == ["m-1"]


async def test_the_same_key_attaches_in_flight_done_and_after_a_restart(home: Path) -> None:
    async with worker(home) as served:
        async with planner(home) as me:
            first = await me.submit("worker", "held_again", {}, idempotency_key="task-1/step-2")
            await served.begun.wait()
            second = await me.submit("worker", "held_again", {}, idempotency_key="task-1/step-2")
            served.gate.set()
            assert [await first.result(), await second.result()] == ["waited"] * 2
            await empty(me, served)  # the receiver has forgotten it, the submitter has not
            assert await (await me.submit("worker", "held_again", {}, idempotency_key="task-1/step-2")).result()
            with pytest.raises(UsageError, match="other work"):
                await me.submit("worker", "held_again", {"x": 1}, idempotency_key="task-1/step-2")
        async with planner(home) as me:
            again = await me.submit("worker", "held_again", {}, idempotency_key="task-1/step-2")
            assert again.message_id == first.message_id and await again.result() == "waited"
            other = await me.submit("worker", "add", {"a": 1, "b": 1}, idempotency_key="task-1/step-2")
            assert await other.result() == 2  # a key belongs to its method
        assert len(served.started) == 2


async def test_a_key_holds_under_two_ids_of_the_applications_own(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        one = await me.submit("worker", "words", {"n": 3}, message_id="a", idempotency_key="k")
        assert await one.result() == {"n": 3}
        two = await me.submit("worker", "words", {"n": 3}, message_id="b", idempotency_key="k")
        assert await two.result() == {"n": 3}
        assert [x["i"] async for x in two.items()] == [0, 1, 2]
        assert served.started == ["a"]
        error = await ended(await me.submit("worker", "words", {"n": 4}, message_id="c", idempotency_key="k"))
        assert error.reason == "conflict"


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": float("nan")},
        {"ttl": float("inf")},
        {"ttl": "30"},
        {"ttl": True},
        {"message_id": "x" * 129},
        {"message_id": "ü"},
        {"idempotency_key": "x" * 129},
        {"idempotency_key": 7},
        {"trace_id": 5},
        {"payload": {"x": "y" * (1 << 20)}},
        {"payload": {"x": float("nan")}},
        {"payload": {"x": 1j}},
        {"payload": [1, 2]},
        {"method": "No Method"},
        {"method": 3},
        {"target": ""},
        {"target": "no name"},
        {"target": "hermes://:"},
    ],
    ids=str,
)
async def test_misuse_is_told_at_once_and_leaves_nothing(home: Path, options: dict[str, Any]) -> None:
    async with planner(home) as me:
        with pytest.raises(UsageError):
            await me.submit(**({"target": "worker", "method": "add", "payload": {}} | options))
        assert await sent(me) == []


@case("HPC-036")
@pytest.mark.parametrize("ttl", [0, -1])
async def test_no_time_left_is_refused(home: Path, ttl: float) -> None:
    async with planner(home) as me:
        with pytest.raises(DeadlineExceeded):
            await me.submit("worker", "add", {}, ttl=ttl)
        assert (await me.submit("worker", "add", {}, ttl=1e12)).message_id
        (row,) = await sent(me)
        assert row.expires_ms - row.created_ms == 30 * 86_400_000


async def test_a_caller_that_leaves_while_it_is_stored_leaves_work_that_is_delivered(home: Path) -> None:
    async with two(home) as (me, served):
        await (await me.submit("worker", "plain", {})).result()
        task = asyncio.ensure_future(me.submit("worker", "plain", {}, message_id="left"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: "left" in served.started)


async def test_a_new_process_goes_on_with_what_was_submitted(home: Path) -> None:
    async with planner(home) as me:
        tickets = [await me.submit("worker", "plain", {}, message_id=f"m-{i}") for i in range(20)]
    async with planner(home) as me, worker(home) as served:
        assert [await me.ticket(t.message_id).result() for t in tickets] == ["ran"] * 20
        assert served.started == [f"m-{i}" for i in range(20)]
        await empty(me, served)


async def test_a_restart_keeps_attempts_and_the_pause(home: Path) -> None:
    async with worker(home) as served:
        served.fails = 2
        async with planner(home) as me:
            ticket = await me.submit("worker", "flaky", {"after": 20})
            await until(lambda: served.started)
            await until(lambda: me._running().durable.outbox.entries[ticket.message_id].next_try > 15)  # type: ignore[union-attr]
            (row,) = await until_rows(me)
            assert row.attempts == 1 and row.next_try_ms > now_ms() + 10_000
        async with planner(home) as me:
            _, box = await me._running().durable.open()
            entry = box.entries[ticket.message_id]
            assert entry.envelope.attempt == 1 and entry.next_try - box.loop.time() > 5
            assert entry.call is None


async def until_rows(me: HermesAgent) -> list[Sent]:
    while not (rows := [row for row in await sent(me) if row.next_try_ms > now_ms()]):
        await asyncio.sleep(0.005)
    return rows


async def test_a_clock_that_was_set_back_gives_no_more_time_and_no_endless_pause(home: Path, clocks: Clocks) -> None:
    async with planner(home) as me:
        await me.submit("worker", "plain", {}, ttl=100, message_id="m")
        _, box = await me._running().durable.open()
        await box.journal.commit(*(op.Attempt("m", now_ms()) for _ in range(3)), op.Postpone("m", now_ms() + 5_000))
    clocks.wall(-86_400)
    async with planner(home) as me:
        _, box = await me._running().durable.open()
        entry = box.entries["m"]
        assert 90 < entry.expires - box.loop.time() <= 100
        assert entry.next_try - box.loop.time() <= 45
        assert entry.envelope.attempt == 3 and entry.blind


async def test_a_journal_that_cannot_store_an_end_asks_for_it_again(home: Path, monkeypatch: Any) -> None:
    async with two(home) as (me, served):
        _, box = await me._running().durable.open()
        journal, told = box.journal, []
        real = journal.commit

        async def failing() -> Any:
            raise JournalError("disk full: for a moment")

        def commit(*operations: Any, **options: Any) -> Any:
            if isinstance(operations[0], op.MarkDone) and not told:
                told.append(operations[0])
                return failing()
            return real(*operations, **options)

        monkeypatch.setattr(journal, "commit", commit)
        with quick_retries():
            assert await (await me.submit("worker", "plain", {})).result() == "ran"
        assert told and len(served.started) == 1


async def test_a_full_outbox_is_typed_and_calls_go_on(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "LIMITS", Limits(rows_per_peer=3))
    async with planner(home) as me, worker(home):
        for _ in range(3):
            await me.submit("nobody", "add", {})
        with pytest.raises(CallError) as full:
            await me.submit("nobody", "add", {})
        assert (full.value.reason, full.value.retryable) == ("outbox_full", True)
        assert await me.call("worker", "plain") == "ran"


async def test_a_full_disk_is_typed_and_calls_go_on(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "LIMITS", Limits(size=1 << 20, ballast=0))
    async with planner(home) as me, worker(home):
        many = [me.submit("nobody", "add", {"x": "y" * 100_000}) for _ in range(40)]
        ends = await asyncio.gather(*many, return_exceptions=True)
        assert any(isinstance(end, JournalError) and "disk full" in str(end) for end in ends)
        assert not isinstance(ends[0], BaseException)
        assert (await me.call("worker", "hermes.ping"))["agent"] == "worker"
        assert await me.call("worker", "plain") == "ran"


async def test_a_stopped_journal_is_told_to_everybody_and_calls_go_on(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        ticket = await me.submit("worker", "held", {})
        other = await me.submit("nobody", "held", {})
        await served.begun.wait()
        me._running().durable.journal._writer._stop(OSError("EIO"))  # type: ignore[union-attr]
        waiting = asyncio.gather(ticket.result(), other.result(), return_exceptions=True)
        served.gate.set()
        answered, lost = await waiting
        assert answered == "waited"  # it came; the receiver keeps it for the next process
        assert isinstance(lost, JournalError) and "stopped" in str(lost)
        with pytest.raises(JournalError, match="stopped"):
            await me.submit("worker", "plain", {})
        assert "stopped" in me.status()["durable"]["problem"]
        assert await me.call("worker", "plain") == "ran"


async def test_a_batch_shares_its_commits(home: Path) -> None:
    async with two(home) as (me, served):
        assert await (await me.submit("worker", "add", {"a": 0, "b": 0})).result() == 0
        before = [agent.status()["durable"]["commits"] for agent in (me, served)]
        tickets = await asyncio.gather(*(me.submit("worker", "add", {"a": i, "b": 1}) for i in range(300)))
        assert sum(await asyncio.gather(*(t.result() for t in tickets))) == 300 * 301 // 2
        after = [agent.status()["durable"]["commits"] for agent in (me, served)]
        assert all(b - a < 150 for a, b in zip(before, after, strict=True)), (before, after)


async def test_a_journal_restored_from_a_copy_sends_nothing_by_itself(home: Path) -> None:
    async with planner(home) as me:
        await me.submit("worker", "plain", {}, message_id="m")
        file = me._running().durable.path
    kept = file.read_bytes()
    async with planner(home) as me, worker(home) as served:
        assert await me.ticket("m").result() == "ran"
        await empty(me, served)
    file.write_bytes(kept)
    async with planner(home) as me, worker(home) as served:
        assert "older" in me.status()["durable"]["problem"]
        error = await ended(me.ticket("m"))
        assert error.reason == "outcome_unknown" and "replay" in error.message
        assert served.started == []
        _, box = await me._running().durable.open()
        await box.letters.replay("m", "operator")
        assert await me.ticket("m").result() == "ran"


async def test_effects_of_the_same_submission_twice_are_one(home: Path) -> None:
    async with two(home) as (me, served):
        served.gate.set()
        tickets = await asyncio.gather(*(me.submit("worker", "effect", {"k": "x"}, message_id="m") for _ in range(10)))
        assert {await ticket.result() for ticket in tickets} == {"stored"}
        assert await effects(served) == ["x"]


async def test_a_crash_of_the_submitter_between_send_and_answer_attaches(home: Path) -> None:
    async with worker(home) as served:
        async with planner(home) as me:
            await me.submit("worker", "held", {}, message_id="m")
            await served.begun.wait()
            await crash(me)
        served.gate.set()
        async with planner(home) as me:
            assert await me.ticket("m").result() == "waited"
            await empty(me, served)
        assert served.started == ["m"]


def test_the_stored_envelope_is_what_is_sent() -> None:
    envelope = Envelope("request", "add", "m", 5.0, delivery="durable", idempotency_key="k")
    assert outbox._envelope(msgspec.json.encode(envelope)) == envelope
