"""Calls from this process: one dispatcher for links and doors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import (
    CallError,
    DeadlineExceeded,
    Final,
    HermesAgent,
    MethodNotFound,
    PermissionDenied,
    Request,
    UsageError,
)
from hermes_peer.agent import local
from hermes_peer.agent.local import FEED_MAX, LOOPBACK, WINDOW, LocalCall, Principal
from hermes_peer.core.config import Config
from tests.agent.rig import quiet
from tests.loops import both_loops, until


def served(home: Path, **options: Any) -> Any:
    agent: Any = HermesAgent("local", home=home, listen=False, drain_s=0.05, **options)
    agent.ran, agent.ended, agent.sent = [], [], 0

    @agent.method("add", public=True)
    async def add(x: int, y: int = 1) -> int:
        return x + y

    @agent.method("who", public=True)
    async def who(request: Request) -> Any:
        agent.ran.append(request.message_id)
        return [request.caller, request.caller_fingerprint, request.trace_id, request.ttl_left > 5]

    @agent.method("count", public=True)
    async def count(n: int, size: int = 1) -> AsyncIterator[str]:
        try:
            for i in range(n):
                agent.sent = i + 1
                yield "x" * size
            yield Final(n)
        finally:
            agent.ended.append("count")

    @agent.method("plain", public=True)
    def plain(n: int) -> int:
        time.sleep(0.001)
        return n

    @agent.method("wait", public=True)
    async def wait(s: float = 60) -> str:
        try:
            await asyncio.sleep(s)
            return "waited"
        except asyncio.CancelledError:
            agent.ended.append("wait")
            raise

    @agent.method("sum", public=True)
    async def sum_(request: Request) -> int:
        return sum([n async for n in request.items])

    @agent.method("asks", public=True)
    async def asks(request: Request) -> Any:
        await request.progress("asking")
        return await request.ask("colour", {"of": "sky"}, ttl=0.2)

    @agent.method("hidden", min_ttl=3)
    async def hidden() -> str:
        return "hidden"

    return agent


@both_loops
async def test_a_call(home: Path, loop_kind: str) -> None:
    async with served(home) as agent:
        call = agent.serve(LOOPBACK, "add", b'{"x":2}')
        assert call.done and call.answer() == (True, b"3")  # it did not have to wait, so no task was made
        assert await call.result() == 3
        assert await agent.serve(LOOPBACK, "plain", b'{"n":5}').result() == 5
        assert await agent.serve("door:uid:7", "add", b'{"x":1}').result() == 2
        caller = await agent.serve(LOOPBACK, "who", ttl=9, trace_id="t").result()
        assert caller == [LOOPBACK, "", "t", True]
        await quiet(agent)


async def test_refusals_are_those_of_a_link(home: Path) -> None:
    async with served(home) as agent:
        with pytest.raises(MethodNotFound, match="public=True") as hidden:
            await agent.serve(LOOPBACK, "hidden", ttl=30).result()
        with pytest.raises(MethodNotFound) as unknown:
            await agent.serve(LOOPBACK, "nothing").result()
        assert hidden.value.details["allowed"] == unknown.value.details["allowed"]
        assert "hidden" not in unknown.value.details["allowed"]
        for name in ("hermes.status", "hermes.describe", "hermes.tap"):
            with pytest.raises(MethodNotFound):
                await agent.serve(LOOPBACK, name).result()
        with pytest.raises(PermissionDenied, match="door:other may not call add"):
            await agent.serve("door:other", "add", b'{"x":1}').result()
        with pytest.raises(CallError, match="expected int"):
            await agent.serve(LOOPBACK, "add", b'{"x":"a"}').result()
        with pytest.raises(DeadlineExceeded) as spent:
            await agent.serve(LOOPBACK, "add", b'{"x":1}', ttl=0).result()
        assert spent.value.reason == "expired"
        with pytest.raises(CallError, match="message_id"):
            await agent.serve(LOOPBACK, "add", b'{"x":1}', message_id="é").result()
        with pytest.raises(CallError, match="no default"):
            await agent.serve(LOOPBACK, "").result()
        with pytest.raises(MethodNotFound):
            await agent.serve(LOOPBACK, "No Name!").result()
        for bad in ("", "loopback", "door:", "door:é", "door:" + "x" * 200, "home", "fp:" + "a" * 64):
            with pytest.raises(UsageError, match="principal"):
                agent.serve(bad, "add")
        agent._life.server.draining = True
        with pytest.raises(CallError) as draining:
            await agent.serve(LOOPBACK, "add", b'{"x":1}').result()
        assert draining.value.reason == "draining"
        await quiet(agent)
    with pytest.raises(UsageError, match="not running"):
        agent.serve(LOOPBACK, "add")


async def test_a_rule_taken_back_ends_what_runs(home: Path) -> None:
    async with served(home) as agent:
        call = agent.serve(LOOPBACK, "wait")
        policy = agent._life.home.policy_file
        policy.write_text("# nothing\n")
        agent._life._reload()
        with pytest.raises(PermissionDenied, match="taken back"):
            await call.result()


async def test_min_ttl_and_the_deadline(home: Path) -> None:
    async with served(home) as agent:
        policy = agent._life.home.policy_file
        policy.write_text('[[rule]]\ncaller="door:x"\nagent="*"\nmethod="*"\nallow=true\n')
        agent._life._reload()
        with pytest.raises(DeadlineExceeded, match="needs 3 s"):
            await agent.serve("door:x", "hidden", ttl=2).result()
        assert await agent.serve("door:x", "hidden", ttl=5).result() == "hidden"
        call = agent.serve("door:x", "wait", ttl=0.05)
        with pytest.raises(DeadlineExceeded):
            await call.result()
        assert agent.ended == ["wait"] and call.ttl_left == 0


async def test_an_own_id_is_handled_once_for_each_principal(home: Path) -> None:
    async with served(home) as agent:
        for _ in range(2):
            await agent.serve(LOOPBACK, "who", message_id="m").result()
        await agent.serve("door:uid:5", "who", message_id="m").result()
        assert agent.ran == ["m", "m"]
        with pytest.raises(CallError, match="another method or payload"):
            await agent.serve(LOOPBACK, "who", b'{"a":1}', message_id="m").result()
        first, second = (agent.serve(LOOPBACK, "wait", b'{"s":0.05}', message_id="w") for _ in range(2))
        assert await asyncio.gather(first.result(), second.result()) == ["waited", "waited"]
        waiting = [agent.serve(LOOPBACK, "wait", message_id="v") for _ in range(2)]
        waiting[1].cancel()  # who only waited for it leaves alone
        with pytest.raises(CallError, match="gave the call up"):
            await waiting[1].result()
        assert not waiting[0].done
        waiting[0].cancel()
        with pytest.raises(CallError):
            await waiting[0].result()
        await quiet(agent)


async def test_items_and_the_brake(home: Path) -> None:
    async with served(home) as agent:
        call = agent.serve(LOOPBACK, "count", b'{"n":3}')
        assert [item async for item in call] == ["x"] * 3 and await call.result() == 3
        size = 10_000
        call = agent.serve(LOOPBACK, "count", b'{"n":1000,"size":10000}')
        await asyncio.sleep(0.02)
        assert WINDOW / size <= agent.sent <= WINDOW / size + 2  # then it waits for its reader
        before = agent.sent
        for _ in range(before):
            assert await call.next_message() is not None
        await until(lambda: agent.sent > before)
        assert len([1 async for _ in call]) == 1000 - before
        with pytest.raises(CallError) as large:
            await agent.serve(LOOPBACK, "count", b'{"n":1,"size":6000000}').result()
        assert large.value.reason == "item_too_large"
        call = agent.serve(LOOPBACK, "wait", b'{"s":0.05}')
        first = asyncio.ensure_future(call.next_message())
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="one reader"):
            await call.next_message()
        assert await first is None and await call.result() == "waited"
        await quiet(agent)


async def test_cancel_and_detach(home: Path) -> None:
    async with served(home) as agent:
        call = agent.serve(LOOPBACK, "wait", message_id="c")
        assert local.cancel(agent, "door:uid:1", "c") is False
        assert local.cancel(agent, LOOPBACK, "c") is True
        with pytest.raises(CallError) as cancelled:
            await call.result()
        assert cancelled.value.reason == "cancelled" and local.cancel(agent, LOOPBACK, "c") is False
        call.cancel()
        call.detach()
        left = agent.serve(LOOPBACK, "count", b'{"n":300,"size":10000}', message_id="d", detach=True)
        assert left.stays
        await asyncio.sleep(0.01)
        left.detach()
        await until(lambda: agent.sent == 300)  # nobody brakes it any more
        assert await agent.serve(LOOPBACK, "count", b'{"n":300,"size":10000}', message_id="d").result() == 300
        await quiet(agent)


async def test_items_from_the_caller(home: Path) -> None:
    async with served(home) as agent:
        call = agent.serve(LOOPBACK, "sum", items=True)
        for n in range(4):
            call.feed(b"%d" % n)
        call.feed_end()
        assert await call.result() == 6
        call.feed(b"1")
        assert await agent.serve(LOOPBACK, "sum").result() == 0
        call = agent.serve(LOOPBACK, "wait", items=True)
        call.feed(b'"' + b"x" * FEED_MAX + b'"')
        with pytest.raises(CallError, match="send them slower"):
            await call.result()
        await quiet(agent)


async def test_asking_back(home: Path) -> None:
    async with served(home) as agent:
        heard: list[Any] = []

        def now(call: LocalCall, method: str, payload: bytes) -> str:
            heard.append((call.message_id, method, payload))
            return "blue"

        call = agent.serve(LOOPBACK, "asks", on_ask=now, on_progress=heard.append)
        assert await call.result() == "blue"
        assert heard == [(call.message_id, "colour", b'{"of":"sky"}'), {"state": "asking"}]

        async def later(call: LocalCall, method: str, payload: bytes) -> str:
            await asyncio.sleep(0)
            return "grey"

        assert await agent.serve(LOOPBACK, "asks", on_ask=later).result() == "grey"

        async def never(call: LocalCall, method: str, payload: bytes) -> str:
            await asyncio.sleep(60)
            return ""

        with pytest.raises(DeadlineExceeded, match="did not answer colour in time") as late:
            await agent.serve(LOOPBACK, "asks", on_ask=never).result()
        assert late.value.timer == "ask"
        with pytest.raises(CallError) as nobody:
            await agent.serve(LOOPBACK, "asks").result()
        assert nobody.value.reason == "no_answer"
        await quiet(agent)


async def test_the_agent_s_limit_is_the_same_both_ways(home: Path) -> None:
    async with served(home, config=Config(message=2000)) as agent:
        with pytest.raises(CallError) as large:
            await agent.serve(LOOPBACK, "count", b'{"n":1,"size":3000}').result()
        assert large.value.reason == "item_too_large"


async def test_what_a_door_may_know(home: Path) -> None:
    async with served(home) as agent:
        names = [method["name"] for method in local.describe(agent, LOOPBACK)["methods"]]
        assert "add" in names and "hidden" not in names
        assert local.describe(agent, "door:x")["methods"] == []
        assert local.state_of(agent) == "ready" and local.load_of(agent) == 0
        assert local.home_of(agent).path == home
    assert local.state_of(agent) == "stopped"


def test_principals() -> None:
    assert Principal("door:x").names == {"door:x"}
    assert Principal("door:uid:5").names == {"door:uid:5", LOOPBACK}
    for length in range(1, 60):  # what stands for a door never looks like a fingerprint
        assert len(Principal("door:" + "x" * length).fingerprint) != 32


async def test_principals_are_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PRINCIPALS_MAX", 3)
    async with served(home) as agent:
        running = agent.serve("door:uid:0", "wait")
        for n in range(20):
            agent.serve(f"door:uid:{n}", "add", b'{"x":1}')
        kept = agent._life.server.locals._principals
        assert len(kept) <= 3 and "door:uid:0" in kept
        running.cancel()
        await quiet(agent)


async def test_ten_thousand_calls_leave_nothing(home: Path) -> None:
    async with served(home) as agent:
        for _ in range(10_000):
            call = agent.serve(LOOPBACK, "add", b'{"x":1}')
            assert call.done
        assert call.session is None and call.inbound.request is None  # no circle that waits for the collector
        assert agent._life.server.locals.principal(LOOPBACK).calls == {}
        await quiet(agent)
