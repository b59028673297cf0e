"""Handing a request on: one trace, less ttl at each hop, other ids, circles that end (mission I10)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, Request
from hermes_peer.access.tokens import add_token
from hermes_peer.doors import HermesHttp, forward
from tests.agent.rig import worker
from tests.doors.rig import Rig, demo, message


@contextlib.asynccontextmanager
async def router(home: Path, hops: int = 1) -> AsyncIterator[tuple[Rig, Any, list[Any]]]:
    """Caller -> router (hops times) -> calculator, by doors."""
    calculator = demo(home / "end", http="127.0.0.1:0")
    calculator.left = []

    async def left(request: Request) -> Any:
        calculator.left.append((request.ttl_left, request.trace_id, request.message_id, request.caller))
        return len(calculator.left)

    calculator.add_method("left", left, public=True)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(calculator)
        url = calculator.doors[0]
        for n in range(hops):
            there = await stack.enter_async_context(HermesHttp(url, sender=f"router-{n}"))
            agent = HermesAgent(f"router-{n}", home=home / str(n), listen=False, http="127.0.0.1:0")
            agent.add_method("left", _handler(there), public=True)
            await stack.enter_async_context(agent)
            url = agent.doors[0]
        rig = Rig(agent, url.removesuffix("/hermes/v1/invoke"))
        yield rig, calculator, calculator.left
        for line in rig.lines:
            line.close()


def _handler(there: HermesHttp) -> Any:
    async def on(request: Request) -> Any:
        return await forward(request, there)

    return on


async def test_three_hops(home: Path) -> None:
    async with router(home, hops=3) as (rig, _, left):
        payload = await rig.call("left", {"task_id": "mine"}, ttl=30, trace_id="my-trace-123")
        assert payload["result"] == 1
        ttl, trace, id, caller = left[0]
        assert trace == "my-trace-123" and 26 < ttl <= 27  # three hops, three seconds
        assert id != "mine" and len(id) == 32 and caller == "door:loopback"
        again = await rig.call("left", {"task_id": "mine"}, ttl=30, trace_id="my-trace-123")
        assert again["result"] == 1 and len(left) == 1


async def test_what_is_left_of_the_ttl_ends_a_circle(home: Path) -> None:
    async with router(home, hops=3) as (rig, _, left):
        payload = await rig.call("left", ttl=2.5)
        assert payload["error_code"] == 3 and "hop costs 1 s" in payload["detail"] and left == []
        assert (await rig.call("left", ttl=1))["error_code"] == 3


async def test_the_same_id_of_two_callers_stays_two(home: Path) -> None:
    async with router(home) as (rig, _, left):
        token = add_token(rig.agent._life.home, "other", 0)
        policy = rig.agent._life.home.policy_file
        policy.write_text(
            policy.read_text() + '\n[[rule]]\ncaller="door:other"\nagent="*"\nmethod="public"\nallow=true\n'
        )
        rig.agent._life._reload()
        await rig.call("left", {"task_id": "same"})
        await rig.post(message("left", {"task_id": "same"}), Authorization=f"Bearer {token}")
        assert len({id for _, _, id, _ in left}) == 2


async def test_on_to_a_peer(home: Path) -> None:
    async with worker(home) as served, HermesAgent("router", home=home, http="127.0.0.1:0") as agent:

        async def echo(request: Request) -> Any:
            return await forward(request, agent, "worker")

        agent.add_method("echo", echo, public=True)
        rig = Rig(agent, agent.doors[0].removesuffix("/hermes/v1/invoke"))
        assert (await rig.call("echo", {"x": 1, "task_id": "t"}))["result"] == {"x": 1}
        assert served.started and served.started[0] != "t"
        rig.lines[0].close()


async def test_another_tool_and_payload(home: Path) -> None:
    async with router(home) as (rig, calculator, _), HermesHttp(calculator.doors[0]) as there:

        async def add(request: Request) -> Any:
            return await forward(request, there, tool="calculator", payload={"expression": "1+1"})

        rig.agent.add_method("add", add, public=True)
        assert (await rig.call("add"))["result"] == 2


@pytest.mark.parametrize("ttl", [0, 1])
async def test_nothing_left(home: Path, ttl: int) -> None:
    async with router(home) as (rig, _, left):
        assert (await rig.call("left", ttl=ttl))["error_code"] == 3 and left == []
