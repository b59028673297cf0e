"""The abuse budget: what a peer may send that moves nothing (attacks 31, 32, 34, 35).

Knows: points, and that they come back with time. Refuses to know: frames.
Called by: receiver and link, which share the one of their session, so that a new link is no new budget.
"""

from __future__ import annotations

from hermes_peer.errors import ProtocolError

BUDGET = 10_000.0
REFILL = 100.0  # a second

NOTHING = 1.0  # a limit or mark that is not new, a duplicate, a sign of life of nothing
CANCEL = 0.2  # a reset: each costs us a handler, and honest callers cancel by the hundred
PING = 10.0
STREAM_DONE = 4.0  # earned back: limits and signs of life may cross a stream's end, a few of them each
UNKNOWN = 10.0  # a type that we do not know and need not
FAULT = 10.0  # what makes us reset a stream


class Abuse(ProtocolError):
    """The peer overdrew its budget."""


class Budget:
    __slots__ = ("_at", "_spent")

    def __init__(self) -> None:
        self._spent = 0.0
        self._at = 0.0

    def earn(self, points: float) -> None:
        """What was honest work makes room for what may cross it on the way."""
        self._spent = max(0.0, self._spent - points)

    def charge(self, cost: float, now: float) -> None:
        """Raises Abuse once the budget is overdrawn."""
        self._spent = max(0.0, self._spent - (now - self._at) * REFILL) + cost
        self._at = now
        if self._spent > BUDGET:
            raise Abuse("too many frames that move nothing")
