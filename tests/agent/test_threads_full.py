"""agent/inbound, runtime/threads: handlers that block all threads are seen, and refused to wait for in silence."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from hermes_peer import Unavailable
from hermes_peer.runtime.threads import Threads
from tests.agent.rig import two
from tests.loops import until


async def test_no_thread_within_the_ttl(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two(home) as (served, me):
        served.threads = Threads("few", 2)
        go, ran = threading.Event(), []

        @served.method("hold")
        def hold() -> str:
            go.wait(20)
            return "held"

        @served.method("quick")
        def quick() -> str:
            ran.append("quick")
            return "quick"

        @served.method("parts")
        def parts():  # type: ignore[no-untyped-def]
            ran.append("parts")
            yield 1

        held = [asyncio.ensure_future(me.call("worker", "hold")) for _ in range(2)]
        await until(lambda: served.threads.alive == 2 and not served.threads.waiting)
        late = [me.call("worker", "quick", ttl=0.5), me.call("worker", "quick", ttl=0.6)]
        refused = asyncio.gather(*late, return_exceptions=True)
        await until(lambda: served.threads.waiting == 2)
        await until(lambda: served._life.endpoint.node.load().queue_ms >= 200)
        for error in await refused:
            assert isinstance(error, Unavailable) and (error.reason, error.retryable) == ("threads_full", True)
        stream = asyncio.ensure_future(me.stream("worker", "parts", ttl=0.5).result())
        patient = asyncio.ensure_future(me.call("worker", "quick"))
        await asyncio.sleep(0.6)
        assert not ran
        go.set()
        assert await asyncio.gather(*held) == ["held"] * 2
        assert await patient == "quick"
        with pytest.raises((Unavailable, TimeoutError)):
            await stream
        assert ran == ["quick"]  # nothing runs late
        assert served.threads.queue_ms == 0
        assert [r.levelno for r in caplog.records if "threads for plain def handlers" in r.getMessage()] == [
            logging.WARNING
        ]
