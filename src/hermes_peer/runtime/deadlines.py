"""One wheel of deadlines for all calls of an agent: nothing is scheduled per call.

Knows: what ends when, to 20 ms (to 2 % of what lies further away). Refuses to know: what it is.
Called by: the agent's two sides.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import Protocol

log = logging.getLogger("hermes_peer.call")
TICKS = 50  # per second


class Timed(Protocol):
    """`tick` is the wheel's; a thing stands in it at most once."""

    tick: int

    def expire(self) -> None: ...


class Deadlines:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wheel: dict[int, dict[Timed, None]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, thing: Timed, at: float, left: float = 0.0) -> None:
        """Call thing.expire() at loop time `at`, which is `left` seconds away, a little later at most."""
        tick = int(at * TICKS) + 1
        if left > 64:  # else a busy day of streams with a ttl of 24 hours would leave millions of empty buckets
            tick |= 4095 if left > 4096 else 63
        thing.tick = tick
        bucket = self._wheel.get(tick)
        if bucket is None:
            self._wheel[tick] = {thing: None}
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm()
        else:
            bucket[thing] = None

    def discard(self, thing: Timed) -> None:
        bucket = self._wheel.get(thing.tick)
        if bucket is not None:
            bucket.pop(thing, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wheel.clear()
        self._ticks.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._ticks[0] / TICKS, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time() + 0.001
        while self._ticks and self._ticks[0] / TICKS <= now:
            for thing in self._wheel.pop(heapq.heappop(self._ticks), ()):
                try:
                    thing.expire()
                except Exception:
                    log.exception("a deadline could not be acted upon")  # the others still count
        while self._ticks and not self._wheel[self._ticks[0]]:
            del self._wheel[heapq.heappop(self._ticks)]
        if self._ticks and self._timer is None:
            self._arm()
