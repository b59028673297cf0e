"""agent/request: what a handler knows, asks, and calls from a thread."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, MethodNotFound, Request, UsageError
from hermes_peer.agent.calling import make_envelope
from hermes_peer.wire import jsons
from tests.agent.rig import quiet, two, worker
from tests.loops import both_loops, until


async def test_fields(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("fields")
        async def fields(request: Request) -> dict[str, Any]:
            assert request.message_id in repr(request)
            with pytest.raises(UsageError, match="only durable work has a transaction"):
                request.transaction()
            return {
                "payload": request.payload,
                "caller": request.caller,
                "key": request.caller_fingerprint,
                "ttl": request.ttl_left,
                "trace": request.trace_id,
                "id": request.message_id,
                "attempt": request.attempt,
                "method": request.method,
                "items": [x async for x in request.items],
            }

        got = await me.call("worker", "fields", {"a": [1]}, ttl=9, trace_id="t", message_id="m")
        assert 8 < got.pop("ttl") <= 9
        assert got == {
            "payload": {"a": [1]},
            "caller": "planner",
            "key": me.fingerprint,
            "trace": "t",
            "id": "m",
            "attempt": 1,
            "method": "fields",
            "items": [],
        }

        @served.method("seed")
        async def seed(request: Request) -> Any:
            return request.payload

        for payload in ([1], "x", 7):
            with pytest.raises(UsageError, match="object"):
                await me.call("worker", "seed", payload)
            with pytest.raises(CallError, match="object"):  # and by one that does not look
                await me._call(me._running(), "worker", make_envelope("seed", 5), jsons.encode(payload))
        assert await me.call("worker", "seed", None) == {}


@both_loops
async def test_asks(home: Path, loop_kind: str) -> None:
    async with two(home) as (served, me):

        @me.method("number")
        async def number(of: str) -> int:
            return len(of)

        @me.method("deep")
        async def deep(n: int, request: Request) -> int:
            return n if n >= 5 else await request.ask("deep", {"n": n + 1})

        served.add_method("deep", deep)

        @served.method("asks")
        async def asks(request: Request) -> Any:
            for word in ("a", "bb"):
                yield word
                yield await request.ask("number", {"of": word})
            with pytest.raises(MethodNotFound):
                await request.ask("nothing")

        assert [x async for x in me.stream("worker", "asks")] == ["a", 1, "bb", 2]  # in mid-stream
        assert await me.call("worker", "deep", {"n": 0}) == 5  # back and forth


async def test_an_ask_has_a_place_when_all_others_are_taken(home: Path) -> None:
    async with two(home) as (served, me):

        @me.method("number")
        async def number() -> int:
            return 7

        @me.method("wait")
        async def wait() -> None:
            await asyncio.sleep(30)

        @served.method("asks")
        async def asks(request: Request) -> Any:
            return await request.ask("number", ttl=5)

        await me.call("worker", "echo", {})
        calls = [asyncio.ensure_future(served.call("planner", "wait")) for _ in range(130)]
        await until(lambda: me.status()["calls"]["running"] == 120)
        assert await me.call("worker", "asks") == 7
        assert await asyncio.gather(*[me.call("worker", "asks") for _ in range(40)]) == [7] * 40
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_an_ask_inherits_time_and_trace(home: Path) -> None:
    async with two(home) as (served, me):

        @me.method("left")
        async def left(request: Request) -> list[Any]:
            return [request.ttl_left, request.trace_id, request.caller]

        @served.method("asks")
        async def asks(request: Request) -> Any:
            return await request.ask("left", ttl=1000)

        ttl, trace, caller = await me.call("worker", "asks", ttl=3, trace_id="t")
        assert 2 < ttl <= 3
        assert (trace, caller) == ("t", "worker")


async def test_calls_from_a_thread(home: Path) -> None:
    async with two(home) as (served, me), worker(home, name="third") as third:

        @third.method("where")
        async def where(request: Request) -> list[str]:
            return [request.trace_id, request.caller]

        @served.method("thread")
        def thread(request: Request) -> Any:
            return request.call_sync("third", "where")

        @served.method("loop")
        async def on_loop(request: Request) -> Any:
            with pytest.raises(UsageError, match="block the event loop"):
                request.call_sync("third", "where")
            return "refused"

        assert await me.call("worker", "thread", trace_id="t") == ["t", "worker"]
        assert await me.call("worker", "loop") == "refused"
        assert await asyncio.gather(*[me.call("worker", "thread", trace_id=f"t{n}") for n in range(70)]) == [
            [f"t{n}", "worker"] for n in range(70)
        ]
        await quiet(third)
