"""A lone submission of an idempotent method leaves while it is stored: what is told, and what nobody may lose."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_peer import HermesAgent
from hermes_peer.agent.durable import ahead, settling
from hermes_peer.core.states import Reason
from hermes_peer.errors import JournalError
from hermes_peer.journal.operations import Submit
from hermes_peer.journal.rules import refused
from hermes_peer.journal.values import Limits, SentState
from tests.agent.durable.rig import empty, left, planner, sent, taken, two, worker
from tests.loops import until

Begin = Callable[[], Awaitable[Any]]


@contextlib.asynccontextmanager
async def held(agent: HermesAgent) -> AsyncIterator[None]:
    """Its journal's writer does nothing else for so long."""
    inbox, _ = await agent._running().durable.open()
    transaction = await inbox.journal.begin()
    try:
        yield
    finally:
        await transaction.rollback()


async def known(me: HermesAgent, *methods: str) -> None:
    """The receiver has said what these methods promise, and nothing is on the way."""
    for method in methods:
        await (await me.submit("worker", method, {"a": 1, "b": 2} if method == "add" else {})).result()
    await until(lambda: not me.status()["durable"]["to_deliver"])


async def volatile(me: HermesAgent) -> None:
    """What was sent before this has arrived."""
    await me.call("worker", "hermes.status")


def outbox_of(me: HermesAgent) -> Any:
    return me._running().durable.outbox


async def test_it_runs_while_its_submission_is_stored_and_nothing_is_told_before(home: Path) -> None:
    async with two(home) as (me, served):
        await known(me, "add")
        served.begun.clear()
        async with held(me):
            submitted = asyncio.create_task(me.submit("worker", "add", {"a": 2, "b": 3}))
            await served.begun.wait()
            await volatile(me)
            assert not submitted.done()
        ticket = await submitted
        assert served.started[-1] == ticket.message_id and len(served.started) == 2
        assert await ticket.result() == 5
        (row,) = [row for row in await sent(me) if row.message_id == ticket.message_id]
        assert (row.state, row.attempts) == (SentState.DONE, 1)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("plain", {}),
        ("effect", {}),
        ("add", {"message_id": "mine"}),
        ("add", {"idempotency_key": "step"}),
    ],
)
async def test_what_must_not_run_twice_or_may_be_known_is_stored_first(
    home: Path, monkeypatch: pytest.MonkeyPatch, method: str, options: dict[str, str]
) -> None:
    async with two(home) as (me, served):
        served.gate.set()
        monkeypatch.setattr(settling, "BATCH_S", 0.5)  # nothing is forgotten meanwhile
        await known(me, method)
        before = len(served.started)
        async with held(me):
            payload = {"a": 2, "b": 3} if method == "add" else {}
            submitted = asyncio.create_task(me.submit("worker", method, payload, **options))
            await volatile(me)
            await volatile(me)
            assert len(await taken(served)) == len(served.started) == before
        await (await submitted).result()
        assert len(served.started) == before + 1
        await (await submitted).forget()


async def test_what_is_being_stored_is_not_overtaken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(home) as (me, served):
        monkeypatch.setattr(settling, "BATCH_S", 0.5)
        served.gate.set()
        await known(me, "add", "plain")
        box = outbox_of(me)
        async with held(me):
            first = asyncio.create_task(me.submit("worker", "plain", {}))
            second = asyncio.create_task(me.submit("worker", "add", {"a": 1, "b": 1}))
            await volatile(me)
            await volatile(me)
            assert len(await taken(served)) == len(served.started) == 2 and len(box.ahead.storing) == 2
        assert await (await first).result() == "ran" and await (await second).result() == 2
        assert not box.ahead.storing


async def test_what_is_on_the_way_is_not_overtaken(home: Path) -> None:
    async with two(home) as (me, served):
        await known(me, "add")
        served.begun.clear()
        slow = await me.submit("worker", "held", {})
        await served.begun.wait()
        async with held(me):
            third = asyncio.create_task(me.submit("worker", "add", {"a": 1, "b": 1}))
            await volatile(me)
            assert len(served.started) == 2
        assert await (await third).result() == 2
        served.gate.set()
        assert await slow.result() == "waited"


def may(gauges: Any = (), contract: str = "idempotent", row: Any = (), envelope: Any = ()) -> bool:
    """Whether it may, with these changes to what may."""
    known_gauges = SimpleNamespace(**{"stopped": "", "free": 1 << 30, "sent": {}} | dict(gauges))
    one: Any = ahead.Ahead(SimpleNamespace(), SimpleNamespace(gauges=lambda: known_gauges))  # type: ignore[arg-type]
    one.learn(b"w", "add", contract)
    the_row = SimpleNamespace(**{"peer": b"w", "method": "add"} | dict(row))
    the_envelope = SimpleNamespace(**{"own_id": False, "idempotency_key": ""} | dict(envelope))
    return bool(one.may(the_row, the_envelope, None))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"contract": ""}, False),
        ({"contract": "transactional"}, False),
        ({"row": {"peer": b"x"}}, False),
        ({"row": {"method": "sub"}}, False),
        ({"envelope": {"own_id": True}}, False),
        ({"envelope": {"idempotency_key": "step"}}, False),
        ({"gauges": {"stopped": "the disk failed"}}, False),
        ({"gauges": {"free": ahead.ROOM - 1}}, False),
        ({"gauges": {"sent": {SentState.DEAD: ahead.ROWS}}}, False),
        ({"gauges": {"sent": {SentState.DONE: ahead.ROWS}}}, True),
    ],
    ids=str,
)
def test_only_what_the_journal_will_take(changes: dict[str, Any], expected: bool) -> None:
    assert may(**changes) is expected


def test_the_bounds_lie_within_the_journals_own() -> None:
    limits = Limits()
    assert refused(0, ahead.ROWS, limits) is None
    assert 2 * limits.ballast + limits.body < ahead.ROOM


async def test_a_promise_that_is_taken_back_and_too_many_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    one: Any = ahead.Ahead(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(ahead, "MOST", 2)
    for method in ("a", "b"):
        one.learn(b"w", method, "idempotent")
    one.learn(b"w", "a", "")
    assert one._idempotent == {(b"w", "b")}
    for method in ("c", "d"):
        one.learn(b"w", method, "idempotent")
    assert one._idempotent == {(b"w", "d")}


def refusing(me: HermesAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal has no room for new work, although it looked as if."""
    tables = outbox_of(me).journal._writer._store.tables

    def full(operation: Submit) -> None:
        raise JournalError("disk full: nothing was stored")

    monkeypatch.setitem(tables._do, Submit, full)


@pytest.mark.parametrize("answered", [False, True])
async def test_a_commit_that_fails_is_told_and_the_work_is_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answered: bool
) -> None:
    """Whether its answer has come by then or not: the submitter is told the same, and holds nothing of it."""
    async with planner(home) as me, worker(home) as served:
        served.gate.set()
        await known(me, "held_again")
        served.begun.clear()
        if not answered:
            served.gate.clear()
        refusing(me, monkeypatch)
        async with held(me):
            submitted = asyncio.create_task(me.submit("worker", "held_again", {}))
            await served.begun.wait()
            if answered:
                await until(lambda: any(entry.done.done() for entry in outbox_of(me).entries.values()))
        with pytest.raises(JournalError, match=r"disk full.*had left by then: whether it runs is not known"):
            await submitted
        await until(lambda: not served._running().durable.inbox.works)  # cancelled, unless it had ended
        await until(lambda: not left(me))
        box = outbox_of(me)
        assert not box.entries and not box.flying and not box.ahead.storing
        assert len(await sent(me)) == 1 and not await box.dead()
        assert not [r for r in caplog.records if r.name == "hermes_peer.work" and r.levelno >= logging.WARNING]


async def test_a_submitter_that_is_cancelled_leaves_its_work_in_order(home: Path) -> None:
    async with two(home) as (me, served):
        await known(me, "add")
        served.begun.clear()
        async with held(me):
            submitted = asyncio.create_task(me.submit("worker", "add", {"a": 2, "b": 3}))
            await served.begun.wait()
            submitted.cancel()
            await asyncio.wait([submitted])
            assert submitted.cancelled() and outbox_of(me).ahead.storing
        await empty(me, served)
        assert len(served.started) == 2 and not outbox_of(me).ahead.storing
        assert [row.state for row in await sent(me)] == [SentState.DONE] * 2


async def test_a_line_that_breaks_meanwhile_costs_nothing(home: Path) -> None:
    """The session ends while the submission is stored: it is sent again under the same id."""
    async with two(home) as (me, served):
        served.gate.set()
        await known(me, "held_again")
        served.gate.clear()
        served.begun.clear()
        async with held(me):
            submitted = asyncio.create_task(me.submit("worker", "held_again", {}))
            await served.begun.wait()
            (contact,) = [c for c in me._running().endpoint.contacts.values() if c.session is not None]
            me._running().endpoint.end_session(contact, Reason.LOST, "a test")
        ticket = await submitted
        served.gate.set()
        assert await ticket.result() == "waited" and served.started.count(ticket.message_id) == 1
