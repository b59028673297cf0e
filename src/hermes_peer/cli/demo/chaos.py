"""The line's misfortunes, one after another while the work goes on.

Knows: a fault proxy and how far the work is. Refuses to know: what travels. Called by: the demo's command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hermes_peer.testing import FaultProxy

BLACKHOLE_S = 30.0  # longer than any heartbeat waits: only a new connection gets through

Fault = tuple[str, Callable[[FaultProxy], Awaitable[None]]]


async def _reset(proxy: FaultProxy) -> None:
    await proxy.cut()


async def _fin(proxy: FaultProxy) -> None:
    await proxy.fin()


async def _half_close(proxy: FaultProxy) -> None:
    proxy.half_close("down")


async def _stall(proxy: FaultProxy) -> None:
    proxy.stall(0.7)


async def _black_hole(proxy: FaultProxy) -> None:
    for link in proxy.links:
        link.blackhole("both")


async def _one_way(proxy: FaultProxy) -> None:
    for link in proxy.links:
        link.blackhole("up")


async def _mid_frame(proxy: FaultProxy) -> None:
    proxy.cut_after(7, "down")


# One way early on: what still comes through while nobody has noticed must not be all that is left.
FAULTS: tuple[Fault, ...] = (
    ("reset", _reset),
    ("black hole one way", _one_way),
    ("half-closed", _half_close),
    ("stalled for 0.7 s", _stall),
    ("cut in the middle of a frame", _mid_frame),
    ("black hole", _black_hole),
    ("closed", _fin),
    ("reset", _reset),
)


class Chaos:
    """Faults spread over `total` items. `progress(items)` and `back()` are told by whoever watches the work."""

    def __init__(self, proxy: FaultProxy, total: int, say: Callable[[str], None]) -> None:
        self.done = 0
        self._proxy = proxy
        self._say = say
        self._marks = [total * (n + 1) // (len(FAULTS) + 1) for n in range(len(FAULTS))]
        self._items = 0
        self._up = True
        self._tasks: set[asyncio.Task[None]] = set()

    def progress(self, items: int) -> None:
        """So many items have arrived. One fault at a time, and never while the line is down."""
        self._items = items
        if self.done < len(FAULTS) and self._up and items >= self._marks[self.done]:
            name, strike = FAULTS[self.done]
            self.done += 1
            self._up = "stalled" in name
            self._say(name)
            task = asyncio.ensure_future(strike(self._proxy))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def back(self) -> None:
        """The line is whole again."""
        self._up = True
