"""agent/again: which failed call is made again, when and where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_peer import HermesAgent, Request, SessionLost, Unavailable
from hermes_peer.agent import again
from hermes_peer.agent.again import Again
from hermes_peer.agent.calling import make_envelope
from hermes_peer.core.session import Session
from hermes_peer.core.states import Reason
from tests.agent.rig import planner, two, worker
from tests.loops import until


def test_the_spec_and_the_pauses_agree() -> None:
    assert again.RETRY_S == (1.0, 2.0, 4.0)
    spec = Path(__file__).parents[2] / "docs" / "spec" / "messages.md"
    assert "at most three times, after 1, 2 and 4 s" in spec.read_text()


def end_session(me: HermesAgent) -> None:
    life = me._running()
    for contact in life.endpoint.contacts.values():
        life.endpoint.end_session(contact, Reason.SHUTDOWN, "enough")


async def test_three_retries_each_after_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(again.asyncio, "sleep", sleep)
    life: Any = SimpleNamespace(loop=SimpleNamespace(time=lambda: 100.0 + sum(slept)))
    life.agent = SimpleNamespace(_life=life)
    contact: Any = object()
    lost, ran = SessionLost("gone", ran="no"), SessionLost("gone", ran="unknown")
    envelope = make_envelope("m", 30)
    one = Again(life, "worker", envelope, 130.0)
    assert [await one.wait(lost, contact) for _ in range(5)] == [True, True, True, False, False]
    assert slept == [1, 2, 4]
    assert (envelope.attempt, envelope.ttl) == (4, 30 - 7)
    assert not await Again(life, "worker", make_envelope("m", 30), 130.0).wait(ran, contact)
    assert await Again(life, "worker", make_envelope("m", 30), 130.0, harmless=True).wait(ran, contact)
    slept.clear()
    assert not await Again(life, "worker", make_envelope("m", 30), 101.0).wait(lost, contact)  # no time is left
    assert not await Again(life, "worker", make_envelope("m", 30), 130.0).wait(Unavailable("full"), contact)
    assert not slept


async def test_a_call_that_provably_did_not_run_is_made_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "RETRY_S", (0.01,))
    async with two(home) as (served, me):
        await me.call("worker", "echo", {})
        real, fates = Session.fate, ["no", "no", "no"]
        monkeypatch.setattr(Session, "fate", lambda self, stream: fates.pop() if fates else real(self, stream))
        life = me._running()
        for call in (me.call("worker", "sleep", {"s": 0.05}), me.stream("worker", "sleep", {"s": 0.05}).result()):
            waiting = asyncio.ensure_future(call)
            before = len(served.started)
            await until(lambda before=before: len(served.started) > before)
            for contact in life.endpoint.contacts.values():
                life.endpoint.end_session(contact, Reason.SHUTDOWN, "enough")
            assert await waiting == "slept"
        assert len(fates) == 1


def more(agent: Any) -> Any:
    agent.heard = []

    @agent.event("news")
    async def news(request: Request) -> None:
        agent.heard.append(request.attempt)

    return agent


async def each_way(me: HermesAgent) -> None:
    assert await me.call("worker", "echo", {}) == {}
    assert [item["i"] async for item in me.stream("worker", "tokens", {"n": 2})] == [0, 1]
    assert await me.stream("worker", "echo", {"a": 1}).result() == {"a": 1}
    await me.emit("worker", "news")


async def test_an_instance_without_a_line_takes_what_a_draining_one_refuses(home: Path) -> None:
    """A rolling restart: the old one drains, the new one has begun and nobody has called it yet."""
    async with planner(home) as me:
        one, two_ = more(worker(home, drain_s=9.0)), more(worker(home))
        await one.__aenter__()
        slow = asyncio.ensure_future(me.call("worker", "sleep", {"s": 0.6}))
        await until(lambda: one.started)
        closing = asyncio.ensure_future(one.aclose())
        await until(lambda: one._life is not None and one._life.server.draining)
        async with two_:
            for _ in range(3):
                await each_way(me)
            assert len(two_.started) == 6 and len(two_.heard) == 3
            assert not one.heard and one.started == ["sleep"]
            assert await slow == "slept"
            await closing


async def test_calls_streams_and_events_hear_of_another_at_the_refusal(home: Path) -> None:
    """Its heartbeat has not told yet that it drains."""
    async with more(worker(home)) as one, more(worker(home)) as other, planner(home) as me:
        key = bytes.fromhex(one.fingerprint)
        for way in range(4):
            await me.call(one.fingerprint, "echo", {})
            one._life.server.draining = False
            assert me._life is not None
            contact = me._life.endpoint.contacts[key]
            assert contact.pump is not None and contact.pump.link is not None
            beat = contact.pump.link.heartbeat
            beat.load = beat.load._replace(accepting=True, in_flight=0)
            me._life.directory._keep_route("worker", [contact], me._life.loop.time())
            one._life.server.draining = True
            before = one._life.server.served
            if way == 0:
                assert await me.call("worker", "echo", {}) == {}
            elif way == 1:
                assert [item["i"] async for item in me.stream("worker", "tokens", {"n": 2})] == [0, 1]
            elif way == 2:
                assert await me.stream("worker", "echo", {"a": 1}).result() == {"a": 1}
            else:
                await me.emit("worker", "news")
                assert other.heard
            assert one._life.server.served <= before + 1
            one._life.server.draining = False


async def test_where_all_drain_each_is_asked_once(home: Path) -> None:
    async with worker(home) as one, worker(home) as other, planner(home) as me:
        for agent in (one, other):
            await me.call(agent.fingerprint, "echo", {})
            agent._life.server.draining = True
        before = one._life.server.served + other._life.server.served
        for call in (
            me.call("worker", "echo"),
            anext(me.stream("worker", "echo")),
            me.stream("worker", "echo").result(),
        ):
            with pytest.raises(Unavailable) as info:
                await call
            assert info.value.reason == "draining"
        assert one._life.server.served + other._life.server.served <= before + 6


async def test_items_that_went_up_are_not_sent_twice(home: Path) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    async with worker(home) as one, worker(home) as other, planner(home) as me:
        for agent in (one, other):
            await me.call(agent.fingerprint, "echo", {})
        one._life.server.draining = other._life.server.draining = True
        with pytest.raises(Unavailable):
            await me.call("worker", "sum", items=numbers())
        with pytest.raises(Unavailable):
            await me.stream("worker", "sum", items=numbers()).result()
        one._life.server.draining = other._life.server.draining = False
