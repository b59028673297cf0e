"""Virtual time, and connections made of nothing: what a socket can do to bytes, in the order of one clock.

Knows: when a byte arrives, if it does. Refuses to know: frames, nodes, real time.
Called by: pair and the simulator.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable

Deliver = Callable[[bytes], None]
"""What an end does with arrived bytes; empty bytes are the end of the stream."""


class Clock:
    """A heap of what happens when. `now` moves only here, and only to the next thing that happens."""

    __slots__ = ("_heap", "_n", "events", "now")

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Call `do` at `when`, or next if that has passed; equal times keep their order."""
        self._n += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._n, do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.at(self.now + seconds, do)

    @property
    def next(self) -> float:
        """When something happens next; infinity if never."""
        return self._heap[0][0] if self._heap else float("inf")

    def step(self) -> None:
        """Let the next thing happen."""
        self.now, _, do = heapq.heappop(self._heap)
        self.events += 1
        do()

    def run_until(self, when: float) -> None:
        """Everything up to and including `when`; then it is `when`."""
        while self._heap and self._heap[0][0] <= when:
            self.step()
        self.now = max(self.now, when)


class Way:
    """One direction of a line: first in, first out, later."""

    __slots__ = (
        "_armed",
        "_clock",
        "_queue",
        "_shut",
        "cut_at",
        "deliver",
        "delivered",
        "drained",
        "flying",
        "hole",
        "latency",
        "line",
        "pieces",
        "stalled",
    )

    def __init__(
        self, clock: Clock, line: Line, latency: Callable[[], float], pieces: Callable[[bytes], Iterable[bytes]]
    ) -> None:
        self.line = line
        self.latency = latency
        self.pieces = pieces
        self.deliver: Deliver | None = None  # None: nobody is there yet, bytes wait
        self.delivered = 0
        self.flying = 0  # bytes on their way: what a socket's buffers hold
        self.drained: Callable[[], None] | None = None  # told whenever something has arrived
        self.cut_at: int | None = None  # the line dies when so many bytes were delivered
        self.hole = False
        self.stalled = 0.0  # nothing arrives before
        self._clock = clock
        self._queue: deque[tuple[float, bytes]] = deque()
        self._shut = False
        self._armed = False

    def write(self, data: bytes) -> None:
        """`data` on its way; empty data is the end."""
        if self.hole or self._shut or self.line.dead:
            return
        self._shut = not data
        due = self._clock.now + self.latency()
        if self._queue:
            due = max(due, self._queue[-1][0])
        self._queue.append((due, data))
        self.flying += len(data)
        if len(self._queue) == 1:
            self.wake()

    def wake(self) -> None:
        """Look again when the next bytes are due."""
        if self._queue and not self._armed:
            self._armed = True
            self._clock.at(max(self._queue[0][0], self.stalled), self._arrive)

    def stall(self, until: float) -> None:
        self.stalled = until

    def vanish(self) -> None:
        """A black hole: what is on its way, and whatever follows, arrives nowhere; nobody is told."""
        self.hole = True
        self._queue.clear()
        self.flying = 0

    def shut(self) -> None:
        """Half-close from outside: what is on its way is lost, then comes the end."""
        self._queue.clear()
        self.flying = 0
        self._shut = False
        self.write(b"")

    def _arrive(self) -> None:
        self._armed = False
        now, queue = self._clock.now, self._queue
        if self.line.dead or self.deliver is None:
            return
        if not queue or queue[0][0] > now or self.stalled > now:
            self.wake()
            return
        parts = []
        while queue and queue[0][0] <= now and queue[0][1]:
            parts.append(queue.popleft()[1])
        if parts:
            self._hand_over(b"".join(parts))
        elif queue:
            queue.popleft()
            self.deliver(b"")
            return
        self.wake()

    def _hand_over(self, data: bytes) -> None:
        ending = self.cut_at is not None and self.delivered + len(data) >= self.cut_at
        if ending:
            assert self.cut_at is not None
            data = data[: max(0, self.cut_at - self.delivered)]
        self.delivered += len(data)
        self.flying -= len(data)
        for piece in self.pieces(data):
            if self.line.dead or self.hole or self.deliver is None:
                return
            if piece:
                self.deliver(piece)
        if ending:
            self.line.cut()
        elif self.drained is not None:
            self.drained()


def _whole(data: bytes) -> Iterable[bytes]:
    return (data,)


class Line:
    """A connection. End 0 dialled, end 1 was dialled; `ways[n]` carries what end n writes."""

    __slots__ = ("_clock", "born", "buffer", "dead", "harmed", "ways")

    def __init__(
        self,
        clock: Clock,
        latency: Callable[[], float] = lambda: 0.001,
        pieces: Callable[[bytes], Iterable[bytes]] = _whole,
    ) -> None:
        self._clock = clock
        self.born = clock.now
        self.dead = False
        self.buffer = 1 << 30  # bytes on their way in one direction, beyond which an end should not write
        self.harmed = False  # a fault has touched it
        self.ways = (Way(clock, self, latency, pieces), Way(clock, self, latency, pieces))

    def join(self, end: int, deliver: Deliver) -> None:
        """From now on `deliver` takes what arrives at `end`."""
        way = self.ways[1 - end]
        way.deliver = deliver
        way.wake()

    def write(self, end: int, data: bytes) -> None:
        self.ways[end].write(data)

    def close(self, end: int) -> None:
        """An orderly close: what was written arrives, then the end; nobody reads here any more."""
        self.ways[1 - end].deliver = _nobody
        self.ways[end].write(b"")

    def cut(self) -> None:
        """Both ends read the end now, in the middle of whatever; what is on its way is lost."""
        if self.dead:
            return
        self.dead = True
        for way in self.ways:
            if way.deliver is not None:
                self._clock.at(self._clock.now, _End(way.deliver))

    def abandon(self) -> None:
        """Both ends stay silent for ever: no byte, no end."""
        for way in self.ways:
            way.vanish()


class _End:
    __slots__ = ("_deliver",)

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver

    def __call__(self) -> None:
        self._deliver(b"")


def _nobody(data: bytes) -> None:
    pass
