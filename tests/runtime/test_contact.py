"""runtime/contact: the standing relation with one peer, over a line that fails."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, LinkError, SessionLost
from hermes_peer.core.config import Config
from hermes_peer.runtime import contact as contacts
from hermes_peer.testing.proxy import FaultProxy
from hermes_peer.wire.address import Address
from tests.agent.rig import planner, quiet, worker
from tests.loops import both_loops, case, until

QUICK = Config(idle_s=0.3, busy_s=0.2, handshake_s=0.5)


@contextlib.asynccontextmanager
async def line(home: Path, **options: Any) -> AsyncIterator[tuple[Any, HermesAgent, FaultProxy, str]]:
    """A worker, a planner, the faulty line between them, and the worker's address on that line."""
    async with worker(home, listen="hermes://127.0.0.1:0", config=QUICK) as served:  # noqa: SIM117
        async with FaultProxy(("127.0.0.1", int(served.addresses[1].rpartition(":")[2]))) as proxy:
            target = f"hermes://{served.fingerprint}@127.0.0.1:{proxy.address[1]}"
            async with planner(home, listen=False, config=QUICK, **options) as me:
                yield served, me, proxy, target


def report(agent: HermesAgent) -> dict[str, Any]:
    (link,) = agent.status()["links"]
    assert isinstance(link, dict)
    return link


@both_loops
async def test_cuts_are_healed_and_counted(home: Path, loop_kind: str) -> None:
    async with line(home) as (served, me, proxy, target):
        got = []
        async for item in me.stream(target, "tokens", {"n": 1500, "size": 200}):
            got.append(item["i"])
            if len(got) in (50, 500, 1000):
                await proxy.cut()
        assert got == list(range(1500))
        assert report(me)["breaks"] == 3 and report(me)["links"] == 4
        assert len(report(me)["recovery_ms"]) == 3 and max(report(me)["recovery_ms"]) < 1500
        call = asyncio.ensure_future(me.call(target, "sleep", {"s": 0.3}))
        await until(lambda: "sleep" in served.started)
        await proxy.fin()
        await until(lambda: report(me)["state"] == "reconnecting")  # never "connected" while it is not
        assert await call == "slept"
        assert served.started.count("sleep") == 1
        await quiet(served, me)


@case("HPC-001")
async def test_a_black_hole_is_noticed(home: Path) -> None:
    async with line(home) as (_, me, proxy, target):
        stream = me.stream(target, "tokens", {"n": 100_000, "size": 100})
        for _ in range(50):
            await anext(stream)
        began = time.monotonic()
        proxy.blackhole()
        await until(lambda: report(me)["state"] == "reconnecting")
        assert time.monotonic() - began < 3
        proxy.heal()
        assert [(await anext(stream))["i"] for _ in range(500)] == list(range(50, 550))
        await stream.aclose()


@case("HPC-003")
async def test_a_budget_of_redials_ends_in_one_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_peer.runtime.backoff.FIRST_S", 0.02)
    async with line(home, redial_limit=5) as (_, me, proxy, target):
        stream = me.stream(target, "silent")
        await anext(stream)
        proxy.refuse()
        await proxy.cut()
        with pytest.raises(SessionLost) as info:
            await anext(stream)
        assert info.value.offset == 1 and info.value.ran == "unknown"
        with pytest.raises(LinkError, match="refused"):
            await me.call(target, "echo", {})
        proxy.accept()
        assert await me.call(target, "echo", {"a": 1}) == {"a": 1}


async def test_a_bare_connect_is_no_progress(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are cut within the handshake do not set the back-off to nought."""
    monkeypatch.setattr("hermes_peer.runtime.backoff.FIRST_S", 0.02)
    async with line(home, redial_limit=5) as (_, me, proxy, target):
        stream = me.stream(target, "silent")
        await anext(stream)
        before = proxy.connections
        proxy.on_chunk = lambda way, chunk: None  # taken, and never forwarded
        await proxy.cut()
        with pytest.raises(SessionLost):
            await anext(stream)
        assert proxy.connections - before <= 6


async def test_looking_up_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_peer.runtime.backoff.FIRST_S", 0.02)
    async with line(home) as (served, me, _, _):
        contact = me._life.endpoint.contact(bytes.fromhex(served.fingerprint))  # type: ignore[union-attr]

        def broken() -> Any:
            raise PermissionError(13, "Permission denied")

        contact.find_addresses = broken
        contact.backoff.attempts = contacts.TRIES
        with pytest.raises(LinkError, match="cannot be looked up"):
            await asyncio.wait_for(contact.ready(), 5)


async def test_the_crowd_is_remembered_over_a_short_life(home: Path) -> None:
    """HPC-009, second round: killed again before it could say how many it holds."""
    async with line(home) as (served, me, proxy, target):
        await me.call(target, "echo", {})
        contact = me._life.endpoint.contact(bytes.fromhex(served.fingerprint))  # type: ignore[union-attr]
        contact.backoff.crowd = 200
        await proxy.cut()
        await until(lambda: contact.pump is None)
        assert contact.backoff.crowd == 200


async def test_closing_tells_who_waits(home: Path) -> None:
    async with worker(home) as served:
        me = planner(home, config=QUICK)
        await me.__aenter__()
        call = asyncio.ensure_future(me.call(f"hermes://{served.fingerprint}@127.0.0.1:1", "echo", {}))
        await asyncio.sleep(0.01)
        await me.aclose()
        with pytest.raises(LinkError, match="closed"):
            await call


@pytest.mark.attack(61)
async def test_a_silent_close_is_not_laid_to_a_wrong_key_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_peer.runtime.backoff.FIRST_S", 0.02)
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as busy:
        address = Address.tcp("127.0.0.1", busy.sockets[0].getsockname()[1])
        async with planner(home, listen=False, config=QUICK) as me:
            contact = me._life.endpoint.contact(bytes.fromhex("ab" * 32))  # type: ignore[union-attr]
            contact.find_addresses = lambda: [address]
            with pytest.raises(LinkError, match="without an answer: it is busy, or it does not hold the key"):
                await contact.ready()
