"""runtime/endpoint: dispatching, closing, and what goes wrong above it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, Code
from hermes_peer.agent.inbound import Inbound
from hermes_peer.core.config import Config
from tests.agent.rig import planner, quiet, two, worker
from tests.loops import both_loops, until


async def test_a_fault_of_ours_ends_one_stream_and_tells_both_owners(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(home) as (served, me):
        healthy = me.stream("worker", "silent")
        await anext(healthy)

        def broken(self: Any, *_: Any) -> None:
            raise LookupError("a bug of ours")

        monkeypatch.setattr(Inbound, "run", broken)
        with pytest.raises(CallError) as info:
            await me.call("worker", "echo", {}, ttl=3)
        assert info.value.code == Code.ERROR_INTERNAL
        monkeypatch.undo()

        from hermes_peer.agent.calling import Outgoing

        monkeypatch.setattr(Outgoing, "end", broken)
        with pytest.raises(CallError, match="its log says more"):
            await me.call("worker", "echo", {}, ttl=3)
        monkeypatch.undo()
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}
        await healthy.aclose()
        await quiet(served, me)
    caplog.clear()


@both_loops
async def test_closing_with_a_reader_that_takes_nothing(home: Path, loop_kind: str) -> None:
    """A full transport does not hold the close, nor leave a descriptor (the loop's own check)."""
    async with worker(home, listen="hermes://127.0.0.1:0") as served, planner(home) as me:
        await me.call(served.addresses[1], "echo", {})
        pump = next(iter(served._life.endpoint.pumps.values()))
        other = next(iter(me._life.endpoint.pumps.values()))  # type: ignore[union-attr]
        other.pipe._transport.pause_reading()  # type: ignore[union-attr]
        while not pump.pipe.paused:
            pump.pipe.write(b"x" * 65_536)
        began = time.monotonic()
        await served.aclose()
        assert time.monotonic() - began < 1
        other.pipe._transport.resume_reading()  # type: ignore[union-attr]


async def test_unproven_connections(home: Path) -> None:
    """Silence and rubbish: dropped in time, counted, and in nobody's way."""
    async with (
        worker(home, listen="hermes://127.0.0.1:0", config=Config(handshake_s=0.2)) as served,
        planner(home) as me,
    ):
        port = int(served.addresses[1].rpartition(":")[2])
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        pairs[-1][1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for reader, writer in pairs:
            assert await asyncio.wait_for(reader.read(), 3) == b""
            writer.close()
            await writer.wait_closed()
        refused = served.status()["refused_links"]
        assert sum(refused.values()) == 12 and refused["timeout"] == 11 and refused["proof"] == 1
        assert await me.call("worker", "echo", {}) == {}
        await until(lambda: not served._life.endpoint.node.half_open)


@both_loops
async def test_an_answer_of_the_very_turn_in_which_it_closes_arrives(home: Path, loop_kind: str) -> None:
    for size in (10, 300_000):
        async with worker(home, drain_s=5) as served, planner(home) as me:
            go = asyncio.Event()

            @served.method("late")
            async def late(n: int) -> str:
                await go.wait()  # noqa: B023
                return "x" * n

            call = asyncio.ensure_future(me.call("worker", "late", {"n": size}))
            await until(lambda: served._life.server.running)
            served._life.server.draining = True
            go.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await served._life.endpoint.close()
            assert len(await call) == size
