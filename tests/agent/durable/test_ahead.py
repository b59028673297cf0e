"""A lone submission of an idempotent method leaves while it is stored: what is told, and what nobody may lose."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import Cancelled, HermesAgent, Request
from hermes_peer.agent.durable import ahead, lane
from hermes_peer.core.states import Reason
from hermes_peer.errors import JournalError, UsageError
from hermes_peer.journal import writer
from hermes_peer.journal.hold import Ask
from hermes_peer.journal.operations import Submit
from hermes_peer.journal.store import disk_full
from hermes_peer.journal.values import SentState, TakenState
from hermes_peer.wire.messages import Envelope
from tests.agent.durable.rig import crash, empty, left, planner, sent, taken, two, worker
from tests.loops import until


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


async def promised(me: HermesAgent, served: Any, method: str) -> None:
    """The same of a method that waits for the gate, and will do so again."""
    served.gate.set()
    await known(me, method)
    served.gate.clear()


@contextlib.asynccontextmanager
async def gone_ahead(me: HermesAgent, served: Any, method: str, payload: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """A submission whose handler has begun, and whose commit waits until this ends."""
    served.begun.clear()
    async with held(me):
        submitted = asyncio.create_task(me.submit("worker", method, payload))
        await served.begun.wait()
        assert not submitted.done()
        yield submitted


async def volatile(me: HermesAgent) -> None:
    """What was sent before this has arrived."""
    await me.call("worker", "hermes.status")


def outbox_of(me: HermesAgent) -> Any:
    return me._running().durable.outbox


def answered_of(me: HermesAgent) -> bool:
    """Whether the answer of a work that is in some lane is there."""
    return any(e.done.done() for its_lane in outbox_of(me)._lanes.values() for e in its_lane.entries.values())


async def test_it_runs_while_its_submission_is_stored_and_nothing_is_told_before(home: Path) -> None:
    async with two(home) as (me, served):
        await known(me, "add")
        async with gone_ahead(me, served, "add", {"a": 2, "b": 3}) as submitted:
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
    home: Path, method: str, options: dict[str, str]
) -> None:
    async with two(home) as (me, served):
        served.gate.set()
        await known(me, method)
        before = list(served.started)
        async with held(me):
            payload = {"a": 2, "b": 3} if method == "add" else {}
            submitted = asyncio.create_task(me.submit("worker", method, payload, **options))
            await volatile(me)
            await volatile(me)
            assert {row.message_id for row in await taken(served)} <= set(before) and served.started == before
        await (await submitted).result()
        assert len(served.started) == len(before) + 1
        await (await submitted).forget()


async def test_what_is_being_stored_is_not_overtaken(home: Path) -> None:
    async with two(home) as (me, served):
        served.gate.set()
        await known(me, "add", "plain")
        box = outbox_of(me)
        async with held(me):
            first = asyncio.create_task(me.submit("worker", "plain", {}))
            second = asyncio.create_task(me.submit("worker", "add", {"a": 1, "b": 1}))
            await volatile(me)
            await volatile(me)
            assert {row.message_id for row in await taken(served)} <= set(served.started) and len(served.started) == 2
            assert len(box.ahead.storing) == 2
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


class Some:
    """Whatever has these attributes, and may be held weakly."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__ |= attributes


def an_ahead(**gauges: Any) -> Any:
    known_gauges = Some(**{"stopped": "", "free": 1 << 30, "sent": {}, "taken": {}} | gauges)
    life = Some(loop=Some(time=lambda: 100.0))
    box = Some(life=life, flying=Counter({b"full": lane.WINDOW}), journal=Some(gauges=lambda: known_gauges))
    return ahead.Ahead(box)  # type: ignore[arg-type]


def heard(session: Any, method: str = "add", contract: str = "idempotent", **envelope: Any) -> tuple[Any, str]:
    """An outcome that came over this session."""
    return Some(session=session, envelope=Envelope(method=method, **envelope)), contract


def may(one: Any, session: Any, method: str = "add", peer: bytes = b"w", entries: Any = None, **envelope: Any) -> bool:
    its_lane = None if entries is None else Some(entries=entries)
    return bool(one.may(Some(peer=peer, method=method), Envelope(**envelope), session, its_lane))


ROOM_FOR_100 = ahead.ROOM + 100 * ahead.OUTCOME


@pytest.mark.parametrize(
    ("gauges", "expected"),
    [
        ({}, True),
        ({"stopped": "the disk failed"}, False),
        ({"free": ahead.ROOM - 1}, False),
        ({"free": ROOM_FOR_100, "sent": {SentState.WAITING: 50}, "taken": {TakenState.RUNNING: 50}}, True),
        ({"free": ROOM_FOR_100, "sent": {SentState.ACCEPTED: 50}, "taken": {TakenState.ACCEPTED: 51}}, False),
        ({"sent": {SentState.DEAD: ahead.ROWS}}, False),
        ({"sent": {SentState.DONE: 100_000}, "taken": {TakenState.DONE: 100_000}}, True),
    ],
    ids=str,
)
def test_only_what_the_journal_will_take(gauges: dict[str, Any], expected: bool) -> None:
    one, session = an_ahead(**gauges), Some()
    one.learn(*heard(session))
    assert may(one, session) is expected


def test_what_a_promise_covers() -> None:
    one, session = an_ahead(), Some()
    assert not may(one, session)
    one.learn(*heard(session))
    assert may(one, session)
    assert not may(one, session, "sub") and not may(one, Some())
    assert not may(one, session, own_id=True) and not may(one, session, idempotency_key="step")
    assert not may(one, session, peer=b"full")
    done, open_ = asyncio.Future(loop=asyncio.new_event_loop()), asyncio.Future(loop=asyncio.new_event_loop())
    done.set_result(None)
    assert may(one, session, entries={"m": Some(done=done)})
    assert not may(one, session, entries={"m": Some(done=done), "n": Some(done=open_)})
    done.get_loop().close()
    open_.get_loop().close()


@pytest.mark.parametrize("contract", ["", "transactional"])
def test_a_promise_that_is_taken_back(contract: str) -> None:
    one, session = an_ahead(), Some()
    one.learn(*heard(session))
    one.learn(*heard(session, contract=contract))
    assert not may(one, session)


@pytest.mark.parametrize("how", [{"again": True}, {"own_id": True}, {"idempotency_key": "step"}], ids=str)
def test_an_outcome_that_may_be_of_an_earlier_run_promises_nothing(how: dict[str, Any]) -> None:
    one, session = an_ahead(), Some()
    one.learn(*heard(session, **how))
    assert not may(one, session)


def test_promises_end_with_their_session_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST", 2)
    one, session = an_ahead(), Some()
    for method in ("a", "b", "c", "a"):  # what is known stays
        one.learn(*heard(session, method))
    assert [may(one, session, method) for method in ("a", "b", "c")] == [True, True, False]
    del session
    gc.collect()
    assert not one._idempotent


def refusing(me: HermesAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal has no room for new work, although it looked as if."""
    tables = outbox_of(me).journal._writer._store.tables

    def full(operation: Submit) -> None:
        raise disk_full("new work")

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
        async with gone_ahead(me, served, "held_again", {}) as submitted:
            if answered:
                await until(lambda: answered_of(me))
        with pytest.raises(JournalError, match=r"disk full.*had left by then: whether it runs is not known") as told:
            await submitted
        assert told.value.ran == "unknown"
        await until(lambda: not served._running().durable.inbox.works)  # cancelled, unless it had ended
        await until(lambda: not left(me) and not left(served))  # and forgotten
        box = outbox_of(me)
        assert not box.entries and not box.flying and not box.ahead.storing
        assert len(await sent(me)) == 1 and not await box.letters.page()
        assert not [r for r in caplog.records if r.name == "hermes_peer.work" and r.levelno >= logging.WARNING]


async def test_after_one_that_could_not_be_stored_none_leaves_ahead_for_a_while(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with planner(home) as me, worker(home) as served:
        await known(me, "add")
        refusing(me, monkeypatch)
        with pytest.raises(JournalError, match="had left"):
            await me.submit("worker", "add", {"a": 1, "b": 2})
        with pytest.raises(JournalError) as plain:
            await me.submit("worker", "add", {"a": 1, "b": 2})
        assert "had left" not in str(plain.value) and plain.value.ran == "no"
        await until(lambda: not left(served))


async def test_what_waits_for_a_place_has_not_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All streams of the session are taken: the submission is withdrawn before anybody has seen it."""
    async with planner(home) as me, worker(home) as served:
        await known(me, "add")
        (contact,) = [c for c in me._running().endpoint.contacts.values() if c.session is not None]
        assert contact.session is not None
        begun = len(served.started)
        calls: list[asyncio.Task[Any]] = []
        while not any(stream.owner and not stream.id for stream in contact.session.sender.unsent()):
            calls.append(asyncio.create_task(me.call("worker", "held", {}, ttl=60)))
            await asyncio.sleep(0)
        refusing(me, monkeypatch)
        with pytest.raises(JournalError) as plain:
            await me.submit("worker", "add", {"a": 1, "b": 2})
        assert "had left" not in str(plain.value) and plain.value.ran == "no"
        await until(lambda: not outbox_of(me).flying)
        served.gate.set()
        await asyncio.gather(*calls)
        await volatile(me)
        assert len(served.started) == begun + len(calls)


@pytest.mark.parametrize("stored", [True, False])
async def test_nobody_finds_it_before_it_is_stored(home: Path, monkeypatch: pytest.MonkeyPatch, stored: bool) -> None:
    """Whoever has heard its id meanwhile, from its handler say, waits for the commit or is told that there is none."""
    async with planner(home) as me, worker(home) as served:
        await known(me, "add")
        if not stored:
            refusing(me, monkeypatch)
        async with gone_ahead(me, served, "add", {"a": 2, "b": 3}) as submitted:
            ticket = me.ticket(served.started[-1])
            early = [asyncio.create_task(ticket.accepted()), asyncio.create_task(ticket.result())]
            await volatile(me)
            assert not any(task.done() for task in early)
        if stored:
            await submitted
            assert await asyncio.gather(*early) == [None, 5]
        else:
            with pytest.raises(JournalError):
                await submitted
            for task in early:
                with pytest.raises(UsageError, match="knows of no ticket"):
                    await task


async def test_one_that_is_stored_and_cancelled_in_one_turn_is_not_overtaken(home: Path) -> None:
    async with two(home) as (me, served):
        served.gate.set()
        await known(me, "add", "plain")
        box = outbox_of(me)
        first = asyncio.create_task(me.submit("worker", "plain", {}))
        while not box.ahead.storing:
            await asyncio.sleep(0)
        (pending,) = box.ahead.storing
        pending.result(5)  # in this turn of the loop
        first.cancel()
        answers: list[bool] = []
        real = box.ahead.may
        box.ahead.may = lambda *arguments: answers.append(real(*arguments)) or answers[-1]
        await (await asyncio.create_task(me.submit("worker", "add", {"a": 1, "b": 1}))).result()
        assert answers == [False]
        await until(lambda: len(served.started) == 4)


async def test_one_that_ended_in_the_turn_in_which_its_submitter_was_cancelled(home: Path) -> None:
    async with two(home) as (me, served):
        await known(me, "add")
        box = outbox_of(me)
        transaction: Any = await box.journal.begin()
        submitted = asyncio.create_task(me.submit("worker", "add", {"a": 2, "b": 3}))
        await until(lambda: answered_of(me))
        transaction._hold.put(Ask(None))
        box.journal.sent("").result(5)  # submission and outcome are stored, and the loop has not heard of it
        submitted.cancel()
        await empty(me, served)
        assert submitted.cancelled() and not box.entries and not box.ahead.storing


@pytest.mark.parametrize("patient", [True, False])
async def test_one_that_takes_its_time_to_end(home: Path, monkeypatch: pytest.MonkeyPatch, patient: bool) -> None:
    """It is waited for, so that it can be forgotten, but not for ever."""
    if not patient:
        monkeypatch.setattr(ahead, "END_S", 0.2)
    async with planner(home) as me, worker(home) as served:
        tidied, tidying = asyncio.Event(), asyncio.Event()

        @served.method("tidies", contract="idempotent")
        async def tidies() -> None:
            served.begun.set()
            try:
                await served.gate.wait()
            finally:
                tidying.set()
                await tidied.wait()

        served.gate.set()
        tidied.set()
        await known(me, "tidies")
        for event in (served.gate, served.begun, tidied, tidying):
            event.clear()
        refusing(me, monkeypatch)
        with pytest.raises(JournalError, match="had left"):
            await me.submit("worker", "tidies", {})
        await tidying.wait()
        await volatile(me)
        if not patient:
            await until(lambda: not outbox_of(me).flying)
        tidied.set()
        await until(lambda: left(served) == ({} if patient else {"taken done": 1}) and not outbox_of(me).flying)


async def test_what_has_not_left_as_a_whole_has_not_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large OPEN waits for credit when its commit fails: it is taken back, and never begun."""
    async with planner(home) as me, worker(home) as served:

        @served.method("sized", contract="idempotent")
        async def sized(text: str) -> int:
            served.started.append("sized")
            return len(text)

        await (await me.submit("worker", "sized", {"text": "x"})).result()
        refusing(me, monkeypatch)
        with pytest.raises(JournalError) as plain:
            await me.submit("worker", "sized", {"text": "x" * 1_000_000})
        await volatile(me)
        assert (plain.value.ran == "no") is (served.started == ["sized"])
        await until(lambda: not left(served) and not outbox_of(me).flying)


async def test_it_is_sent_once_until_it_is_stored(home: Path) -> None:
    """The process that had it dies, and the next has the method without a contract: it gets only what is stored."""
    async with planner(home) as me:
        async with worker(home) as served:
            served.gate.set()
            await known(me, "held_again")
            served.gate.clear()
            served.begun.clear()
            transaction = await outbox_of(me).journal.begin()
            submitted = asyncio.create_task(me.submit("worker", "held_again", {}))
            await served.begun.wait()
            await crash(served)
        for file in (home / "agents/worker/1").glob("journal.db*"):
            file.unlink()
        async with HermesAgent("worker", home=home, slot=1, drain_s=0.02) as other:
            runs: list[bool] = []

            @other.method("held_again")
            async def held_again(request: Request) -> str:
                runs.append(submitted.done())
                return "by the other"

            (entry,) = outbox_of(me)._lanes["worker"].entries.values()
            await until(lambda: entry.call is None and entry.next_try < asyncio.get_running_loop().time())
            outbox_of(me).wake_all()  # it is due
            await volatile(me)
            await volatile(me)
            assert not runs and entry.call is None
            await transaction.rollback()
            assert await (await submitted).result() == "by the other" and runs == [True]
            await until(lambda: not left(me))


async def test_a_ticket_by_an_id_that_was_heard_early_cancels_and_waits_for_the_acceptance(home: Path) -> None:
    async with two(home) as (me, served):
        await promised(me, served, "held_again")
        async with gone_ahead(me, served, "held_again", {}) as submitted:
            ticket = me.ticket(served.started[-1])
            cancelled = asyncio.create_task(ticket.cancel())
            await volatile(me)
            assert not cancelled.done()
        await cancelled
        with pytest.raises(Cancelled):
            await (await submitted).result()


async def test_one_commit_for_each_lone_call(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note that one has ended waits for the submission of the next."""
    monkeypatch.setattr(writer, "PATIENCE_S", 5.0)
    async with two(home) as (me, served):
        await (await me.submit("worker", "add", {"a": 1, "b": 2})).result()
        before, told, note = me.status()["durable"]["commits"], [], outbox_of(me).settling._note
        monkeypatch.setattr(outbox_of(me).settling, "_note", lambda ids: told.append(ids) or note(ids))
        for _ in range(20):
            await (await me.submit("worker", "add", {"a": 1, "b": 2})).result()
        assert me.status()["durable"]["commits"] - before <= 20 + len(told)
        await me.ticket(served.started[-1]).state()  # whoever asks is not kept waiting


async def test_an_old_look_up_is_no_reason_to_wait(home: Path) -> None:
    async with two(home) as (me, served):
        await known(me, "add")
        me._running().directory._fresh["worker"] = 0.0
        async with gone_ahead(me, served, "add", {"a": 2, "b": 3}) as submitted:
            pass
        assert await (await submitted).result() == 5


async def test_a_submitter_that_is_cancelled_leaves_its_work_in_order(home: Path) -> None:
    async with two(home) as (me, served):
        await known(me, "add")
        async with gone_ahead(me, served, "add", {"a": 2, "b": 3}) as submitted:
            submitted.cancel()
            await asyncio.wait([submitted])
            assert submitted.cancelled() and outbox_of(me).ahead.storing
        await empty(me, served)
        assert len(served.started) == 2 and not outbox_of(me).ahead.storing
        assert [row.state for row in await sent(me)] == [SentState.DONE] * 2


async def test_a_line_that_breaks_meanwhile_costs_nothing(home: Path) -> None:
    """The session ends while the submission is stored: it is sent again under the same id."""
    async with two(home) as (me, served):
        await promised(me, served, "held_again")
        async with gone_ahead(me, served, "held_again", {}) as submitted:
            (contact,) = [c for c in me._running().endpoint.contacts.values() if c.session is not None]
            me._running().endpoint.end_session(contact, Reason.LOST, "a test")
        ticket = await submitted
        served.gate.set()
        assert await ticket.result() == "waited" and served.started.count(ticket.message_id) == 1
