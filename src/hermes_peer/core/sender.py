"""The sending side of a session: queues, fragments, turns, numbers, what is kept for replay.

Knows: streams that want to send and what the peer allows. Refuses to know: what arrives, links, clocks.
Called by: session, receiver. A frame gets stream id and number when it enters the batch, not before: a stream
that is reset in the queue leaves no hole.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hermes_peer.core.config import Config, Settings
from hermes_peer.core.events import Event
from hermes_peer.core.flow import SendWindow
from hermes_peer.core.places import Places
from hermes_peer.core.replay import Replay
from hermes_peer.core.states import Half, HalfInput
from hermes_peer.core.stream import NOTHING, Stream
from hermes_peer.errors import UsageError
from hermes_peer.wire.frames import (
    COST_MIN,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MASK32,
    RECORD_PLAIN_MAX,
    VERSION,
    Flag,
    Type,
)

DATA = int(Type.DATA)
SYN, FIN, RST, MORE = int(Flag.SYN), int(Flag.FIN), int(Flag.RST), int(Flag.MORE)
OPEN, ENDED = Half.OPEN, Half.ENDED


class Sender:
    """`room` is the size of a batch while data may flow, else 0, which also shuts the fast path of `send`."""

    def __init__(self, config: Config, settings: Settings, places: Places, events: list[tuple[Any, ...]]) -> None:
        self.window = SendWindow(settings.send_session_window)
        self.replay = Replay(config.first_sequence)
        self.room = 0
        self.batched = 0
        self.stalled = False  # `room` is 0 because the peer confirms nothing
        self.resets: deque[tuple[Stream, bytes]] = deque()
        self.again: deque[bytes] = deque()
        self._config = config
        self._batch_max = min(config.batch, RECORD_PLAIN_MAX // 2)
        self._message_max = settings.message
        # One frame more than a batch that is almost full: still one record.
        self._frame_max = min(settings.frame, RECORD_PLAIN_MAX - HEADER_SIZE - self._batch_max)
        self._places = places
        self._events = events
        self._batch: list[bytes] = []
        self._ready: deque[Stream] = deque()
        self._unopened: deque[Stream] = deque()

    def send(self, stream: Stream, message: bytes, fin: bool = False) -> None:
        """Send one message (at least a byte). With `fin` it is this side's last. Raises UsageError."""
        size = len(message)
        if not 0 < size <= self._message_max:
            if not size:
                raise UsageError("a message has at least one byte")
            raise UsageError(
                f"a message of {size} bytes is over the limit of {self._message_max}: "
                "send larger data as a stream of parts, or send a reference to it"
            )
        if stream.sending is not OPEN:
            if stream.sending is Half.ABORTED:
                return  # the peer gave it up; the owner has the event
            stream.command(HalfInput.DATA)
        if fin:
            stream.sending = ENDED
        session = self.window
        cost = size if size > COST_MIN else COST_MIN
        sent, session_sent = stream.sent + cost, session.sent + cost
        if (
            self.batched < self.room
            and not self._ready
            and not stream.queue
            and size <= self._frame_max
            and sent <= stream.limit
            and session_sent <= session.limit
            and (stream.id or (not self._unopened and self._places.enter(stream)))
        ):
            stream.sent, session.sent = sent, session_sent
            replay = self.replay
            sequence = replay.next
            replay.next = sequence + 1
            flags = FIN if fin else 0
            if stream.first < 0 and stream.mine:
                stream.first = sequence
                flags |= SYN
            self._batch.append(HEADER.pack(MAGIC, VERSION, DATA, flags, stream.id, sequence & MASK32, size) + message)
            self.batched += size + HEADER_SIZE
            if fin and stream.released:
                self._places.forget_if_done(stream)
            return
        if stream.queue is NOTHING:
            stream.queue = deque()
        stream.queue.append((message, fin))
        stream.queued += size
        self.schedule(stream)
        if self.batched < self.room:
            self.fill()

    def schedule(self, stream: Stream) -> None:
        """The stream may have something to send."""
        if not stream.scheduled and stream.queue:
            stream.scheduled = True
            self._ready.append(stream)

    @property
    def waiting(self) -> bool:
        """Whether fill() would find something."""
        return bool(self._ready or self.resets or (self._unopened and self._places.freed))

    @property
    def empty(self) -> bool:
        """Nothing waits, not even for a place."""
        return not (self._ready or self._unopened or self.resets)

    def unsent(self) -> list[Stream]:
        """Streams of ours that never got an id: the peer knows nothing of them."""
        return [s for s in (*self._ready, *self._unopened) if not s.id]

    def fill(self) -> None:
        """Move queued messages into the batch: resets first, then one frame per stream in turn."""
        while self.resets and self.batched < self.room:
            # A reset costs no credit: it must pass when the window is shut. There is one per stream.
            stream, body = self.resets.popleft()
            self._number(stream, RST, body)
        if self._places.freed:
            self._places.freed = False
            self._ready.extend(self._unopened)
            self._unopened.clear()
        ready = self._ready
        while ready and self.batched < self.room:
            stream = ready.popleft()
            if not stream.queue:
                stream.scheduled = False
            elif self.window.room < COST_MIN:
                ready.appendleft(stream)
                return
            elif not stream.id and not self._places.enter(stream):
                self._unopened.append(stream)
            elif not self._one_frame(stream):
                stream.scheduled = False  # its own window is shut; CREDIT schedules it again
            elif stream.queue:
                ready.append(stream)
            else:
                stream.scheduled = False

    def _one_frame(self, stream: Stream) -> bool:
        message, fin = stream.queue[0]
        room = min(self._frame_max, stream.room, self.window.room)
        if room < COST_MIN:
            return False
        flags = SYN if stream.mine and stream.first < 0 else 0
        if len(message) <= room:
            part = message
            stream.queue.popleft()
            flags |= FIN if fin else 0
        else:
            view = memoryview(message)  # what is left is not copied for each frame
            part, stream.queue[0] = view[:room], (view[room:], fin)
            flags |= MORE
        stream.queued -= len(part)
        cost = max(len(part), COST_MIN)
        stream.sent += cost
        self.window.sent += cost
        if flags & SYN:
            stream.first = self.replay.next
        self._number(stream, flags, part)
        if not stream.queue:
            if stream.notify:
                stream.notify = False
                self._events.append((Event.WRITABLE, stream, None, False, 0))
            if fin:
                self._places.forget_if_done(stream)
        return True

    def _number(self, stream: Stream, flags: int, body: bytes | memoryview) -> None:
        sequence = self.replay.next
        self.replay.next = sequence + 1
        self._batch.append(HEADER.pack(MAGIC, VERSION, DATA, flags, stream.id, sequence & MASK32, len(body)) + body)
        self.batched += len(body) + HEADER_SIZE

    def take(self) -> bytes:
        """The DATA frames of the next record: what is sent again goes before what is new."""
        if self.again:
            return self.again.popleft()
        if (self._ready or self.resets or self._unopened) and self.waiting and self.batched < self.room:
            self.fill()
        return self.keep_batch() if self._batch else b""

    def keep_batch(self) -> bytes:
        """Numbered frames are kept for replay, whether or not they reach a link."""
        batch = self._batch
        if not batch:
            return b""
        data = b"".join(batch) if len(batch) > 1 else batch[0]
        self._batch = []
        self.batched = 0
        self.replay.keep(data)
        if self.room and self.replay.bytes > self._config.unacked:
            self.shut()
            self.stalled = True
        return data

    def acked(self, mark: int) -> bool:
        """The peer has everything below `mark`; false if that is old news. Raises ProtocolError."""
        moved = self.replay.ack(mark)
        if self.stalled and self.replay.bytes <= self._config.unacked:
            self.open()
        return moved

    def open(self) -> None:
        """Data may flow."""
        self.room = self._batch_max
        self.stalled = False

    def shut(self) -> None:
        """Nothing leaves: no link carries the session."""
        self.room = 0
        self.stalled = False
