"""Credit: absolute byte limits that never fall, in both directions, on every stream and on the session.

Knows: integers (spec: session, section 3). Refuses to know: frames, streams' contents, who reads.
Called by: session. A DATA frame costs max(length, 64), so that a window bounds items as well as bytes.
"""

from __future__ import annotations


class SendWindow:
    """What we may still send. `limit` comes from the peer and only rises."""

    __slots__ = ("limit", "sent")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.sent = 0

    @property
    def room(self) -> int:
        return self.limit - self.sent

    def raise_to(self, limit: int) -> bool:
        """True if that opened the window; a lower or equal limit is an old frame and says nothing."""
        if limit <= self.limit:
            return False
        self.limit = limit
        return True


class ReceiveWindow:
    """What we let the peer send. Invariant: consumed <= received <= limit.

    `size` is how far the limit runs ahead of what was consumed; `extra` is room lent for one long message.
    """

    __slots__ = ("consumed", "extra", "limit", "received", "renewed_at", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.limit = size
        self.extra = 0
        self.received = 0
        self.consumed = 0
        self.renewed_at = 0.0

    @property
    def unread(self) -> int:
        return self.received - self.consumed

    def consume(self, cost: int) -> bool:
        """Count what the application took; true if half the window is free and the limit should rise."""
        self.consumed += cost
        return self.consumed + self.size + self.extra - self.limit >= self.size >> 1

    def renew(self) -> None:
        """Raise the limit as far as the window allows. Never lowers it: shrinking means not renewing."""
        limit = self.consumed + self.size + self.extra
        if limit > self.limit:
            self.limit = limit


class Permits:
    """Room for messages longer than their window: a few at once, first come first served.

    Without them a message longer than its window would wait for ever: credit returns on consumption, and
    half a message cannot be consumed.
    """

    __slots__ = ("free", "room", "waiting")

    def __init__(self, count: int, room: int) -> None:
        self.free = count
        self.room = room
        self.waiting: dict[int, ReceiveWindow] = {}

    def ask(self, stream: int, window: ReceiveWindow) -> bool:
        """True if the window got its room now; else it waits its turn."""
        if window.extra:
            return False
        if not self.free:
            self.waiting.setdefault(stream, window)
            return False
        self.free -= 1
        window.extra = self.room
        window.renew()
        return True

    def give_back(self, stream: int, window: ReceiveWindow) -> int | None:
        """End of a long message. Returns the stream that has the room now, if one waited."""
        self.waiting.pop(stream, None)
        if not window.extra:
            return None
        window.extra = 0
        self.free += 1
        if not self.waiting:
            return None
        following = next(iter(self.waiting))
        self.ask(following, self.waiting.pop(following))
        return following
