"""The receiving side of a session: numbers, duplicates, fragments, credit given.

Knows: what has arrived and what was consumed. Refuses to know: links, clocks, what a message says.
Called by: session. Raises ProtocolError, which only the link catches; what stands before the fault was taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_peer.core import budget
from hermes_peer.core.budget import Budget
from hermes_peer.core.config import Config, Settings
from hermes_peer.core.events import Event
from hermes_peer.core.flow import Permits, ReceiveWindow
from hermes_peer.core.places import Places
from hermes_peer.core.sender import DATA, FIN, MORE, RST, SYN, Sender
from hermes_peer.core.states import Half, HalfInput
from hermes_peer.core.stream import Stream
from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import COST_MIN, HEADER, HEADER_SIZE, MAGIC, MASK32, VERSION, Type

OVERSIZE = b'{"code":6,"reason":"message_too_large","message":"the message is longer than this agent accepts"}'
OVER_SESSION = "the peer sent more than the session's credit"
NO_PLACE = b'{"code":6,"reason":"too_many_streams","message":"more streams than granted","retryable":true}'

# Names of their own: a look-up in an enum class costs as much as a comparison.
QUICK_S = 0.005  # a round trip is never taken for shorter: the turn of two event loops is part of it
SYN_FIN = SYN | FIN
MESSAGE, OPEN, ENDED, END = Event.MESSAGE, Half.OPEN, Half.ENDED, HalfInput.END

Other = Callable[[int, int, int, bytes], bool]


class Receiver:
    """`credits` is latched: whose limit the peer must hear of; key 0 is the session itself."""

    def __init__(
        self,
        config: Config,
        settings: Settings,
        places: Places,
        sender: Sender,
        events: list[tuple[Any, ...]],
    ) -> None:
        self.next = config.first_sequence
        self.window = ReceiveWindow(config.session_window)
        self.permits = Permits(config.permits, settings.message + settings.message // 8)
        self.credits: dict[int, Stream | None] = {}
        self.ack_at: float | None = None
        self.budget = Budget()
        self.pressed = False  # the process is over its memory budget: nothing is renewed
        self.rtt = 0.0
        self._acked = config.first_sequence
        self._unacked = 0
        self._forgotten = 0
        self._config = config
        self._message_max = settings.message
        self._places = places
        self._sender = sender
        self._events = events

    def receive(self, plain: bytes, now: float, other: Other) -> None:
        """The frames of one opened record. What is not the session's goes to `other`, which says whether to go on."""
        places = self._places
        places.now = now
        unpack, streams, events, session = HEADER.unpack_from, places.streams, self._events, self.window
        at, end = 0, len(plain)
        count = self.next
        while at < end:
            if end - at < HEADER_SIZE:
                raise ProtocolError("a frame header is cut short")
            magic, version, kind, flags, id, sequence, size = unpack(plain, at)
            at += HEADER_SIZE + size
            if magic != MAGIC or version != VERSION or at > end:
                raise ProtocolError("a frame does not fit its record")
            if kind != DATA:
                if not self._control(kind, flags, id, plain[at - size : at], other):
                    return
                continue
            if sequence != self.next & MASK32:
                if (sequence - self.next) & MASK32 < 1 << 31:
                    raise ProtocolError(f"frame {sequence} came before frame {self.next & MASK32}")
                self.ack_at = now  # we had it: tell the peer at once
                self.budget.charge(budget.NOTHING, now)
                continue
            self.next += 1
            self._unacked += size
            stream = streams.get(id)
            if stream is None:
                if not flags & SYN or flags & ~SYN_FIN or (stream := places.admit(id)) is None:
                    self._data(None, id, flags, plain[at - size : at])
                    continue
            elif flags & ~FIN or stream.partial is not None or stream.receiving is not OPEN:
                self._data(stream, id, flags, plain[at - size : at])
                continue
            if size > COST_MIN:
                cost = size
            elif size:
                cost = COST_MIN
            else:
                raise ProtocolError(f"stream {id}: an empty frame that says nothing")
            window = stream.inbound
            window.received += cost
            session.received += cost
            if session.received > session.limit:
                raise ProtocolError(OVER_SESSION)
            if window.received > window.limit:
                raise ProtocolError(f"stream {id} sent more than its credit")
            if flags & FIN:
                stream.receiving = ENDED
                events.append((MESSAGE, stream, plain[at - size : at], True, cost))
            else:
                events.append((MESSAGE, stream, plain[at - size : at], False, cost))
        if self.next != count:
            self._plan_ack(now)

    def _plan_ack(self, now: float) -> None:
        config = self._config
        if self.next - self._acked >= config.ack_frames or self._unacked >= config.ack_bytes:
            self.ack_at = now
        elif self.ack_at is None:
            self.ack_at = now + config.ack_s

    def acked(self) -> int:
        """The mark to tell the peer now, in whatever frame carries it."""
        self._acked = self.next
        self._unacked = 0
        self.ack_at = None
        return self.next

    def _control(self, kind: int, flags: int, id: int, body: bytes, other: Other) -> bool:
        moved = True
        if kind == Type.CREDIT:
            moved = self._credit(frames.Credit.decode(body, id), id)
        elif kind == Type.ACK:
            moved = self._sender.acked(frames.decode_ack(body))
        elif kind == Type.WARM:
            stream = self._places.streams.get(id)
            moved = stream is not None
            if stream is not None:
                stream.seen_at = self._places.now
                self._events.append((Event.WARM, stream, None, False, 0))
        else:
            return other(kind, flags, id, body)
        if not moved:
            self.budget.earn(budget.STREAM_DONE * (self._places.forgotten - self._forgotten))
            self._forgotten = self._places.forgotten
            self.budget.charge(budget.NOTHING, self._places.now)
        return True

    def _credit(self, credit: frames.Credit, id: int) -> bool:
        """A limit of ours has risen; false if it has not."""
        if not id:
            opened = self._sender.window.raise_to(credit.limit)
            return self._places.raise_limit(credit.streams or 0) or opened
        stream = self._places.streams.get(id)
        if stream is None or not stream.raise_to(credit.limit):
            return False
        self._sender.schedule(stream)
        return True

    def _data(self, stream: Stream | None, id: int, flags: int, body: bytes) -> None:
        """Every DATA frame that is not one whole message on an open stream."""
        cost = 0 if flags & RST else max(len(body), COST_MIN)
        self.window.received += cost
        if self.window.received > self.window.limit:
            raise ProtocolError(OVER_SESSION)
        if stream is None:
            stream, granted = self._places.arrive(id, flags)
            if stream and not granted:
                self.budget.charge(budget.FAULT, self._places.now)
                self._sender.resets.append((stream, NO_PLACE))
            if not stream or not granted:  # counted, given back, never seen
                self._consume(cost)
                return
        elif flags & SYN:
            raise ProtocolError(f"stream {id} is opened twice")
        window = stream.inbound
        window.received += cost
        if window.received > window.limit:
            raise ProtocolError(f"stream {id} sent more than its credit")
        if flags & RST:
            self.budget.charge(budget.CANCEL, self._places.now)
            fresh = stream.receiving is not Half.ABORTED
            stream.arrive(HalfInput.RESET)
            if fresh:
                self.abort(stream)
                self._events.append((Event.RESET, stream, body, False, 0))
                self._places.forget_if_done(stream)
            return
        stream.arrive(END if flags & FIN else HalfInput.DATA)
        if stream.receiving is Half.ABORTED:
            self._absorb(stream)
            return
        if not body:
            raise ProtocolError(f"stream {id}: an empty frame that says nothing")
        if stream.partial is not None or flags & MORE:
            if flags & MORE and flags & FIN:
                raise ProtocolError(f"stream {id}: a message cannot both end and go on")
            if not self._collect(stream, flags, body, cost):
                return
            body = b"".join(stream.partial or ())
            cost = stream.partial_cost
            stream.partial, stream.partial_cost = None, 0
            self._end_long(stream)
        self._events.append((MESSAGE, stream, body, bool(flags & FIN), cost))

    def _collect(self, stream: Stream, flags: int, body: bytes, cost: int) -> bool:
        """Add a fragment; true if the message is whole."""
        if stream.partial is None:
            stream.partial = []
        stream.partial.append(body)
        stream.partial_cost += cost
        if stream.partial_cost > self.permits.room or (
            not flags & MORE and sum(map(len, stream.partial)) > self._message_max
        ):
            self.budget.charge(budget.FAULT, self._places.now)
            self.abort(stream)
            self._sender.resets.append((stream, OVERSIZE))
            self._events.append((Event.RESET, stream, OVERSIZE, False, 0))
            self._places.forget_if_done(stream)
            return False
        if not flags & MORE:
            return True
        window = stream.inbound
        # The other half may be consumed without having been given back, and the last bytes of a window may be too
        # few for a frame: from here on nothing but a permit may move the stream.
        if stream.partial_cost >= (window.size >> 1) - COST_MIN and self.permits.ask(stream.id, window):
            self._lend(stream)
        return False

    # ------------------------------------------------------------------ credit
    def consumed(self, stream: Stream, cost: int) -> None:
        """The application took `cost` of this stream. Credit goes back at half a window."""
        window = stream.inbound
        unread = window.received - window.consumed
        if cost > unread:  # an abort has given it back already: never twice
            cost = unread
        if cost <= 0:
            return
        if stream.receiving is not OPEN:
            window.consumed += cost
        elif window.consume(cost) and not self.pressed:
            self._grow(stream)
            window.renew()
            self.credits[stream.id] = stream
        self._consume(cost)
        if stream.released and stream.receiving is not OPEN:
            self._places.forget_if_done(stream)

    def abort(self, stream: Stream) -> None:
        """Both halves end here: what is unsent is dropped, what is unread is given back."""
        stream.abort()
        if stream.id:
            self._end_long(stream)
        self._absorb(stream)

    def control(self) -> bytes:
        """CREDIT frames for every limit that the peer must hear of."""
        if self._places.tell:
            self.credits[0] = None
        if not self.credits:
            return b""
        parts = []
        for id, stream in self.credits.items():
            if stream is None:
                places = self._places
                places.told, places.tell = places.granted, False
                parts.append(frames.Credit(self.window.limit, places.granted).encode(0))
            elif stream.receiving is Half.OPEN:
                parts.append(frames.Credit(stream.inbound.limit).encode(id))
        self.credits = {}
        return b"".join(parts)

    def tell_all(self) -> None:
        """A new link: limits that may have been lost on the old one are told again."""
        self.credits = {0: None}
        for id, stream in self._places.streams.items():
            if stream.receiving is Half.OPEN and stream.inbound.limit > self._config.window:
                self.credits[id] = stream

    def relieve(self) -> None:
        """The memory pressure is over: give what was held back."""
        self.pressed = False
        self.window.renew()
        for stream in self._places.streams.values():
            stream.inbound.renew()
        self.tell_all()

    def _absorb(self, stream: Stream) -> None:
        unread = stream.inbound.unread
        stream.inbound.consumed += unread
        self._consume(unread)

    def _consume(self, cost: int) -> None:
        if self.window.consume(cost) and not self.pressed:
            self.window.renew()
            self.credits[0] = None

    def _lend(self, stream: Stream) -> None:
        self.window.extra += self.permits.room
        self.window.renew()
        self.credits[0] = None
        self.credits[stream.id] = stream

    def _end_long(self, stream: Stream) -> None:
        if stream.inbound.extra:
            self.window.extra -= self.permits.room
        following = self.permits.give_back(stream.id, stream.inbound)
        if following is not None:
            self._lend(self._places.streams[following])

    def _grow(self, stream: Stream) -> None:
        """A window drained within two round trips is too small: double it from the spare."""
        window, places = stream.inbound, self._places
        quick = places.now - window.renewed_at <= 2 * max(self.rtt, QUICK_S)
        window.renewed_at = places.now
        if quick and window.size <= places.spare and 2 * window.size <= self._config.window_max:
            places.spare -= window.size
            window.size *= 2
