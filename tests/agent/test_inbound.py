"""agent/inbound: one served call: handlers of every shape, its ends, its errors, its place."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, Cancelled, Code, DeadlineExceeded, Final, Request, Unavailable, UsageError
from hermes_peer.wire import messages
from hermes_peer.wire.messages import Envelope, encode_open, pack_item
from tests.agent.rig import QUICK, planner, quiet, two, worker
from tests.loops import both_loops, case, until

seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


@both_loops
async def test_every_shape(home: Path, loop_kind: str) -> None:
    async with two(home) as (served, me):

        @served.method("plain")
        def plain(x: int) -> list[Any]:
            return [x * 2, threading.current_thread() is threading.main_thread()]

        @served.method("coroutine")
        async def coroutine(x: int) -> int:
            await asyncio.sleep(0)
            return x * 2

        @served.method("generator")
        def generator(n: int) -> Any:
            yield from range(n)
            yield Final(["end", n])

        @served.method("aiterator")
        async def aiterator(n: int) -> Any:
            for i in range(n):
                yield i
                await asyncio.sleep(0)

        def around(function: Any) -> Any:
            @functools.wraps(function)
            def wrapper(*args: Any, **keywords: Any) -> Any:
                return function(*args, **keywords)

            return wrapper

        served.add_method("wrapped", around(coroutine))
        assert await me.call("worker", "plain", {"x": 4}) == [8, False]
        assert await me.call("worker", "coroutine", {"x": 4}) == 8
        assert await me.call("worker", "wrapped", {"x": 4}) == 8
        async with me.stream("worker", "generator", {"n": 100}) as stream:
            assert [x async for x in stream] == list(range(100))
            assert await stream.result() == ["end", 100]
        assert [x async for x in me.stream("worker", "aiterator", {"n": 3})] == [0, 1, 2]
        assert await me.call("worker", "generator", {"n": 3}) == ["end", 3]  # as a call: the items are passed over


@case("HPC-029")
async def test_a_blocking_handler_blocks_nobody_else(home: Path) -> None:
    async with two(home) as (served, me):
        blocked = [asyncio.ensure_future(me.call("worker", "block", {"s": 0.3})) for _ in range(80)]
        await until(lambda: served.threads.alive == 64)
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            await me.call("worker", "echo", {})
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.2
        assert served.threads.waiting == me_waiting(served) > 0
        assert await asyncio.gather(*blocked) == ["blocked"] * 80
        assert served.threads.waiting == 0


def me_waiting(served: Any) -> int:
    waiting = served.status()["calls"]["threads_waiting"]
    assert isinstance(waiting, int)
    return waiting


async def test_the_place_of_a_thread_is_free_when_it_has_ended(home: Path) -> None:
    go = threading.Event()
    async with two(home) as (served, me):

        @served.method("held")
        def held() -> None:
            go.wait(5)

        with pytest.raises(DeadlineExceeded):
            await me.call("worker", "held", ttl=0.05)
        life = served._life
        await until(lambda: not life.server.running)
        session = next(c.session for c in life.endpoint.contacts.values())
        assert len(session.places.streams) == 1  # attack 34: a reset frees nothing that still runs
        go.set()
        await until(lambda: not session.places.streams)


async def test_a_generator_in_a_thread_is_closed_after_its_step(home: Path) -> None:
    go, inside = threading.Event(), threading.Event()
    log: list[str] = []
    async with two(home) as (served, me):

        @served.method("steps")
        def steps() -> Any:
            try:
                yield 1
                inside.set()
                go.wait(5)
                log.append("stepped")
                yield 2
            finally:
                log.append("closed")

        async with me.stream("worker", "steps") as stream:
            assert await anext(stream) == 1
            await until(inside.is_set)
        await until(lambda: not served._life.server.running)
        assert log == []
        go.set()
        await until(lambda: log == ["stepped", "closed"])

        async with me.stream("worker", "steps") as stream:
            assert [x async for x in stream] == [1, 2]
        assert log[2:] == ["stepped", "closed"]


@both_loops
async def test_exceptions_stay_at_home(home: Path, loop_kind: str, caplog: pytest.LogCaptureFixture) -> None:
    class Own(CallError):
        pass

    async with two(home) as (served, me):

        @served.method("early")
        async def early() -> None:
            raise LookupError("a secret")

        @served.method("late")
        async def late() -> None:
            await asyncio.sleep(0)
            raise LookupError("a secret")

        @served.method("thread")
        def thread() -> None:
            raise LookupError("a secret")

        @served.method("stop")
        def stop() -> None:
            next(iter(()))

        @served.method("stream")
        async def stream() -> Any:
            yield 1
            raise LookupError("a secret")

        @served.method("exit")
        async def leave() -> None:
            raise SystemExit(3)

        def careless(function: Any) -> Any:
            @functools.wraps(function)
            def wrapper(*args: Any, **keywords: Any) -> Any:
                raise LookupError("a secret")

            return wrapper

        served.add_method("wrapper", careless(early))
        for name in ("early", "late", "thread", "stop", "stream", "exit", "wrapper"):
            caplog.clear()
            with pytest.raises(CallError, match="reference") as info:
                await me.call("worker", name, trace_id="a-trace")
            error = info.value
            assert (error.code, error.reason, error.trace_id) == (Code.ERROR_INTERNAL, "internal", "a-trace")
            assert "secret" not in str(error)
            (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
            assert str(error).split()[-1] in record.getMessage() and "a-trace" in record.getMessage()
            assert record.exc_info is not None
        caplog.clear()

        @served.method("own")
        async def own() -> None:
            raise Own("sold_out", "none are left", details={"sku": 7}, retryable=True, retry_after=2)

        with pytest.raises(CallError) as info:
            await me.call("worker", "own", trace_id="t-1")
        error = info.value
        assert (error.reason, error.message, error.details) == ("sold_out", "none are left", {"sku": 7})
        assert (error.code, error.retryable, error.retry_after) == (Code.ERROR_APPLICATION, True, 2)
        assert error.trace_id == "t-1"

        @served.method("surrogate")
        async def surrogate() -> None:
            raise CallError("own\ud800", "text \udfff", details={1: object()})

        with pytest.raises(CallError, match=r"text \?"):
            await me.call("worker", "surrogate")


async def test_what_is_wrong_downstream_is_not_told_upstream(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two(home) as (served, me):

        @served.method("forward")
        async def forward() -> Any:
            return await served.call("hidden-agent", "x")

        with pytest.raises(Unavailable) as info:
            await me.call("worker", "forward")
        assert "hidden-agent" not in str(info.value) and "running" not in str(info.value)
        assert any("hidden-agent" in str(r.exc_info) for r in caplog.records)
        caplog.clear()

        @served.method("large")
        async def large() -> Any:
            yield "x" * (6 * 1024 * 1024)

        with pytest.raises(CallError, match="over the limit") as large_info:
            await me.call("worker", "large")
        assert large_info.value.reason == "item_too_large"


async def test_a_handler_that_is_cancelled_in_its_first_turn(home: Path) -> None:
    """OPEN and RST in one record: the handler sees a cancellation, not a closed coroutine."""
    log: list[str] = []
    async with two(home) as (served, me):

        @served.method("wait")
        async def wait() -> None:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                log.append("cancelled")
                raise

        await me.call("worker", "echo", {})
        contact = next(iter(me._life.endpoint.contacts.values()))  # type: ignore[union-attr]
        session = contact.session
        assert session is not None
        for n in range(50):
            stream = session.open()
            contact.send(stream, encode_open(Envelope(method="wait", message_id=f"m{n}"), b"{}"), True)
            session.reset(stream)
            session.release(stream)
        await until(lambda: len(log) == 50)


@both_loops
async def test_context_is_the_agents_and_of_no_other_call(home: Path, loop_kind: str) -> None:
    async with two(home) as (served, me):

        @served.method("swap")
        async def swap(value: str) -> list[str]:
            before = seen.get()
            seen.set(value)
            await asyncio.sleep(0.001)
            return [before, seen.get()]

        @served.method("quick")
        async def quick(value: str) -> str:
            before = seen.get()
            seen.set(value)
            return before

        @served.method("thread")
        def thread() -> str:
            return seen.get()

        seen.set("of the first dialler")  # the link is made in this context
        got = await asyncio.gather(*[me.call("worker", "swap", {"value": str(n)}) for n in range(40)])
        assert got == [["nothing", str(n)] for n in range(40)]
        assert [await me.call("worker", "quick", {"value": str(n)}) for n in range(3)] == ["nothing"] * 3
        assert await me.call("worker", "thread") == "nothing"

        @me.method("swap_back")
        async def swap_back() -> str:
            return seen.get()

        @served.method("ask")
        async def ask(request: Request) -> Any:
            return await request.ask("swap_back")

        assert await me.call("worker", "ask") == "nothing"


async def test_cancel_scopes_in_the_first_step(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("scopes")
        async def scopes() -> list[Any]:
            first = asyncio.current_task()
            async with asyncio.timeout(5):
                await asyncio.sleep(0)
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0.001))
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(5)
            except TimeoutError:
                pass
            return [first is asyncio.current_task(), first is not None, first.cancelling() if first else 1]

        assert await asyncio.gather(*[me.call("worker", "scopes") for _ in range(20)]) == [[True, True, 0]] * 20

        @served.method("itself")
        async def itself() -> str:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return "done anyway"

        assert await me.call("worker", "itself") == "done anyway"
        assert await me.call("worker", "scopes") == [True, True, 0]  # the idle task was not spoilt


async def test_raw_messages_that_make_no_sense(home: Path) -> None:
    async with two(home) as (served, me):
        await me.call("worker", "echo", {})
        contact = next(iter(me._life.endpoint.contacts.values()))  # type: ignore[union-attr]
        for number, envelope in enumerate(
            (
                b'{"method":"echo","message_id":"m","ttl":"30"}',
                b'{"method":"echo","message_id":"m","ttl":true}',
                b'{"method":"echo","message_id":"m","ttl":NaN}',
                b'{"method":"echo","message_id":"m","ttl":1e999}',
                b'{"method":"echo"}',
                b'{"method":"echo","message_id":"\xc3\xb6"}',
                b'{"method":"echo","message_id":"m","trace_id":"' + b"x" * 129 + b'"}',
                b'{"type":"response","message_id":"m"}',
                b'{"method":"echo","message_id":"m","attempt":0}',
                b"nonsense",
            )
        ):
            error = await _raw(contact, b"\x01" + len(envelope).to_bytes(4, "big") + envelope + b"{}")
            assert error.code == Code.ERROR_INVALID_REQUEST, number
            assert error.reason == "invalid_envelope"
            if b"ttl" in envelope and b"1e999" not in envelope and b"NaN" not in envelope:
                assert "ttl" in str(error)
        for ttl in (b"0", b"-1", b"-0.0"):
            envelope = b'{"method":"echo","message_id":"m","ttl":' + ttl + b"}"
            error = await _raw(contact, b"\x01" + len(envelope).to_bytes(4, "big") + envelope + b"{}")
            assert error.code == Code.ERROR_TASK_TIMEOUT
        assert len(served.started) == 1
        assert await me.call("worker", "echo", {"still": "here"}) == {"still": "here"}
        assert me.status()["links"][0]["breaks"] == 0


async def _raw(contact: Any, message: bytes) -> CallError:
    """Send a hand-made OPEN; the error that comes back."""
    outgoing = _outgoing(contact)
    contact.send(outgoing.stream, message, True)
    with pytest.raises(CallError) as info:
        await asyncio.wait_for(asyncio.shield(outgoing.future), 5)
    return info.value


def _outgoing(contact: Any) -> Any:
    from hermes_peer.agent.calling import Outgoing
    from hermes_peer.runtime.deadlines import Deadlines

    return Outgoing(contact, contact.session, Envelope(message_id="m", ttl=5.0), Deadlines(contact.endpoint.loop))


@pytest.mark.parametrize("wrong", ["index", "short", "kind", "nomore"])
async def test_items_that_break_the_order_end_the_link(home: Path, wrong: str) -> None:
    async with worker(home) as served, planner(home) as me:
        await me.call("worker", "echo", {})
        contact = next(iter(me._life.endpoint.contacts.values()))  # type: ignore[union-attr]
        outgoing = _outgoing(contact)
        contact.send(outgoing.stream, encode_open(Envelope(method="sum", message_id="m", ttl=5.0), b"{}"))
        bad = {
            "index": pack_item(messages.ITEM, 3) + b"1",
            "short": bytes([messages.ITEM]) + b"\0\0",
            "kind": bytes([99]) + b"x",
            "nomore": messages.NOMORE_MESSAGE,  # without FIN
        }[wrong]
        contact.send(outgoing.stream, bad)
        await until(lambda: me.status()["links"] == [] or me.status()["links"][0]["state"] != "connected")
        await until(lambda: not served._life.server.running)
        outgoing.future.exception()
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}  # a later call makes a new link


async def test_a_detached_handler_outlives_its_callers_session(home: Path) -> None:
    """And says nothing on the session that the same caller makes next."""
    go = asyncio.Event()
    async with worker(home) as served:

        @served.method("long")
        async def long() -> Any:
            try:
                yield 0
                await go.wait()
                for _ in range(2000):
                    yield "x" * 1000
                served.ended.append("whole")
            finally:
                served.ended.append("finally")

        async with planner(home) as me:
            stream = me.stream("worker", "long", detach=True)
            assert await anext(stream) == 0
        async with planner(home) as me:
            assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}
            go.set()
            await until(lambda: served.ended == ["whole", "finally"])
            assert await me.call("worker", "echo", {"a": 2}) == {"a": 2}
            assert me.status()["links"][0]["breaks"] == 0
            await quiet(me, served)
        del stream


async def test_a_caller_that_closes_ends_its_handlers(home: Path) -> None:
    async with worker(home) as served:
        async with planner(home) as me:
            stream = me.stream("worker", "silent")
            await anext(stream)
        await until(lambda: served.ended == ["finally"])
        with pytest.raises(Exception, match="closed"):
            await anext(stream)
        await quiet(served)


async def test_two_readers_of_the_items(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("both")
        async def both(request: Request) -> str:
            one = asyncio.ensure_future(anext(request.items))
            await asyncio.sleep(0)
            try:
                with pytest.raises(UsageError, match="two tasks"):
                    await anext(request.items)
                return str(await one)
            finally:
                one.cancel()

        async def items() -> Any:
            await asyncio.sleep(0.02)
            yield "a"
            await asyncio.sleep(5)

        assert await me.call("worker", "both", items=items()) == "a"


async def test_a_handler_that_takes_no_notice_of_being_cancelled(home: Path) -> None:
    go = asyncio.Event()
    async with two(home, config=QUICK) as (served, me):

        @served.method("stubborn")
        async def stubborn() -> str:
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    served.ended.append("not I")
            return "late"

        with pytest.raises(DeadlineExceeded):
            await me.call("worker", "stubborn", ttl=0.05)
        await until(lambda: served.ended)
        assert len(served._life.server.running) == 1
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}
        go.set()


async def test_cancelled_by_its_own_word(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("gives_up")
        async def gives_up() -> None:
            raise asyncio.CancelledError

        with pytest.raises(Cancelled):
            await me.call("worker", "gives_up")
