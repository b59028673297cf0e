"""agent/outcomes: an id of the application's own is handled once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, Cancelled, Code, DeadlineExceeded, Unavailable
from hermes_peer.agent import outcomes
from hermes_peer.agent.outcomes import Outcomes
from tests.agent.rig import two
from tests.loops import case, until


class Waiter:
    def __init__(self) -> None:
        self.answer: bytes | None = None

    def answer_stored(self, answer: bytes) -> None:
        self.answer = answer


def begin(kept: Outcomes, id: str, waiter: Any = None, payload: bytes = b"{}", method: str = "m") -> bool:
    return kept.begin(b"peer", id, method, payload, waiter or Waiter())


def test_a_second_one_waits_and_a_third_is_answered_at_once() -> None:
    kept = Outcomes(lambda: 0.0)
    second, third = Waiter(), Waiter()
    assert begin(kept, "a")
    assert not begin(kept, "a", second)
    assert second.answer is None
    kept.end(b"peer", "a", b"done")
    assert second.answer == b"done"
    assert not begin(kept, "a", third)
    assert third.answer == b"done"
    kept.end(b"peer", "a", b"other")  # the first outcome stays
    fourth = Waiter()
    begin(kept, "a", fourth)
    assert fourth.answer == b"done"
    assert kept.begin(b"another principal", "a", "m", b"{}", Waiter())  # type: ignore[arg-type]
    kept.end(b"nobody", "a", b"")


@pytest.mark.parametrize(("method", "payload"), [("m", b"{ }"), ("n", b"{}"), ("m{", b"}"), ("m", b"")])
def test_the_same_id_for_something_else(method: str, payload: bytes) -> None:
    kept = Outcomes(lambda: 0.0)
    assert begin(kept, "a")
    with pytest.raises(CallError, match="another method or payload") as info:
        begin(kept, "a", payload=payload, method=method)
    assert (info.value.reason, info.value.code) == ("conflict", Code.ERROR_INVALID_REQUEST)


def test_kept_for_ten_minutes_or_the_calls_own_time() -> None:
    now = [0.0]
    kept = Outcomes(lambda: now[0])
    begin(kept, "running")
    begin(kept, "short")
    begin(kept, "long")
    kept.end(b"peer", "long", b"x", until=7000.0)
    kept.end(b"peer", "short", b"x")
    now[0] = 601.0
    assert not begin(kept, "long")
    now[0] = 7001.0  # what still runs does not hold the others
    assert begin(kept, "long")
    assert begin(kept, "short")
    assert not begin(kept, "running")


def test_bounded_and_never_forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(outcomes, "PEER_MAX", 100_000)
    kept = Outcomes(lambda: now[0])
    count = 0
    with pytest.raises(Unavailable) as info:  # noqa: PT012
        while begin(kept, f"id-{count}"):
            kept.end(b"peer", f"id-{count}", b"x" * 1000, until=30.0)
            count += 1
    assert info.value.retryable
    assert 70 < count < 100
    assert not begin(kept, "id-0")
    assert kept.size() <= 100_000 + 2000
    now[0] = 601
    assert begin(kept, "new")
    assert kept.size() < 1000


def test_a_full_one_makes_room_of_what_nobody_may_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door at 100 calls a second with ids of their own: ten minutes of them would not fit."""
    now = [0.0]
    monkeypatch.setattr(outcomes, "PEER_MAX", 100_000)
    kept = Outcomes(lambda: now[0])
    for n in range(5000):
        now[0] += 0.1
        assert begin(kept, f"id-{n}")
        kept.end(b"peer", f"id-{n}", b"x" * 200, until=now[0] + 5)
        assert kept.size() <= 100_500
    waiter = Waiter()
    assert not begin(kept, "id-4999", waiter) and waiter.answer is not None  # the youngest are all there
    assert not begin(kept, "id-4951")


def test_a_large_outcome_is_not_kept() -> None:
    kept = Outcomes(lambda: 0.0)
    begin(kept, "a")
    first, later = Waiter(), Waiter()
    begin(kept, "a", first)
    kept.end(b"peer", "a", b"x" * 70_000)
    begin(kept, "a", later)
    assert first.answer == b"x" * 70_000
    assert later.answer is not None and b"outcome_unknown" in later.answer


@case("HPC-010")
async def test_calls_with_an_id_of_their_own(home: Path) -> None:
    go = asyncio.Event()
    async with two(home) as (served, me):
        runs: list[str] = []

        @served.method("once")
        async def once(x: int = 0) -> int:
            runs.append("once")
            await go.wait()
            return len(runs)

        calls = [asyncio.ensure_future(me.call("worker", "once", {}, message_id="m-1")) for _ in range(5)]
        await until(lambda: runs)
        calls[3].cancel()  # one that only waits gives up: the others do not hear of it
        with pytest.raises(DeadlineExceeded):
            await me.call("worker", "once", {}, message_id="m-1", ttl=0.05)
        await me.call("worker", "echo", {})
        go.set()
        got = await asyncio.gather(*calls, return_exceptions=True)
        assert [g for n, g in enumerate(got) if n != 3] == [1] * 4
        assert await me.call("worker", "once", {}, message_id="m-1") == 1
        with pytest.raises(CallError, match="another method or payload") as info:
            await me.call("worker", "once", {"x": 1}, message_id="m-1")
        assert info.value.reason == "conflict"
        with pytest.raises(CallError, match="another method"):
            await me.call("worker", "echo", {}, message_id="m-1")
        assert await me.call("worker", "once", {}, message_id="m-2") == 2
        assert await me.call("worker", "once") == 3
        assert await me.call("worker", "once") == 4


async def test_a_refusal_does_not_become_the_outcome_of_what_runs(home: Path) -> None:
    go = asyncio.Event()
    async with two(home) as (served, me):

        @served.method("slow", min_ttl=1)
        async def slow() -> str:
            await go.wait()
            return "whole"

        first = asyncio.ensure_future(me.call("worker", "slow", {}, message_id="m"))
        await until(lambda: served._life.server.running)
        with pytest.raises(DeadlineExceeded):
            await me.call("worker", "slow", {}, message_id="m", ttl=0.5)
        go.set()
        assert await first == "whole"
        assert await me.call("worker", "slow", {}, message_id="m") == "whole"


async def test_an_error_is_an_outcome_too(home: Path) -> None:
    async with two(home) as (served, me):
        runs = []

        @served.method("fails")
        async def fails() -> None:
            runs.append(1)
            raise CallError("sold_out", "none left")

        for _ in range(3):
            with pytest.raises(CallError, match="none left"):
                await me.call("worker", "fails", {}, message_id="f")
        assert len(runs) == 1
        task = asyncio.ensure_future(me.call("worker", "sleep", {"s": 9}, message_id="c"))
        await until(lambda: "sleep" in served.started)
        task.cancel()
        await until(lambda: served.ended)
        with pytest.raises(Cancelled):
            await me.call("worker", "sleep", {"s": 9}, message_id="c")


def test_a_long_lived_one_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(outcomes, "PEER_MAX", 100_000)
    kept = Outcomes(lambda: now[0])
    begin(kept, "day")
    kept.end(b"peer", "day", b"x", until=86_400.0)
    for n in range(1000):  # the first of them all is done at once, and kept for a day
        now[0] = n * 60.0
        assert begin(kept, f"id-{n}")
        kept.end(b"peer", f"id-{n}", b"x" * 1000)
        assert kept.size() < 20_000
    assert not begin(kept, "day")


def test_what_room_was_made_of_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(outcomes, "PEER_MAX", 10_000)
    kept = Outcomes(lambda: now[0])
    for n in range(2000):
        now[0] += 0.1  # all within the ten minutes of the first
        assert begin(kept, f"id-{n}")
        kept.end(b"peer", f"id-{n}", b"x" * 100)
    assert len(kept._next[b"peer"]) <= 2 * len(kept._kept[b"peer"]) + 40
    assert begin(kept, "id-0")  # forgotten, and new: the note of its first life must not end this one
    kept.end(b"peer", "id-0", b"y", until=now[0] + 9000)
    now[0] += 700
    assert not begin(kept, "id-0")


async def test_a_result_that_is_too_large_for_the_session(home: Path) -> None:
    """Whoever waits for the outcome of another's call hears of it, too; and no place is left taken."""
    go = asyncio.Event()
    async with two(home) as (served, me):

        @served.method("big")
        async def big() -> str:
            await go.wait()
            return "x" * served.config.message

        calls = [asyncio.ensure_future(me.call("worker", "big", {}, message_id="b", ttl=5)) for _ in range(3)]
        await until(lambda: served._life.server.running and served._life.server.served == 3)
        go.set()
        for error in await asyncio.gather(*calls, me.call("worker", "big", {}, message_id="b"), return_exceptions=True):
            assert isinstance(error, CallError) and error.reason == "result_too_large"


async def test_what_a_handler_heard_from_a_draining_agent_is_no_refusal_of_its_own(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("nested")
        async def nested() -> None:
            raise Unavailable("draining", "another agent is shutting down")

        with pytest.raises(Unavailable) as info:
            await me.call("worker", "nested")
        assert info.value.reason == "downstream"
