"""What a handler of durable work may know and ask."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, Request
from hermes_peer.errors import UsageError
from tests.agent.durable.rig import crash, planner, two, worker


def noted(served: HermesAgent, seen: list[Any], gate: asyncio.Event | None = None) -> None:
    @served.method("look", contract="idempotent")
    async def look(request: Request) -> int:
        seen.append((request.caller, request.caller_fingerprint, request.message_id, request.attempt, request.payload))
        assert 0 < request.ttl_left <= 30
        with pytest.raises(UsageError, match="no items"):
            _ = request.items
        if gate is not None:
            await gate.wait()
        return len(request.trace_id)


async def test_who_what_and_how_long(home: Path) -> None:
    async with two(home) as (me, served):
        seen: list[Any] = []
        noted(served, seen)
        ticket = await me.submit("worker", "look", {"x": 1}, ttl=30, trace_id="t" * 9)
        assert await ticket.result() == 9
        assert seen == [("planner", me.fingerprint, ticket.message_id, 1, {"x": 1})]


async def test_the_caller_keeps_its_name_without_a_line(home: Path) -> None:
    async with planner(home) as me:
        await me.submit("worker", "look", {"x": 1}, ttl=30, message_id="m")
        seen: list[Any] = []
        noted(served := worker(home), seen, asyncio.Event())
        async with served:
            while not seen:
                await asyncio.sleep(0.005)
            await crash(served)
    seen.clear()
    noted(served := worker(home), seen)
    async with served:
        while not seen:
            await asyncio.sleep(0.005)
        assert [(caller, attempt) for caller, _, _, attempt, _ in seen] == [("planner", 2)]


async def test_it_asks_its_submitter_and_calls_in_a_thread(home: Path) -> None:
    async with two(home) as (me, served):

        @me.method("name")
        async def name(of: int) -> str:
            return f"name {of}"

        @served.method("asks")
        async def asks(request: Request) -> str:
            return str(await request.ask("name", {"of": 7}))

        @served.method("threads")
        def threads(request: Request) -> str:
            return str(request.call_sync("planner", "name", {"of": 8}))

        assert await (await me.submit("worker", "asks", {})).result() == "name 7"
        assert await (await me.submit("worker", "threads", {})).result() == "name 8"
