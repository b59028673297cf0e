"""One work: handlers of every shape, items and their log, ends that cannot be stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, Final, HermesAgent, Request
from hermes_peer.agent.durable import work as work_file
from hermes_peer.errors import JournalError
from hermes_peer.journal import operations as op
from tests.agent.durable.rig import crash, ended, planner, quick_retries, two, until_error, worker
from tests.loops import until


async def read(ticket: Any, offset: int | None = None) -> list[Any]:
    return [item async for item in ticket.items(offset)]


async def test_every_shape_of_handler(home: Path) -> None:
    async with two(home) as (me, served):

        @served.method("thread")
        def thread(n: int) -> int:
            return n + 1

        @served.method("thread.stream")
        def thread_stream(n: int) -> Iterator[Any]:
            yield from range(n)
            yield Final("end")

        @served.method("bytes")
        async def raw(n: int) -> AsyncIterator[Any]:
            for i in range(n):
                yield bytes([i])

        assert await (await me.submit("worker", "thread", {"n": 1})).result() == 2
        ticket = await me.submit("worker", "thread.stream", {"n": 700})
        assert await read(ticket) == list(range(700)) and await ticket.result() == "end"
        ticket = await me.submit("worker", "bytes", {"n": 3})
        assert await read(ticket) == [b"\0", b"\1", b"\2"] and await ticket.result() is None


async def test_progress_is_an_item(home: Path) -> None:
    async with two(home) as (me, served):

        @served.method("slow")
        async def slow(request: Request) -> str:
            await request.progress("working", tokens_used=3)
            return "done"

        ticket = await me.submit("worker", "slow", {})
        assert await ticket.result() == "done"
        (item,) = await read(ticket)
        assert item["progress"]["state"] == "working"


@pytest.mark.parametrize(
    ("value", "reason"), [(object(), "bad_item"), ("x" * (1 << 20), "item_too_large"), (float("nan"), "bad_item")]
)
async def test_an_item_that_cannot_be_one(home: Path, value: Any, reason: str) -> None:
    async with two(home) as (me, served):

        @served.method("odd")
        async def odd() -> AsyncIterator[Any]:
            yield 1
            yield value

        ticket = await me.submit("worker", "odd", {})
        assert (await ended(ticket)).reason == reason
        got, error = await until_error(ticket)
        assert got == [1] and "item 1" in error.message


@pytest.mark.parametrize(("value", "reason"), [(object(), "bad_result"), ("x" * (1 << 20), "bad_result")])
async def test_a_result_that_cannot_be_one(home: Path, value: Any, reason: str) -> None:
    async with two(home) as (me, served):
        served.add_method("odd", lambda: value)
        assert (await ended(await me.submit("worker", "odd", {}))).reason == reason


async def test_details_that_cannot_be_sent(home: Path) -> None:
    async with two(home) as (me, served):
        served.broken = CallError("odd", "\ud800", details=object())
        assert (await ended(await me.submit("worker", "breaks", {}))).reason == "odd"


async def test_items_before_a_failure_are_read_and_then_the_failure(home: Path) -> None:
    async with two(home) as (me, served):

        @served.method("breaks.late")
        async def breaks_late() -> AsyncIterator[Any]:
            for i in range(100):
                yield i
            raise CallError("nope", "after a hundred", retryable=True)

        ticket = await me.submit("worker", "breaks.late", {})
        assert (await ended(ticket)).reason == "nope"
        got, error = await until_error(ticket)
        assert got == list(range(100)) and error.message == "after a hundred"


async def test_a_stream_without_contract_is_not_tried_again_once_it_was_read(home: Path) -> None:
    """A second run's items behind those of the first would be a splice."""
    async with two(home) as (me, served):
        runs = []

        @served.method("breaks.late")
        async def breaks_late() -> AsyncIterator[Any]:
            runs.append(1)
            yield 1
            raise CallError("nope", "later", retryable=True)

        ticket = await me.submit("worker", "breaks.late", {})
        assert not (await ended(ticket)).retryable and len(runs) == 1
        me._running().durable.outbox.consumed_all(ticket.message_id)


async def test_a_replayed_stream_is_read_from_its_beginning(home: Path) -> None:
    """What the failed run had yielded and what the new one yields are two streams."""
    async with two(home) as (me, served):
        runs: list[int] = []

        @served.method("breaks.late")
        async def breaks_late() -> AsyncIterator[Any]:
            runs.append(1)
            for i in range(100):
                yield [len(runs), i]
            if len(runs) == 1:
                raise CallError("nope", "broken")

        ticket = await me.submit("worker", "breaks.late", {})
        got, _ = await until_error(ticket)
        assert got == [[1, i] for i in range(100)]
        await me._running().durable.outbox.letters.replay(ticket.message_id, "operator")  # type: ignore[union-attr]
        assert await read(ticket) == [[2, i] for i in range(100)]


async def test_a_reader_goes_on_over_a_retry_of_an_idempotent_stream(home: Path) -> None:
    async with two(home) as (me, served):
        runs = []

        @served.method("breaks.once", contract="idempotent")
        async def breaks_once() -> AsyncIterator[Any]:
            runs.append(1)
            for i in range(50):
                if i == 20 and len(runs) == 1:
                    raise CallError("later", "not yet", retryable=True)
                yield i

        ticket = await me.submit("worker", "breaks.once", {})
        assert await read(ticket) == list(range(50)) and len(runs) == 2


async def test_a_second_run_goes_on_from_emitted(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "words", {"n": 40, "stop": 25})
        async with worker(home) as served:
            await until(lambda: hasattr(served, "halted"))
            await until(lambda: next(iter(served._running().durable.inbox.works.values())).logged == 25)
            await crash(served)
        async with worker(home) as served:
            served.gate.set()
            assert [x["i"] for x in await read(ticket)] == list(range(40))
            assert served.seen == [(2, 25)]


def repeating(served: HermesAgent, values: list[Any], gate: asyncio.Event, stop: int = 10) -> list[int]:
    at: list[int] = []

    @served.method("repeats", contract="idempotent")
    async def repeats() -> AsyncIterator[Any]:
        for i, value in enumerate(values):
            at.append(i)
            if i == stop:
                await gate.wait()
            yield value

    return at


async def test_a_run_that_yields_everything_again_is_compared(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "repeats", {})
        at = repeating(served := worker(home), list(range(20)), asyncio.Event())
        async with served:
            await until(lambda: 10 in at and works(served)[0].logged == 10)
            await crash(served)
        gate = asyncio.Event()
        gate.set()
        repeating(served := worker(home), list(range(20)), gate)
        async with served:
            assert await read(ticket) == list(range(20))


def works(agent: HermesAgent) -> list[Any]:
    inbox = agent._running().durable.inbox
    return list(inbox.works.values()) if inbox is not None else []


async def test_other_items_in_the_second_run_end_the_stream_with_a_typed_error(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "repeats", {})
        at = repeating(served := worker(home), list(range(20)), asyncio.Event())
        async with served:
            await until(lambda: 10 in at and works(served)[0].logged == 10)
            await crash(served)
        gate = asyncio.Event()
        gate.set()
        repeating(served := worker(home), [0, 1, 2, "other", *range(4, 20)], gate)
        async with served:
            got, error = await until_error(ticket)
            assert error.reason == "other_items" and got == list(range(10))
            assert "request.emitted" in error.message


async def test_progress_of_a_second_run_is_no_other_item(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "both", {})

        def both(served: Any, gate: asyncio.Event, tokens: int) -> None:
            @served.method("both", contract="idempotent")
            async def handler(request: Request) -> AsyncIterator[Any]:
                for i in range(6):
                    await request.progress("on", tokens_used=tokens + i)
                    if i == 3:
                        await gate.wait()
                    yield i

        both(served := worker(home), asyncio.Event(), 0)
        async with served:
            await until(lambda: works(served) and works(served)[0].logged == 7)
            await crash(served)
        gate = asyncio.Event()
        gate.set()
        both(served := worker(home), gate, 100)
        async with served:
            assert [item for item in await read(ticket) if isinstance(item, int)] == list(range(6))


async def test_an_outcome_that_cannot_be_stored_is_tried_again(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(work_file, "AGAIN_S", 0.01)
    async with two(home) as (me, served):
        inbox, _ = await served._running().durable.open()
        real, failed = inbox.journal.commit, []

        async def failing() -> Any:
            raise JournalError("disk full: for a moment")

        def commit(*operations: Any) -> Any:
            if isinstance(operations[0], op.Finish) and len(failed) < 3:
                failed.append(1)
                return failing()
            return real(*operations)

        monkeypatch.setattr(inbox.journal, "commit", commit)
        assert await (await me.submit("worker", "plain", {})).result() == "ran"
        assert len(failed) == 3 and len(served.started) == 1


async def test_an_outcome_that_a_stopped_journal_cannot_store_is_not_sent(home: Path, caplog: Any) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            ticket = await me.submit("worker", "held", {})
            await served.begun.wait()
            served._running().durable.journal._writer._stop(OSError("EIO"))
            served.gate.set()
            await until(lambda: not works(served))
            assert await ticket.state() in ("waiting", "accepted")
            await crash(served)
        async with worker(home) as served:
            assert (await ended(ticket)).reason == "outcome_unknown"
            assert served.started == []
    caplog.clear()


async def test_a_handler_that_cancels_itself_ends(home: Path) -> None:
    async with two(home) as (me, served):

        @served.method("selfish")
        async def selfish() -> None:
            raise asyncio.CancelledError

        assert (await ended(await me.submit("worker", "selfish", {}))).reason == "internal"


async def test_a_stray_exception_tells_a_reference_and_nothing_else(home: Path, caplog: Any) -> None:
    async with two(home) as (me, served):
        served.broken = ValueError("a secret")
        error = await ended(await me.submit("worker", "breaks", {}))
        assert error.reason == "internal" and "secret" not in error.message
        assert error.message.split()[-1] in caplog.text
    caplog.clear()


async def test_items_of_one_turn_share_a_commit(home: Path) -> None:
    async with two(home) as (me, served):
        await (await me.submit("worker", "plain", {})).result()
        before = served.status()["durable"]["commits"]
        ticket = await me.submit("worker", "words", {"n": 2000})
        assert len(await read(ticket)) == 2000
        assert served.status()["durable"]["commits"] - before < 400


async def test_spacing_of_tests_is_quick(home: Path) -> None:
    with quick_retries(0.01):
        async with two(home) as (me, served):
            served.fails = 4
            assert await (await me.submit("worker", "flaky", {})).result() == 5
