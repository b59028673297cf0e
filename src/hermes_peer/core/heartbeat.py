"""Signs of life of one link: when to ping, when to give up, how far away and how loaded the other side is.

Knows: times handed to it (spec: session, section 5). Refuses to know: frames' bytes, what happens next.
Called by: link. Any inbound byte is life; but pings that stay unanswered also mean dead, because a line may be
lost in one direction only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

IDLE_MISSES = 3
BUSY_MISSES = 5


class Load(NamedTuple):
    """What a peer said of itself in its last PING or PONG: a hint, never a promise."""

    in_flight: int = 0
    queue_ms: int = 0
    accepting: bool = True
    links: int = 1  # so that a crowd spreads its return over more time than a lone link
    ours: int = 0  # how many of those in flight were calls of ours when it said so


class Heartbeat:
    __slots__ = (
        "busy",
        "busy_s",
        "heard",
        "idle_s",
        "idle_since",
        "last_in",
        "load",
        "n",
        "next_ping",
        "rtt",
        "sent",
        "used",
        "waiting",
    )

    def __init__(self, idle_s: float, busy_s: float, now: float) -> None:
        self.idle_s = idle_s
        self.busy_s = busy_s
        self.busy = False
        self.n = 0
        self.sent = 0.0  # when the last ping left
        self.waiting: float | None = None  # since when pings are unanswered
        self.last_in = now
        self.next_ping = now
        self.rtt = 0.0
        self.load = Load()
        self.heard: Callable[[int, float], None] | None = None  # who measures: a PONG's number, and its way in seconds
        self.idle_since = now
        self.used = 0

    @property
    def period(self) -> float:
        return self.busy_s if self.busy else self.idle_s

    @property
    def shortest(self) -> float:
        return min(self.idle_s, self.busy_s)

    @property
    def patience(self) -> float:
        return self.busy_s * BUSY_MISSES if self.busy else self.idle_s * IDLE_MISSES

    def ping(self, now: float, jitter: float) -> int:
        """A ping leaves now; `jitter` in [0, 1) spreads the next one by 20 % either way. Returns its number."""
        self.n += 1
        self.sent = now
        if self.waiting is None:
            self.waiting = now
        self.next_ping = now + self.period * (0.8 + 0.4 * jitter)
        return self.n

    def pong(self, n: int, now: float) -> None:
        """Only the newest number measures the way; any number answers."""
        self.waiting = None
        if n == self.n:
            sample = max(0.0, now - self.sent)
            self.rtt = sample if not self.rtt else 0.75 * self.rtt + 0.25 * sample
            if self.heard is not None:
                self.heard(n, sample)

    def set_busy(self, busy: bool, now: float, used: int = 0) -> None:
        """A stream was opened, or the last one is done. `used`: how many ever were; some came and went unseen."""
        if used != self.used:
            self.used = used
            self.idle_since = now
        if busy != self.busy:
            self.busy = busy
            self.idle_since = now
            self.next_ping = min(self.next_ping, now + self.period)

    def forgive(self, seconds: float) -> None:
        """We ourselves were stopped that long: silence in that time says nothing about the peer."""
        self.last_in += seconds
        if self.waiting is not None:
            self.waiting += seconds

    @property
    def dead_at(self) -> float:
        """When to give the link up, as things stand."""
        dead = self.last_in + self.patience
        return dead if self.waiting is None else min(dead, self.waiting + 2 * self.patience)
