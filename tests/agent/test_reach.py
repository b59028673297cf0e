"""agent/reach: the slow path of a call."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from hermes_peer import DeadlineExceeded, LinkError
from hermes_peer.core.config import Config
from tests.agent.rig import planner, worker
from tests.loops import until


async def test_no_link_in_time_names_the_timer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with worker(home) as served, planner(home, config=Config(handshake_s=0.4)) as me:
        key = served.fingerprint
        quiet = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = quiet.sockets[0].getsockname()[1]
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded) as info:
            await me.call(f"hermes://{key}@127.0.0.1:{port}", "echo", {}, ttl=0.2)
        assert (info.value.timer, info.value.origin) == ("connect", "local")
        assert time.monotonic() - began < 1
        quiet.close()
        assert await me.call("worker", "echo", {}) == {}  # the right address is found again


async def test_retries_and_then_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_peer.runtime import backoff

    monkeypatch.setattr(backoff, "FIRST_S", 0.02)
    async with worker(home) as served:
        key = served.fingerprint
        async with planner(home) as me:
            with pytest.raises(LinkError, match=r"127\.0\.0\.1:1: connection refused; check that the agent runs there"):
                await me.call(f"hermes://{key}@127.0.0.1:1", "echo", {})
            assert not me._life.endpoint.contacts[bytes.fromhex(key)]._waiters  # type: ignore[union-attr]


async def test_many_callers_share_one_dial(home: Path) -> None:
    async with worker(home) as served, planner(home) as me:
        await asyncio.gather(*[me.call("worker", "echo", {"n": n}) for n in range(100)])
        assert len(served.started) == 100
        assert me.status()["links"][0]["links"] == 1


async def test_both_sides_dial_at_once(home: Path) -> None:
    for _ in range(5):
        async with worker(home) as served, planner(home) as me:
            got = await asyncio.gather(
                *[me.call("worker", "echo", {"n": n}) for n in range(10)],
                *[served.call("planner", "hermes.ping") for _ in range(10)],
            )
            assert len(got) == 20
            await until(lambda: len(me._life.endpoint.pumps) == 1)  # type: ignore[union-attr]
