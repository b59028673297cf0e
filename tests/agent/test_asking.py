"""agent/asking: which task asks, and who answers."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, RequestInfo, TaskEnvelope, UsageError
from hermes_peer.agent.tasks import REQUEST_INFO
from tests.agent.rig import two


async def test_questions_find_their_own_task(home: Path) -> None:
    async with two(home) as (served, me):

        @served.task("ask")
        async def ask(task: TaskEnvelope, request: Any) -> Any:
            return await request.info("who")

        async def run(name: str) -> Any:
            async with me.task("worker", "ask", TaskEnvelope([]), on_request_info=lambda info: name) as task:
                return (await task.result()).result

        assert [await run("a"), await run("b")] == ["a", "b"]
        async with (
            me.task("worker", "ask", TaskEnvelope([]), on_request_info=lambda info: "one") as one,
            me.task("worker", "ask", TaskEnvelope([]), on_request_info=lambda info: "two") as other,
        ):
            assert [(await other.result()).result, (await one.result()).result] == ["two", "one"]
        async with me.task("worker", "ask", TaskEnvelope([])) as task:
            with pytest.raises(CallError, match="answers no questions"):
                await task.result()
        with pytest.raises(CallError, match="no task gone of this planner"):
            await served.call("planner", REQUEST_INFO, RequestInfo("x", task_id="gone"))
        assert not me._asking._answers


async def test_a_task_that_cannot_be_started_leaves_no_entry(home: Path) -> None:
    async with two(home) as (_, me):
        with pytest.raises(CallError):
            me.task("worker", "ask", TaskEnvelope([]), ttl=-1)
        with pytest.raises(UsageError, match="finite"):
            me.task("worker", "ask", TaskEnvelope([float("nan")]))
        assert not me._asking._answers


async def test_a_task_that_is_over_leaves_no_entry(home: Path) -> None:
    async with two(home) as (served, me):

        @served.task("rep")
        async def rep(task: TaskEnvelope) -> Any:
            yield "x"
            if task.steps:
                raise CallError("no", "not that step")

        read = me.task("worker", "rep", TaskEnvelope([]))
        async for _ in read:
            pass
        assert not me._asking._answers  # without result() or aclose()
        failed = me.task("worker", "rep", TaskEnvelope([1]))
        with pytest.raises(CallError, match="not that step"):
            async for _ in failed:
                pass
        assert not me._asking._answers
        dropped = me.task("worker", "rep", TaskEnvelope([]))
        await anext(dropped)
        assert me._asking._answers
        del dropped
        gc.collect()
        assert not me._asking._answers


async def test_a_reader_that_runs_out_of_patience_has_not_ended_the_task(home: Path) -> None:
    async with two(home) as (served, me):

        @served.task("ask")
        async def ask(task: TaskEnvelope, request: Any) -> Any:
            await asyncio.sleep(0.2)
            return await request.info("who")

        async with me.task("worker", "ask", TaskEnvelope([]), on_request_info=lambda info: "me") as task:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(task), 0.05)
            assert (await task.result()).result == "me"
