"""After a crash of the called side: what the contracts say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.agent.durable import inbox as inbox_file
from hermes_peer.errors import OutcomeUnknown
from hermes_peer.journal.values import TakenState
from tests.agent.durable.rig import Clocks, crash, effects, empty, ended, planner, taken, worker
from tests.loops import case, until


async def test_without_a_contract_it_is_started_once_and_its_outcome_is_unknown(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "held", {})
        async with worker(home) as served:
            await served.begun.wait()
            await crash(served)
        async with worker(home) as served:
            error = await ended(ticket)
            assert isinstance(error, OutcomeUnknown) and "no contract" in error.message
            assert served.started == []
            await empty(me, served)


async def test_an_idempotent_method_runs_again_with_its_attempt_counted(home: Path) -> None:
    async with planner(home) as me:
        ticket = await me.submit("worker", "held_again", {})
        for _ in range(2):
            async with worker(home) as served:
                await served.begun.wait()
                await crash(served)
        async with worker(home) as served:
            served.gate.set()
            assert await ticket.result() == "waited"
            assert served.started == [ticket.message_id] and served.seen == [(3, 0)]
            await empty(me, served)


@case("HPC-012")
async def test_what_was_accepted_and_not_begun_runs_whatever_its_contract(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(inbox_file, "AT_ONCE", 1)
    async with planner(home) as me:
        async with worker(home) as served:
            first = await me.submit("worker", "held", {})
            await served.begun.wait()
            waiting = [await me.submit("worker", "plain", {}, message_id=f"m-{i}") for i in range(5)]
            for ticket in waiting:
                await ticket.accepted()
            await crash(served)
        async with worker(home) as served:
            assert [await ticket.result() for ticket in waiting] == ["ran"] * 5
            assert served.started == [f"m-{i}" for i in range(5)]
            assert isinstance(await ended(first), OutcomeUnknown)
            await empty(me, served)


async def test_what_expired_meanwhile_is_answered_and_not_run(home: Path, clocks: Clocks, monkeypatch: Any) -> None:
    monkeypatch.setattr(inbox_file, "AT_ONCE", 1)
    async with planner(home) as me:
        async with worker(home) as served:
            await me.submit("worker", "held_again", {})
            await served.begun.wait()
            await (await me.submit("worker", "plain", {}, ttl=60, message_id="late")).accepted()
            await crash(served)
        clocks.wall(100)
        async with worker(home) as served:
            error = await ended(me.ticket("late"))
            assert error.reason == "expired" and "did not run" in error.message
            assert "late" not in served.started


async def test_a_clock_set_back_gives_no_more_than_the_ttl(home: Path, clocks: Clocks) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            await me.submit("worker", "held_again", {}, ttl=60)
            await served.begun.wait()
            await crash(served)
        clocks.wall(-86_400)
        async with worker(home) as served:
            await served.begun.wait()
            (work,) = served._running().durable.inbox.works.values()
            assert work.deadline - asyncio.get_running_loop().time() <= 60
            served.gate.set()


async def test_a_method_that_is_gone_and_a_rule_that_is_gone(home: Path, monkeypatch: Any) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            one = await me.submit("worker", "held_again", {})
            await served.begun.wait()
            await crash(served)
        served = worker(home)
        served.remove_method("held_again")
        async with served:
            assert (await ended(one)).reason == "unknown_method"
            two = await me.submit("worker", "effect", {})
            await served.begun.wait()
            await crash(served)
        monkeypatch.setattr(inbox_file.Inbox, "may", lambda self, principal, name: False)
        async with worker(home) as served:
            assert (await ended(two)).reason == "policy" and served.started == []


async def test_recovery_is_one_commit_for_many_and_keeps_the_bound(home: Path, monkeypatch: Any) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            tickets = await asyncio.gather(*(me.submit("worker", "held_again", {}) for _ in range(60)))
            await until(lambda: len(served.started) == 60)
            await crash(served)
        monkeypatch.setattr(inbox_file, "AT_ONCE", 10)
        async with worker(home) as served:
            assert served.status()["durable"]["commits"] < 10
            await until(lambda: len(served.started) == 10)
            states = [row.state for row in await taken(served)]
            assert len(served.started) == 10 and states.count(TakenState.RUNNING) == 60  # they had begun before
            served.gate.set()
            assert await asyncio.gather(*(ticket.result() for ticket in tickets)) == ["waited"] * 60
            await empty(me, served)


@pytest.mark.parametrize("how", ["older", "deleted"])
async def test_a_journal_that_is_not_the_true_one_says_so_and_runs_nothing_twice(home: Path, how: str) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            held = await me.submit("worker", "held", {})
            await served.begun.wait()
            file = served._running().durable.path
            await crash(served)
        kept = file.read_bytes()
        async with worker(home) as served:
            assert isinstance(await ended(held), OutcomeUnknown)
            await empty(me, served)
        for rest in ("", "-wal"):
            file.with_name(file.name + rest).unlink(missing_ok=True)
        if how == "older":
            file.write_bytes(kept)
        async with worker(home) as served:
            problem = served.status()["durable"]["problem"]
            assert ("older" if how == "older" else "missing") in problem
            assert served.started == []
            assert await (await me.submit("worker", "plain", {})).result() == "ran"  # peers are not confused


async def test_an_effect_in_an_older_copy_is_made_with_its_outcome(home: Path) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            ticket = await me.submit("worker", "effect", {"k": "x"})
            await served.begun.wait()
            await crash(served)
        async with worker(home) as served:
            served.gate.set()
            assert await ticket.result() == "stored"
            assert await effects(served) == ["x"]
            await empty(me, served)
