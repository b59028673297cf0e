"""agent/serving: who may call what, draining, what ends when rules change."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, HermesAgent, MethodNotFound, PermissionDenied, SessionLost, Unavailable
from tests.agent.rig import planner, quiet, two, worker
from tests.loops import until

CLOSED = '[[rule]]\ncaller = "home"\nagent = "*"\nmethod = ["echo", "read"]\nallow = true\n'


def write_policy(home: Path, text: str) -> None:
    (home / "policy.toml").write_text(text)
    os.chmod(home / "policy.toml", 0o600)


async def test_unknown_methods_and_what_the_answer_suggests(home: Path) -> None:
    async with two(home) as (_, me):
        with pytest.raises(MethodNotFound, match="did you mean `tokens`") as info:
            await me.call("worker", "token")
        assert info.value.details["nearest"] == ["tokens"]
        assert not any(name.startswith("hermes.") for name in info.value.details["allowed"])
        with pytest.raises(CallError, match="names no method") as no_name:
            await me.call("worker", "")
        assert no_name.value.reason == "no_method"


async def test_a_default_method(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("any", default=True)
        async def any_(request: Any) -> str:
            return f"default of {request.method!r}"

        assert await me.call("worker", "") == "default of ''"


async def test_a_refusal_tells_nothing_of_methods(home: Path) -> None:
    async with two(home) as (_, me):
        await me.call("worker", "echo", {})
        write_policy(home, CLOSED)
        await until(lambda: not _allows(me, "tokens"))
        for name in ("tokens", "nothing.of.that.name", "token"):
            with pytest.raises(PermissionDenied) as info:
                await me.call("worker", name)
            assert isinstance(info.value, PermissionError)
            assert info.value.details is None
            assert "echo" not in str(info.value) and "did you mean" not in str(info.value)
        assert await me.call("worker", "echo", {}) == {}


def _allows(agent: HermesAgent, method: str) -> bool:
    life = agent._life
    assert life is not None
    contact = next(iter(life.endpoint.contacts.values()))
    return life.directory.allows(contact, method)


@pytest.mark.attack(57)
async def test_a_policy_that_is_revoked_in_mid_stream(home: Path) -> None:
    async with two(home) as (served, me):
        stream = me.stream("worker", "silent")
        await anext(stream)
        call = asyncio.ensure_future(me.call("worker", "sleep", {"s": 30}))
        await until(lambda: served.started == ["sleep"])
        write_policy(home, CLOSED)
        with pytest.raises(PermissionDenied, match="taken back"):
            await asyncio.wait_for(anext(stream), 2)
        with pytest.raises(PermissionDenied, match="taken back"):
            await call
        await until(lambda: sorted(served.ended) == ["cancelled", "finally"])
        assert await me.call("worker", "echo", {}) == {}


async def test_draining(home: Path) -> None:
    async with worker(home, drain_s=2.0) as served, planner(home) as me:
        slow = asyncio.ensure_future(me.call("worker", "sleep", {"s": 0.2}))
        await until(lambda: served.started)
        closing = asyncio.ensure_future(served.aclose())
        await until(lambda: served._life is not None and served._life.server.draining)
        with pytest.raises(Unavailable, match="shutting down") as info:
            await me.call("worker", "echo", {})
        assert info.value.reason == "draining" and info.value.retryable
        assert await slow == "slept"  # what runs goes on
        await closing
        assert not served.running


async def test_what_does_not_end_within_the_grace_is_cancelled_and_says_so(home: Path) -> None:
    async with worker(home) as served, planner(home) as me:
        slow = asyncio.ensure_future(me.call("worker", "sleep", {"s": 30}))
        await until(lambda: served.started)
        await served.aclose()
        with pytest.raises(Unavailable, match="shut down while the call ran") as info:
            await slow
        assert (info.value.reason, info.value.retryable) == ("shutdown", True)
        assert served.ended == ["cancelled"]
        await quiet(me)


async def test_another_instance_takes_what_a_draining_one_refuses(home: Path) -> None:
    async with worker(home, drain_s=9.0) as one, worker(home) as two_, planner(home) as me:
        for agent in (one, two_):
            await me.call(agent.fingerprint, "echo", {})
        slow = asyncio.ensure_future(me.call(one.fingerprint, "sleep", {"s": 0.5}))
        await until(lambda: one.started[-1:] == ["sleep"])
        closing = asyncio.ensure_future(one.aclose())
        before = len(two_.started)
        for _ in range(20):
            assert await me.call("worker", "echo", {}) == {}
        assert len(two_.started) == before + 20
        assert await slow == "slept"
        await closing


async def test_places_run_out_and_come_back(home: Path) -> None:
    """128 places less the eight that asks keep: what is too much waits its turn, and is not refused."""
    async with two(home) as (served, me):
        calls = [asyncio.ensure_future(me.call("worker", "sleep", {"s": 0.2})) for _ in range(150)]
        await until(lambda: len(served.started) == 120)
        assert me.status()["calls"]["waiting"] == 120
        assert await asyncio.gather(*calls) == ["slept"] * 150


async def test_events_and_their_errors(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two(home) as (served, me):

        @served.event("bad.event")
        async def bad() -> None:
            raise CallError("no", "not that one")

        with pytest.raises(CallError, match="not that one"):
            await me.emit("worker", "bad.event")
        with pytest.raises(MethodNotFound):
            await me.emit("worker", "no.event")


async def test_a_session_that_ends_takes_its_handlers_along(home: Path) -> None:
    async with worker(home) as served:
        async with planner(home) as me:
            call = asyncio.ensure_future(me.call("worker", "sleep", {"s": 30}))
            await until(lambda: served.started)
        with pytest.raises(SessionLost):
            await call
        await until(lambda: served.ended == ["cancelled"])
