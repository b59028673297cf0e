"""Agents for tests: a worker with the field cases' demo methods, and what must be true once all is quiet."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hermes_peer import HermesAgent, Request
from hermes_peer.core.config import Config
from tests.loops import until

QUICK = Config(idle_s=0.2, busy_s=0.1, rest_s=0.3, close_s=0.3)


def planner(home: Path, **options: Any) -> HermesAgent:
    return HermesAgent(options.pop("name", "planner"), home=home, drain_s=options.pop("drain_s", 0.05), **options)


def worker(home: Path, **options: Any) -> HermesAgent:
    """`ended` lists how its `forever` and `sleep` handlers ended; `started` counts calls."""
    agent: Any = HermesAgent(options.pop("name", "worker"), home=home, drain_s=options.pop("drain_s", 0.05), **options)
    agent.ended = []
    agent.started = []

    @agent.method("echo")
    async def echo(request: Request) -> Any:
        agent.started.append(request.message_id)
        return request.payload

    @agent.method("tokens")
    async def tokens(n: int, size: int = 0) -> AsyncIterator[dict[str, Any]]:
        for i in range(n):
            yield {"i": i, "fill": "x" * size}

    @agent.method("forever")
    async def forever(size: int = 0) -> AsyncIterator[int | str]:
        i = 0
        try:
            while True:
                yield i if not size else "x" * size
                i += 1
                agent.sent = i
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            agent.ended.append("cancelled")
            raise
        finally:
            agent.ended.append("finally")

    @agent.method("silent")
    async def silent() -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            agent.ended.append("finally")

    @agent.method("sleep")
    async def sleep(s: float) -> str:
        agent.started.append("sleep")
        try:
            await asyncio.sleep(s)
            return "slept"
        except asyncio.CancelledError:
            agent.ended.append("cancelled")
            raise

    @agent.method("block")
    def block(s: float) -> str:
        time.sleep(s)
        return "blocked"

    @agent.method("sum")
    async def sum_(request: Request) -> int:
        total = 0
        async for n in request.items:
            total += n
        return total

    return agent


@contextlib.asynccontextmanager
async def two(home: Path, **options: Any) -> AsyncIterator[tuple[Any, HermesAgent]]:
    """A worker and a planner that run; quiet at the end, or the test fails."""
    async with worker(home, **options) as served, planner(home, **options) as me:
        yield served, me
        await quiet(served, me)


async def quiet(*agents: HermesAgent) -> None:
    with contextlib.suppress(AssertionError):
        await until(lambda: not any(_left(agent) for agent in agents))
    for agent in agents:
        assert_clean(agent)


def assert_clean(agent: HermesAgent) -> None:
    """Nothing of a call is left in a running agent: no entry, no place, no credit, no byte."""
    left = _left(agent)
    assert not left, f"{agent.name} still holds {left}"


def _left(agent: HermesAgent) -> dict[str, Any]:
    life = agent._life
    if life is None:
        return {}
    left: dict[str, Any] = {"running": len(life.server.running), "tasks": len(life.server.runner.tasks)}
    wheel = life.server.deadlines._wheel.values()
    left["deadlines"] = sum(len(bucket) for bucket in wheel)
    for contact in life.endpoint.contacts.values():
        session = contact.session
        left["waiters"] = left.get("waiters", 0) + len(contact._waiters)
        if session is not None:
            window = session.receiver.window
            left[f"streams of {contact.name}"] = len(session.places.streams)
            left[f"open_mine of {contact.name}"] = session.places.open_mine
            left[f"unread of {contact.name}"] = window.received - window.consumed
            left[f"extra of {contact.name}"] = window.extra
            left[f"spare of {contact.name}"] = session.config.spare - session.places.spare
            left[f"queued of {contact.name}"] = len(session.sender._ready) + len(session.sender._unopened)
    return {what: n for what, n in left.items() if n}
