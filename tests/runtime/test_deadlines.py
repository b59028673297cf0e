"""runtime/deadlines: one wheel for all calls."""

from __future__ import annotations

import asyncio

import pytest

from hermes_peer.runtime.deadlines import Deadlines
from tests.loops import both_loops, until


class Thing:
    def __init__(self, log: list[str], name: str, wheel: Deadlines | None = None, other: Thing | None = None) -> None:
        self.tick = 0
        self.log, self.name, self.wheel, self.other = log, name, wheel, other

    def expire(self) -> None:
        self.log.append(self.name)
        if self.wheel is not None and self.other is not None:
            self.wheel.discard(self.other)
        if self.name == "broken":
            raise LookupError


@both_loops
async def test_in_order_and_never_early(loop_kind: str) -> None:
    loop = asyncio.get_running_loop()
    wheel, log = Deadlines(loop), []
    now = loop.time()
    at = {}
    for name, s in (("c", 0.15), ("a", 0.05), ("past", -1), ("b", 0.1)):
        thing = Thing(log, name)
        at[name] = now + s
        wheel.add(thing, now + s)
    gone = Thing(log, "gone")
    wheel.add(gone, now + 0.1)
    wheel.discard(gone)
    wheel.discard(gone)
    await until(lambda: len(log) == 4)
    assert log == ["past", "a", "b", "c"]
    assert loop.time() >= at["c"]
    assert not wheel._wheel and not wheel._ticks and wheel._timer is None


async def test_one_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    wheel, log = Deadlines(loop), []
    for name in ("broken", "same tick"):
        wheel.add(Thing(log, name), loop.time() + 0.01)
    wheel.add(Thing(log, "later"), loop.time() + 0.06)
    await until(lambda: log == ["broken", "same tick", "later"])
    assert "could not be acted upon" in caplog.text
    caplog.clear()


async def test_far_ones_share_buckets() -> None:
    loop = asyncio.get_running_loop()
    wheel, log = Deadlines(loop), []
    now = loop.time()
    things = [Thing(log, str(n)) for n in range(5000)]
    for n, thing in enumerate(things):
        wheel.add(thing, now + 86_400 + n / 50, 86_400)
        assert 0 <= thing.tick / 50 - (now + 86_400 + n / 50) < 0.02 * 86_400
    assert len(wheel._wheel) <= 3
    for thing in things:
        wheel.discard(thing)
    wheel.close()
    wheel.close()
    assert not log
