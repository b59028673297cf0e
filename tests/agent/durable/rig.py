"""Agents with durable methods, a crash without a process, a clock that can be set, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, Final, HermesAgent, Request
from hermes_peer.agent.durable import retry
from hermes_peer.journal.values import Sent, SentState, Taken, TakenState
from tests.loops import until


def planner(home: Path, **options: Any) -> HermesAgent:
    return HermesAgent(options.pop("name", "planner"), home=home, slot=1, drain_s=0.02, **options)


def worker(home: Path, **options: Any) -> Any:
    """`started` lists the ids of runs; `gate` holds `held`, `steps` and `kept` up; `fails` counts down."""
    agent: Any = HermesAgent(
        options.pop("name", "worker"), home=home, slot=options.pop("slot", 1), drain_s=0.02, **options
    )
    agent.started, agent.seen, agent.times = [], [], []
    agent.gate, agent.begun = asyncio.Event(), asyncio.Event()
    agent.fails = 0
    agent.broken = None

    def note(request: Request) -> None:
        agent.started.append(request.message_id)
        agent.seen.append((request.attempt, request.emitted))
        agent.times.append(asyncio.get_running_loop().time())
        agent.begun.set()

    @agent.method("add", contract="idempotent")
    async def add(a: int, b: int, request: Request) -> int:
        note(request)
        return a + b

    @agent.method("plain")
    async def plain(request: Request) -> str:
        note(request)
        return "ran"

    async def wait(request: Request) -> str:
        note(request)
        await agent.gate.wait()
        return "waited"

    agent.add_method("held", wait)
    agent.add_method("held_again", wait, contract="idempotent")

    @agent.method("flaky")
    async def flaky(request: Request, after: float | None = None) -> int:
        note(request)
        if agent.fails:
            agent.fails -= 1
            raise CallError("later", "not yet", retryable=True, retry_after=after)
        return request.attempt

    @agent.method("breaks")
    async def breaks(request: Request) -> str:
        note(request)
        if agent.broken is not None:
            raise agent.broken
        return "repaired"

    @agent.method("effect", contract="transactional")
    async def effect(request: Request, k: str = "", fail: bool = False) -> str:
        note(request)
        async with request.transaction() as db:
            await db.execute("CREATE TABLE IF NOT EXISTS effects (k TEXT)")
            await db.execute("INSERT INTO effects VALUES (?)", (k or request.message_id,))
            if fail and agent.fails:
                agent.fails -= 1
                raise CallError("later", "after the insert", retryable=True)
        await agent.gate.wait()
        return "stored"

    @agent.method("words", contract="idempotent")
    async def words(n: int, request: Request, stop: int = -1) -> AsyncIterator[Any]:
        note(request)
        for i in range(request.emitted, n):
            if i == stop:
                agent.halted = True
                await agent.gate.wait()
            yield {"i": i}
        yield Final({"n": n})

    return agent


@contextlib.asynccontextmanager
async def two(home: Path) -> AsyncIterator[tuple[HermesAgent, Any]]:
    """Both run; at the end nothing is left in any queue."""
    async with planner(home) as me, worker(home) as served:
        yield me, served
        await empty(me, served)


async def crash(agent: HermesAgent) -> None:
    """End it without an outcome for what runs: its rows are what `kill -9` leaves."""
    agent.drain_s = 0.0
    await agent.aclose()


async def sent(agent: HermesAgent, *states: SentState) -> list[Sent]:
    _, outbox = await agent._running().durable.open()
    return await outbox.journal.find_sent(states)


async def taken(agent: HermesAgent, *states: TakenState) -> list[Taken]:
    inbox, _ = await agent._running().durable.open()
    return await inbox.journal.find_taken(states)


async def sql(agent: HermesAgent, text: str) -> list[Any]:
    inbox, _ = await agent._running().durable.open()
    return await inbox.journal.transaction(lambda db: db.execute(text))


async def effects(agent: HermesAgent) -> list[str]:
    return sorted(k for (k,) in await sql(agent, "SELECT k FROM effects"))


def left(agent: HermesAgent) -> dict[str, Any]:
    g = agent.status()["durable"]
    if not g["open"]:
        return {}
    held = {name: g[name] for name in ("to_deliver", "to_settle", "on_the_way", "in_hand")}
    held |= {f"sent {s}": g["sent"][s] for s in ("waiting", "accepted")}
    held |= {f"taken {s}": n for s, n in g["taken"].items()}
    return {name: n for name, n in held.items() if n}


async def empty(*agents: HermesAgent) -> None:
    """Whatever ended has been settled: nothing is left in any queue or log."""
    with contextlib.suppress(AssertionError):
        await until(lambda: not any(left(agent) for agent in agents))
    assert {agent.name: left(agent) for agent in agents} == {agent.name: {} for agent in agents}


@contextlib.contextmanager
def quick_retries(seconds: float = 0.02) -> Iterator[None]:
    before, retry.FIRST_S = retry.FIRST_S, seconds
    try:
        yield
    finally:
        retry.FIRST_S = before


class Clocks:
    """`wall` and `steady` are seconds that are added to the two clocks."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall_s = self.steady_s = 0.0
        wall = time.time_ns
        patch.setattr(time, "time_ns", lambda: wall() + int(self.wall_s * 1e9))

    def wall(self, seconds: float) -> None:
        self.wall_s += seconds

    def both(self, seconds: float) -> None:
        """Time passes: timers of the running loop that are due by then fire."""
        loop: Any = asyncio.get_running_loop()
        if not hasattr(loop, "moved"):
            time_of = loop.time
            loop.moved = 0.0
            loop.time = lambda: time_of() + loop.moved
        loop.moved += seconds
        self.wall(seconds)


async def ended(ticket: Any) -> CallError:
    """The error that ended it."""
    with pytest.raises(CallError) as raised:
        await ticket.result()
    return raised.value


async def until_error(ticket: Any, kind: type[CallError] = CallError) -> tuple[list[Any], CallError]:
    """The items that came, and the error that ended them."""
    got: list[Any] = []
    try:
        async for item in ticket.items():
            got.append(item)
    except kind as error:
        return got, error
    raise AssertionError(f"no error after {got}")
