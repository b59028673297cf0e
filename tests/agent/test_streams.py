"""agent/streams: iterating, leaving in every way, credit, many at once."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, Cancelled, LinkError, UsageError
from tests.agent.rig import QUICK, planner, quiet, two, worker
from tests.loops import both_loops, case, until


async def test_order_offset_and_result(home: Path) -> None:
    async with two(home) as (_, me):
        stream = me.stream("worker", "tokens", {"n": 3000}, message_id="s-1")
        assert stream.message_id == "s-1"
        assert [item["i"] async for item in stream] == list(range(3000))
        assert stream.offset == 3000
        assert await stream.result() is None
        assert [item async for item in stream] == []  # it has ended
        assert await me.stream("worker", "tokens", {"n": 3000}).result() is None  # items nobody takes


async def test_raw_bytes(home: Path) -> None:
    pieces = [b"", b"\x00\xff" * 10, bytes(200_000)]
    async with two(home) as (served, me):

        @served.method("raw")
        async def raw() -> Any:
            for piece in pieces:
                yield piece

        assert [piece async for piece in me.stream("worker", "raw")] == pieces


@both_loops
async def test_ways_to_leave(home: Path, loop_kind: str) -> None:
    """HPC-032, HPC-082: whoever closes, however: the handler's `finally` runs, nothing is left, nothing is logged."""
    async with two(home) as (served, me):

        async def leave_by_break() -> None:
            async for _ in me.stream("worker", "silent"):
                break
            gc.collect()

        async def leave_by_exit() -> None:
            async with me.stream("worker", "silent") as stream:
                await anext(stream)

        async def leave_by_aclose_twice() -> None:
            stream = me.stream("worker", "silent")
            await anext(stream)
            await stream.aclose()
            await stream.aclose()
            with pytest.raises(Cancelled):
                await anext(stream)
            with pytest.raises(Cancelled):
                await stream.result()

        async def leave_from_another_task() -> None:
            stream = me.stream("worker", "silent")
            await anext(stream)
            reader = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            await asyncio.ensure_future(stream.aclose())
            with pytest.raises(Cancelled):
                await reader

        async def leave_from_a_cancelled_task() -> None:
            inside = asyncio.Event()

            async def read() -> None:
                async with me.stream("worker", "silent") as stream:
                    await anext(stream)
                    inside.set()
                    await anext(stream)

            task = asyncio.ensure_future(read())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        async def leave_by_an_exception() -> None:
            with pytest.raises(LookupError, match="mine"):  # noqa: PT012
                async with me.stream("worker", "silent") as stream:
                    await anext(stream)
                    raise LookupError("mine")

        async def leave_by_forgetting() -> None:
            stream = me.stream("worker", "silent")
            await anext(stream)
            del stream
            gc.collect()

        async def leave_by_deadline() -> None:
            with pytest.raises(TimeoutError):
                async for _ in me.stream("worker", "silent", ttl=0.2):
                    pass

        async def leave_while_waiting_for_the_result() -> None:
            stream = me.stream("worker", "silent")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stream.result(), 0.05)
            await stream.aclose()

        ways = [value for name, value in list(locals().items()) if name.startswith("leave_")]
        assert len(ways) == 9
        for way in ways:
            served.ended.clear()
            await way()
            await until(lambda: served.ended == ["finally"])
        served.ended.clear()
        await asyncio.gather(*[way() for way in ways for _ in range(5)])
        await until(lambda: len(served.ended) == 45)
        await quiet(served, me)


async def test_ended_streams_that_nobody_read_give_all_back(home: Path) -> None:
    """Items and END were here before the reader broke off: the place and the credit return all the same."""
    async with two(home) as (served, me):
        for _ in range(300):  # more than there are places
            async for _ in me.stream("worker", "tokens", {"n": 20}):
                break
            await me.call("worker", "echo", {})
        stream = me.stream("worker", "tokens", {"n": 20})
        await anext(stream)
        await me.call("worker", "echo", {})  # by now its END is here, too
        assert await stream.result() is None
        await quiet(served, me)
        del stream


async def test_a_stream_that_is_closed_before_and_while_it_opens(home: Path) -> None:
    async with two(home) as (_, me):
        stream = me.stream("worker", "silent")
        await stream.aclose()
        with pytest.raises(UsageError, match="closed"):
            await anext(stream)
        opening = me.stream("worker", "silent")
        task = asyncio.ensure_future(anext(opening))
        await asyncio.sleep(0)
        await opening.aclose()
        with pytest.raises((Cancelled, UsageError, StopAsyncIteration)):
            await task
        again = me.stream("worker", "silent")
        task = asyncio.ensure_future(again.__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(LinkError):
            await anext(me.stream("nobody", "x"))


async def test_two_readers(home: Path) -> None:
    async with two(home) as (_, me), me.stream("worker", "silent") as stream:
        await anext(stream)
        one = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="two tasks"):
            await anext(stream)
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)


async def test_detached(home: Path) -> None:
    go = asyncio.Event()
    async with two(home) as (served, me):

        @served.method("long")
        async def long() -> Any:
            yield 1
            await go.wait()
            for _ in range(500):
                yield "x" * 1000
            served.ended.append("whole")

        async with me.stream("worker", "long") as stream:
            await anext(stream)
            stream.detach()
        go.set()
        await until(lambda: served.ended == ["whole"])
        with pytest.raises(UsageError, match="submit"):
            await stream.resume(1)


@case("HPC-024")
@both_loops
async def test_a_slow_reader_stops_its_own_generator_only(home: Path, loop_kind: str) -> None:
    async with two(home) as (served, me):
        slow = me.stream("worker", "forever", {"size": 1000})
        await anext(slow)
        await until(lambda: _still(served))
        held = served.sent * 1000
        assert held < 2 * 1024 * 1024  # the window and what the generator was about to say
        assert [item["i"] async for item in me.stream("worker", "tokens", {"n": 2000})] == list(range(2000))
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}
        before = served.sent
        for _ in range(before + 200):  # it drains, and flows again
            await anext(slow)
        assert served.sent > before
        await slow.aclose()
        await until(lambda: "finally" in served.ended)


_seen: dict[str, Any] = {}


def _still(served: Any) -> bool:
    """The generator has not moved for 50 looks."""
    if _seen.get("at") != served.sent:
        _seen.update(at=served.sent, looks=0)
    _seen["looks"] += 1
    return bool(_seen["looks"] > 50)


async def test_128_streams_one_of_which_is_never_read(home: Path) -> None:
    async with two(home) as (_, me):
        stuck = me.stream("worker", "forever", {"size": 1000})
        await anext(stuck)

        async def read() -> int:
            return sum([1 async for _ in me.stream("worker", "tokens", {"n": 300, "size": 200})])

        assert await asyncio.gather(*[read() for _ in range(127)]) == [300] * 127
        assert sum([1 async for _ in me.stream("worker", "tokens", {"n": 5})]) == 5
        await stuck.aclose()


@both_loops
async def test_thousands_of_streams_opened_and_cancelled(home: Path, loop_kind: str) -> None:
    """10,000 in all, over both loops: all credit and all places come back (attack 34 must not hit honest callers)."""
    async with two(home) as (served, me):

        async def one(n: int) -> None:
            stream = me.stream("worker", "forever", {"size": (n % 3) * 500})
            if n % 4 == 0:
                task = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            elif n % 4 == 1:
                await stream.__aenter__()
            else:
                await anext(stream)
            await stream.aclose()

        async def several(start: int) -> None:
            for n in range(start, start + 100):
                await one(n)

        await asyncio.gather(*[several(k * 100) for k in range(50)])
        await quiet(served, me)
        assert me.status()["links"][0]["breaks"] == 0
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}


async def test_a_stream_over_a_cut_line_notices_nothing(home: Path) -> None:
    async with two(home, config=QUICK) as (_, me):
        got = []
        async for item in me.stream("worker", "tokens", {"n": 4000, "size": 100}):
            got.append(item["i"])
            if len(got) in (100, 2000):
                for pump in list(me._life.endpoint.pumps.values()):  # type: ignore[union-attr]
                    pump.abort()
        assert got == list(range(4000))
        assert me.status()["links"][0]["links"] >= 3


async def test_a_stream_of_a_worker_that_goes_away_says_how_far_it_came(home: Path) -> None:
    async with planner(home) as me:
        async with worker(home) as served:
            stream = me.stream("worker", "silent")
            await anext(stream)
        with pytest.raises((CallError, LinkError, Exception)) as info:
            await anext(stream)
        assert getattr(info.value, "reason", "") == "shutdown" or getattr(info.value, "offset", 0) == 1
        assert served.ended == ["finally"]
        with pytest.raises(Exception, match=str(info.value)[:20]):
            await stream.result()


async def test_how_long_a_handler_has_shown_nothing(home: Path) -> None:
    """Mission L13: a silent handler that lives is shown alive; a line that stands still is not."""
    async with two(home, config=QUICK) as (_, me):
        assert await me.call("worker", "echo", {}) == {}
        await asyncio.sleep(0.15)  # the time of the link's last byte is not that of a stream that opens later
        stream = me.stream("worker", "silent")
        assert stream.silent_s is None
        async with stream:
            assert await anext(stream) == 0
            assert stream.silent_s is not None and stream.silent_s < 0.1
            call = stream._call
            assert call is not None
            seen = call.stream.seen_at
            for _ in range(2):  # a sign of life, and then another
                await until(lambda before=seen: call.stream.seen_at > before)  # type: ignore[misc]
                assert stream.silent_s < 0.1
                seen = call.stream.seen_at
            call.stream.seen_at -= 30.0
            call.began -= 60.0
            assert 30.0 <= stream.silent_s < 31.0
        assert stream.silent_s is None
        fast = me.stream("worker", "forever")
        async with fast:
            await anext(fast)
            call = fast._call
            assert call is not None
            call.stream.seen_at = call.began = 0.0
            for _ in range(2000):
                await anext(fast)
            assert fast.silent_s is not None and fast.silent_s < 0.5  # items alone are life
