"""Which streams exist, who opened them, how many more may be opened.

Knows: ids and places (spec: session, section 1). Refuses to know: credit, numbers, messages.
Called by: sender, receiver, session. Ids: the originator's odd, the other side's even, rising, never reused while
a trace of them is left; they are compared by serial arithmetic, because a busy session wraps them.
"""

from __future__ import annotations

from hermes_peer.core.config import Config, Settings
from hermes_peer.core.states import Half
from hermes_peer.core.stream import Stream
from hermes_peer.errors import ProtocolError
from hermes_peer.wire.frames import MASK32, Flag

PLACES_KEPT = 8  # for asks and the product's own methods
CEILING_MIN = 2 * PLACES_KEPT
LOADED_MS = 250
TELL_EARLY = 32
SYN = int(Flag.SYN)


def later(a: int, b: int) -> bool:
    """Whether id `a` was given after `b` (RFC 1982)."""
    return 0 < (a - b) & MASK32 < 1 << 31


class Places:
    """The table of streams. `limit` and `granted` count streams ever opened, so that they only rise."""

    __slots__ = (
        "_config",
        "_high",
        "_next_id",
        "_settings",
        "ceiling",
        "forgotten",
        "freed",
        "granted",
        "limit",
        "now",
        "open_mine",
        "opened",
        "opened_peer",
        "originator",
        "spare",
        "streams",
        "tell",
        "told",
    )

    def __init__(self, originator: bool, config: Config, settings: Settings) -> None:
        self.originator = originator
        self.streams: dict[int, Stream] = {}
        self.now = 0.0
        self.limit = settings.send_streams  # how many we may open, ever
        self.granted = settings.send_streams  # how many the peer may open, ever
        self.told = self.granted
        self.tell = False  # the peer should hear of `granted`
        self.freed = False  # a stream that waits for a place may try again
        self.forgotten = 0  # streams that were done
        self.opened = 0
        self.opened_peer = 0
        self.open_mine = 0
        self.ceiling = settings.send_streams  # how many of ours may be open at once: less while the peer is loaded
        self.spare = config.spare  # what growing windows share
        self._next_id = 1 if originator else 2
        self._high = 0
        self._config = config
        self._settings = settings

    def make(self, mine: bool, reserved: bool = False) -> Stream:
        return Stream(mine, self._settings.send_window, self._config.window, reserved)

    def enter(self, stream: Stream) -> bool:
        """Give one of our streams its id, if there is a place for it on both sides."""
        kept, most = (0, self._settings.send_streams) if stream.reserved else (PLACES_KEPT, self.ceiling)
        if self.opened >= self.limit - kept or self.open_mine >= most - kept:
            return False
        while not self._next_id or self._next_id in self.streams:
            self._next_id = (self._next_id + 2) & MASK32
        stream.id = self._next_id
        self._next_id = (self._next_id + 2) & MASK32
        stream.seen_at = self.now
        self.streams[stream.id] = stream
        self.opened += 1
        self.open_mine += 1
        return True

    def admit(self, id: int) -> Stream | None:
        """The stream that the peer opens with `id`; None if that is not so simple: then `arrive` says what is wrong."""
        if (
            not id
            or bool(id & 1) is self.originator
            or self.opened_peer >= self.granted
            or (self._high and not later(id, self._high))
        ):
            return None
        self._high = id
        self.opened_peer += 1
        stream = self.streams[id] = self.make(False)
        stream.id = id
        stream.shown_at = stream.seen_at = self.now
        return stream

    def arrive(self, id: int, flags: int) -> tuple[Stream | None, bool]:
        """A frame of a stream that is not in the table: (new stream, granted), or (None, _) for one that is done.

        Raises ProtocolError for an id that nobody opened.
        """
        if not id or bool(id & 1) == self.originator:
            if not id or not later(self._next_id, id):
                raise ProtocolError(f"stream {id} was never opened")
            return None, True
        if self._high and not later(id, self._high):
            return None, True
        if not flags & SYN:
            raise ProtocolError(f"stream {id} begins without SYN")
        if (stream := self.admit(id)) is not None:
            return stream, True
        self._high = id
        stream = self.make(False)
        stream.id = id
        return stream, False

    def release(self, stream: Stream) -> None:
        """The owner is done with it: our handler has really ended, or our caller has let go."""
        stream.released = True
        self.forget_if_done(stream)

    def forget_if_done(self, stream: Stream) -> None:
        """A place is free when the *handler* has ended, not when a reset arrives (attack 34)."""
        if not stream.released or not stream.closed or self.streams.pop(stream.id, None) is None:
            return
        self.forgotten += 1
        stream.owner = None  # owner and stream hold each other: cut it, or every call is work for the collector
        self.spare += stream.inbound.size - self._config.window
        if stream.mine:
            self.open_mine -= 1
            self.freed = True
            return
        self.granted += 1
        if self.granted - self.told >= TELL_EARLY or self.told - self.opened_peer <= TELL_EARLY:
            self.tell = True

    def heed(self, queue_ms: int) -> None:
        """The peer's newest load: halve what we have open at once for each 250 ms that its work waits (mission L7)."""
        most = self._settings.send_streams
        ceiling = max(most >> queue_ms // LOADED_MS, min(most, CEILING_MIN))
        if ceiling > self.ceiling:
            self.freed = True
        self.ceiling = ceiling

    def raise_limit(self, limit: int) -> bool:
        if limit <= self.limit:
            return False
        self.limit = limit
        self.freed = True
        return True

    @property
    def last_accepted(self) -> int:
        """The highest id of the peer's that we took."""
        return self._high

    @property
    def used(self) -> int:
        """How many streams were ever opened, by either side."""
        return self.opened + self.opened_peer

    @property
    def handlers(self) -> int:
        """How many streams of the peer's are in work here."""
        return len(self.streams) - self.open_mine

    def silent(self, before: float) -> list[Stream]:
        """Streams of the peer's whose handler runs and has shown nothing since `before`."""
        return [
            s
            for s in self.streams.values()
            if not s.mine and s.sending is Half.OPEN and not s.released and s.shown_at < before
        ]
