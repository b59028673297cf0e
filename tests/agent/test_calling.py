"""agent/calling: one call that waits for one answer, on the wire's terms."""

from __future__ import annotations

import asyncio
import gc
import math
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, DeadlineExceeded, Request, SessionLost, UsageError
from hermes_peer.agent.calling import TTL_DEFAULT, TTL_MAX, make_envelope
from hermes_peer.core.states import Reason
from tests.agent.rig import two
from tests.loops import until


def test_envelopes() -> None:
    plain = make_envelope("m", None)
    assert (plain.ttl, plain.attempt, plain.own_id, plain.type) == (TTL_DEFAULT, 1, False, "request")
    assert make_envelope("m", 1e12).ttl == TTL_MAX
    assert make_envelope("m", 5, message_id="x").own_id
    for wrong in (math.nan, math.inf, -math.inf, True, False, "1", b"", object()):
        with pytest.raises(UsageError, match="finite number of seconds"):
            make_envelope("m", wrong)  # type: ignore[arg-type]
    for spent in (0, -1, -0.0):
        with pytest.raises(DeadlineExceeded):
            make_envelope("m", spent)


async def test_a_session_that_is_ended_by_us(home: Path) -> None:
    async with two(home) as (served, me):
        call = asyncio.ensure_future(me.call("worker", "sleep", {"s": 30}))
        await until(lambda: served.started)
        life = me._life
        assert life is not None
        contact = next(iter(life.endpoint.contacts.values()))
        life.endpoint.end_session(contact, Reason.SHUTDOWN, "enough")
        with pytest.raises(SessionLost, match="enough") as info:
            await call
        assert info.value.ran == "unknown"
        await until(lambda: served.ended == ["cancelled"])
        assert await me.call("worker", "echo", {}) == {}


async def test_retry_runs_it_again_where_that_does_no_harm(home: Path) -> None:
    async with two(home) as (served, me):
        attempts: list[int] = []

        @served.method("twice")
        async def twice(request: Request) -> int:
            attempts.append(request.attempt)
            if request.attempt == 1:
                await asyncio.sleep(30)
            return request.attempt

        call = asyncio.ensure_future(me.call("worker", "twice", {}, retry=True))
        await until(lambda: attempts)
        life = me._life
        assert life is not None
        life.endpoint.end_session(next(iter(life.endpoint.contacts.values())), Reason.SHUTDOWN, "enough")
        assert await call == 2
        assert attempts == [1, 2]


async def test_an_error_that_comes_in_the_turn_of_the_cancel_is_not_left_unseen(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("fails")
        async def fails() -> None:
            raise CallError("x")

        for wait in range(12):
            call = asyncio.ensure_future(me.call("worker", "fails"))
            for _ in range(wait):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        gc.collect()  # "exception was never retrieved" would be a complaint of the loop


async def test_a_callers_own_context_in_his_callback(home: Path) -> None:
    import contextvars

    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    async with two(home) as (served, me):

        @served.method("progress")
        async def progress(request: Request) -> None:
            await request.progress("x")

        async def one(name: str) -> list[Any]:
            who.set(name)
            seen: list[Any] = []
            await me.call("worker", "progress", {}, on_progress=lambda _: seen.append(who.get()))
            return seen

        assert await asyncio.gather(one("a"), one("b")) == [["a"], ["b"]]


async def test_what_cannot_be_a_call_is_refused_before_anything_is_sent(home: Path) -> None:
    async with two(home) as (served, me):
        await me.call("worker", "echo", {})
        before = served._life.server.served
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("async iterator", {"items": [1, 2, 3]}),
            ("JSON object", {"payload": [1]}),
            ("JSON object", {"payload": "text"}),
            ("JSON object", {"payload": 0}),
            (r"payload\.x: nan", {"payload": {"x": math.nan}}),
            (r"payload\.x: object has no JSON form", {"payload": {"x": object()}}),
            ("cannot be one", {"method": None}),
            ("cannot be one", {"method": "Bad Name"}),
            ("cannot be one", {"method": ["echo"]}),
            ("cannot be one", {"method": b"echo"}),
        ]
        for words, change in wrong:
            arguments: dict[str, Any] = {"method": "echo", **change}
            with pytest.raises(UsageError, match=words):
                await me.call("worker", **arguments)
            with pytest.raises(UsageError, match=words):
                me.stream("worker", **arguments)
            if "items" not in change:
                with pytest.raises(UsageError, match=words):
                    await me.emit("worker", arguments["method"], arguments.get("payload"))
                contact = next(iter(me._life.endpoint.contacts.values()))  # type: ignore[union-attr]
                with pytest.raises(UsageError, match=words):
                    await me.call_contact(contact, arguments["method"], arguments.get("payload"))
        assert served._life.server.served == before


async def test_an_ask_that_finds_no_session_in_time(home: Path) -> None:
    async with two(home) as (_, me):
        await me.call("worker", "echo", {})
        contact = me._running().endpoint.contact(b"\1" * 32)  # nobody, nowhere

        async def never() -> Any:
            await asyncio.Event().wait()

        contact.ready = never  # type: ignore[method-assign, assignment]
        with pytest.raises(DeadlineExceeded) as info:
            await me.call_contact(contact, "echo", {}, ttl=0.05)
        assert (info.value.timer, info.value.origin) == ("connect", "local")
        del me._running().endpoint.contacts[b"\1" * 32]
