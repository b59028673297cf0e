"""agent/lifespan: the user's own beginning and end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent
from tests.agent.rig import planner, worker
from tests.loops import both_loops, until


@both_loops
async def test_order_and_task_groups(home: Path, loop_kind: str) -> None:
    log: list[str] = []
    async with worker(home, name="other"):
        agent = worker(home)

        @agent.lifespan
        async def around(which: HermesAgent) -> Any:
            assert which is agent
            log.append("begin")
            assert await agent.call("other", "echo", {"a": 1}) == {"a": 1}
            task = asyncio.current_task()
            async with asyncio.TaskGroup() as group, asyncio.timeout(30):
                ticking = group.create_task(asyncio.sleep(30))
                yield
                assert asyncio.current_task() is task
                assert await agent.call("other", "echo", {"a": 2}) == {"a": 2}
                ticking.cancel()
            log.append("end")

        @agent.method("slow")
        async def slow() -> str:
            await asyncio.sleep(0.03)
            log.append("handler")
            return "x"

        agent.drain_s = 9
        async with planner(home) as me:
            async with agent:
                assert log == ["begin"]
                call = asyncio.ensure_future(me.call("worker", "slow"))
                await until(lambda: agent._life.server.running)
                await asyncio.ensure_future(agent.aclose())  # another task
            assert await call == "x"
        assert log == ["begin", "handler", "end"]


async def test_nothing_is_served_before_it_has_begun(home: Path) -> None:
    go = asyncio.Event()
    agent = worker(home)

    @agent.lifespan
    async def slow_begin(_: HermesAgent) -> Any:
        await go.wait()
        yield

    starting = asyncio.ensure_future(agent.__aenter__())
    async with planner(home) as me:
        await asyncio.sleep(0.05)
        with pytest.raises(Exception, match="no agent named worker"):
            await me.call("worker", "echo", {})
        go.set()
        await starting
        assert await me.call("worker", "echo", {}) == {}
        await agent.aclose()


async def test_failures(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent = worker(home)

    @agent.lifespan
    async def fails(_: HermesAgent) -> Any:
        raise LookupError("no database")
        yield

    with pytest.raises(LookupError, match="no database"):
        await agent.__aenter__()
    assert not agent.running

    @agent.lifespan
    async def fails_at_the_end(_: HermesAgent) -> Any:
        yield
        raise LookupError("late")

    async with agent:
        pass
    assert "failed at its end" in caplog.text
    caplog.clear()

    @agent.lifespan
    async def never_ready(_: HermesAgent) -> Any:
        try:
            inside.set()
            await asyncio.sleep(30)
            yield
        finally:
            ended.append(True)

    ended: list[bool] = []
    inside = asyncio.Event()
    starting = asyncio.ensure_future(agent.__aenter__())
    await inside.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert ended == [True] and not agent.running
