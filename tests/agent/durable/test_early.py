"""Idempotent work begins before its acceptance is on the disk: what is told, and what is nobody's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes_peer import Request
from hermes_peer.agent.durable import early, store
from hermes_peer.agent.durable.early import may_begin_early
from hermes_peer.agent.methods import Method
from hermes_peer.errors import JournalError
from hermes_peer.journal.operations import Take
from hermes_peer.journal.values import Limits, TakenState
from hermes_peer.wire.messages import Envelope
from tests.agent.durable.rig import crash, empty, planner, taken, worker
from tests.agent.durable.test_acceptance import ROW
from tests.agent.durable.test_inbox import ME, offer
from tests.loops import until


async def commits(agent: Any) -> int:
    """How many there were, once all that was handed in is on the disk."""
    inbox, _ = await agent._running().durable.open()
    await inbox.journal.taken(ME, "nothing")
    return int(agent.status()["durable"]["commits"])


def counting(agent: Any) -> None:
    """`counted` gives another number each time; `slow` waits before that, and notes how it ended."""
    numbers = itertools.count(1)
    agent.ends = []
    agent.inside = 0

    @agent.method("counted", contract="idempotent")
    async def counted(request: Request, x: int = 0) -> int:
        agent.started.append(request.message_id)
        return next(numbers)

    @agent.method("slow", contract="idempotent")
    async def slow(request: Request, x: int = 0) -> int:
        agent.started.append(request.message_id)
        agent.begun.set()
        try:
            await agent.gate.wait()
        except asyncio.CancelledError:
            agent.ends.append("cancelled")
            raise
        agent.ends.append("done")
        return next(numbers)

    @agent.method("tidies", contract="idempotent")
    async def tidies(x: int = 0) -> None:
        agent.begun.set()
        agent.inside += 1
        try:
            await asyncio.Event().wait()
        finally:
            await agent.gate.wait()
            agent.inside -= 1

    @agent.method("gives_up", contract="idempotent")
    async def gives_up() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return next(numbers)

    @agent.method("steps", contract="idempotent")
    async def steps(request: Request) -> str:
        await request.progress("half", partial={"n": request.attempt})
        return "all"


@contextlib.asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Any]:
    """At the end nothing is in hand."""
    agent = worker(home)
    counting(agent)
    async with agent:
        yield agent
        inbox, _ = await agent._running().durable.open()
        await until(lambda: not inbox.works and not inbox._early.works and not inbox._running)


async def test_a_quick_outcome_shares_the_commit_of_its_acceptance(home: Path) -> None:
    async with serving(home) as served:
        before = await commits(served)
        heard = await offer(served, "m", "counted")
        await heard.over.wait()
        assert heard.words == ["accepted", 1]
        assert await commits(served) == before + 1
        (row,) = await taken(served)
        assert (row.state, row.attempts) == (TakenState.DONE, 1) and row.keep_until_ms > row.taken_ms


async def test_nothing_is_told_before_the_commit(home: Path) -> None:
    async with serving(home) as served:
        inbox, _ = await served._running().durable.open()
        transaction = await inbox.journal.begin()  # the writer is held up
        heard = await offer(served, "m", "counted")
        await until(lambda: served.started)
        for _ in range(20):
            await asyncio.sleep(0)
        assert heard.words == []
        await transaction.rollback()
        await heard.over.wait()
        assert heard.words == ["accepted", 1]


async def test_what_takes_longer_is_accepted_while_it_runs(home: Path) -> None:
    async with serving(home) as served:
        heard = await offer(served, "m", "slow")
        await until(lambda: heard.words)
        assert heard.words == ["accepted"]
        assert [row.state for row in await taken(served)] == [TakenState.RUNNING]
        served.gate.set()
        await heard.over.wait()
        assert heard.words == ["accepted", 1] and (await taken(served))[0].attempts == 1


async def test_a_known_id_has_its_stored_outcome_and_the_second_run_is_nobodys(home: Path) -> None:
    async with serving(home) as served:
        await (await offer(served, "m", "counted")).over.wait()
        heard = await offer(served, "m", "counted")  # sent again by somebody who does not say so
        await heard.over.wait()
        assert heard.words == ["accepted", 1] and served.started == ["m", "m"]
        assert len(await taken(served)) == 1


async def test_other_work_under_a_known_id_is_a_conflict_and_is_cancelled(home: Path) -> None:
    async with serving(home) as served:
        await (await offer(served, "m", "counted")).over.wait()
        heard = await offer(served, "m", "slow")
        await heard.over.wait()
        assert heard.words == ["conflict"]
        assert served.ends == ["cancelled"]
        again = await offer(served, "m", "counted", again=True)
        await again.over.wait()
        assert again.words == ["accepted", 1] and served.started == ["m", "m"]


async def test_a_second_one_of_what_runs_attaches(home: Path) -> None:
    async with serving(home) as served:
        one = await offer(served, "m", "slow")
        await until(lambda: one.words)
        two = await offer(served, "m", "slow")
        await until(lambda: two.words)
        served.gate.set()
        await asyncio.gather(one.over.wait(), two.over.wait())
        assert one.words == two.words == ["accepted", 1] and served.started == ["m"]


async def test_without_room_it_is_refused_and_its_place_is_free_again(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "LIMITS", Limits(rows_per_peer=1))
    monkeypatch.setattr(early, "RETRY_AFTER_S", 0.0)  # as if it were long ago that it was full
    agent = worker(home)
    counting(agent)
    async with agent:
        await (await offer(agent, "m", "counted")).over.wait()
        for n in range(70):  # more than there are places for handlers
            heard = await offer(agent, f"m-{n}", "slow")
            await heard.over.wait()
            assert heard.words == ["full"]
        assert agent.ends == ["cancelled"] * 70
        assert agent.status()["durable"]["in_hand"] == 0
        assert [row.message_id for row in await taken(agent)] == ["m"]


async def test_a_journal_that_fails_refuses_and_ends_the_run(home: Path, monkeypatch: Any) -> None:
    async with serving(home) as served:
        inbox, _ = await served._running().durable.open()
        commit = inbox.journal.commit

        def failing(*operations: Any) -> Any:
            async def fail() -> Any:
                raise JournalError("no")

            return fail()

        monkeypatch.setattr(inbox.journal, "commit", failing)
        quick, slow = await offer(served, "m", "counted"), await offer(served, "n", "slow")
        await asyncio.gather(quick.over.wait(), slow.over.wait())
        assert quick.words == slow.words == ["journal"]
        await until(lambda: served.ends == ["cancelled"])
        monkeypatch.setattr(inbox.journal, "commit", commit)
        again = await offer(served, "m", "counted", again=True)
        await again.over.wait()
        assert again.words == ["accepted", 2]


async def test_its_items_follow_the_acceptance(home: Path) -> None:
    async with serving(home) as served:
        heard = await offer(served, "m", "steps")
        await heard.over.wait()
        assert heard.words == ["accepted", "all"]
        (row,) = await taken(served)
        assert (row.state, row.next_item) == (TakenState.DONE, 1)


async def test_what_is_no_longer_allowed_ends_also_before_its_acceptance(home: Path, monkeypatch: Any) -> None:
    async with serving(home) as served:
        inbox, _ = await served._running().durable.open()
        transaction = await inbox.journal.begin()
        heard = await offer(served, "m", "slow")
        await served.begun.wait()
        monkeypatch.setattr(inbox, "may", lambda principal, name: False)
        inbox.recheck()
        await transaction.rollback()
        await heard.over.wait()
        assert heard.words == ["accepted", "policy"] and served.ends == ["cancelled"]


async def test_an_agent_that_ends_leaves_it_to_the_submitter(home: Path) -> None:
    async with planner(home) as me:
        agent = worker(home)
        counting(agent)
        async with agent:
            ticket = await me.submit("worker", "slow")
            await agent.begun.wait()
            await crash(agent)
        assert agent.ends == ["cancelled"]
        again = worker(home)
        counting(again)
        again.gate.set()
        async with again:
            assert await ticket.result() == 1
            await empty(me, again)


async def test_the_place_of_a_run_that_is_nobodys_is_free_when_it_has_ended(home: Path) -> None:
    async with serving(home) as served:
        await (await offer(served, "m", "counted")).over.wait()
        inbox, _ = await served._running().durable.open()
        heard = [await offer(served, "m", "tidies") for _ in range(5)]
        await served.begun.wait()
        await inbox.journal.taken(ME, "m")  # the verdict on the first has come
        for _ in range(20):
            await asyncio.sleep(0)
        assert served.inside == inbox._running == 1 and not any(h.words for h in heard)
        served.gate.set()
        for each in heard:
            await each.over.wait()
            assert each.words == ["conflict"]
        assert served.inside == inbox._running == 0


async def test_nobody_finds_a_run_that_is_not_taken(home: Path) -> None:
    async with serving(home) as served:
        await (await offer(served, "m", "counted")).over.wait()
        inbox, _ = await served._running().durable.open()
        transaction = await inbox.journal.begin()
        heard = await offer(served, "m", "counted")
        await until(lambda: len(served.started) == 2)
        items = inbox.resume(ME, "m", 0)
        reading = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        await transaction.rollback()
        assert (await reading).value == 1
        await heard.over.wait()
        assert heard.words == ["accepted", 1]


async def test_progress_of_a_run_that_is_not_taken_goes_nowhere(home: Path) -> None:
    async with serving(home) as served:
        complaints: list[Any] = []
        served._running().loop.set_exception_handler(lambda loop, context: complaints.append(context))
        await (await offer(served, "m", "counted")).over.wait()
        heard = await offer(served, "m", "steps")
        await heard.over.wait()
        gc.collect()
        await asyncio.sleep(0)
        assert heard.words == ["conflict"] and not complaints
        assert (await taken(served))[0].next_item == 0


async def test_items_of_an_early_run_are_not_logged_before_it_is_taken(home: Path) -> None:
    async with serving(home) as served:
        inbox, _ = await served._running().durable.open()
        other = replace(ROW, principal=ME, state=TakenState.RUNNING, attempts=1)  # which nobody here runs
        await inbox.journal.commit(Take(other))
        heard = await offer(served, "m", "steps")
        await heard.over.wait()
        assert heard.words == ["conflict"]
        (row,) = await taken(served)
        assert (row.next_item, row.state) == (0, TakenState.RUNNING)


async def test_what_a_journal_is_known_to_refuse_does_not_begin(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "LIMITS", Limits(rows_per_peer=1))
    async with serving(home) as served:
        await (await offer(served, "m", "counted")).over.wait()
        for n in range(5):
            heard = await offer(served, f"m-{n}", "counted")
            await heard.over.wait()
            assert heard.words == ["full"]
        assert served.started == ["m", "m-0"]  # the first one could not be known


async def test_refused_work_that_has_begun_goes_to_nobody_else(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(early, "RETRY_AFTER_S", 0.05)
    async with planner(home) as me:
        full, free = worker(home), worker(home, slot=2)
        for agent in (full, free):
            counting(agent)
            agent.gate.set()
        async with full:
            assert await (await me.submit("worker", "counted")).result() == 1  # the route leads to `full`
            inbox, _ = await full._running().durable.open()
            commit, refused = inbox.journal.commit, []

            def failing(*operations: Any) -> Any:
                if not refused and isinstance(operations[0], Take):
                    refused.append(operations[0])

                    async def fail() -> Any:
                        raise JournalError("no")

                    return fail()
                return commit(*operations)

            monkeypatch.setattr(inbox.journal, "commit", failing)
            async with free:
                assert await (await me.submit("worker", "counted")).result() == 3
                assert refused and len(full.started) == 3 and not free.started
                await empty(me, full, free)


async def test_a_handler_that_cancels_itself_and_returns_has_its_outcome(home: Path) -> None:
    async with serving(home) as served:
        heard = await offer(served, "m", "gives_up")
        await heard.over.wait()
        assert heard.words == ["accepted", 1]


@pytest.mark.parametrize(
    "more", [{"again": True}, {"own_id": True}, {"idempotency_key": "k"}, {"attempt": 2}, {"round": 1}]
)
def test_an_id_that_may_be_known_is_looked_up_first(more: dict[str, Any]) -> None:
    async def handler() -> None: ...

    method = Method("m", handler, contract="idempotent")
    assert may_begin_early(method, Envelope("request", "m", "id"))
    assert not may_begin_early(method, Envelope("request", "m", "id", **more))


@pytest.mark.parametrize("contract", [None, "transactional"])
def test_only_what_may_run_twice_begins_early(contract: str | None) -> None:
    async def handler() -> None: ...

    assert not may_begin_early(Method("m", handler, contract=contract), Envelope("request", "m", "id"))


async def test_a_submitter_says_that_it_sends_again(home: Path, monkeypatch: Any) -> None:
    async with planner(home) as me:
        agent = worker(home)
        counting(agent)
        async with agent:
            seen: list[bool] = []
            take = agent._running().durable.take

            def noted(contact: Any, session: Any, stream: Any, envelope: Envelope, *rest: Any) -> None:
                seen.append(envelope.again)
                take(contact, session, stream, envelope, *rest)

            monkeypatch.setattr(agent._running().durable, "take", noted)
            ticket = await me.submit("worker", "slow")
            await agent.begun.wait()
            await ticket.accepted()
            (contact,) = [c for c in agent._running().endpoint.contacts.values() if c.session]
            contact.endpoint.end_session(contact, contact.session.reason.__class__.LOST, "lost")
            await until(lambda: len(seen) == 2)
            agent.gate.set()
            assert await ticket.result() == 1
            assert seen == [False, True] and len(agent.started) == 1
            await empty(me, agent)
