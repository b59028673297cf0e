"""The session: streams, numbers and credit of one pair of agents. Outlives every link it rides on.

Knows: its two sides and its state (spec: session). Refuses to know: sockets, keys, clocks, what a message says.
Called by: link (frames in, records out), node (attach, detach, end), the runtime (commands).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from hermes_peer.core.config import Config, Settings
from hermes_peer.core.events import Event
from hermes_peer.core.places import Places, later
from hermes_peer.core.receiver import Receiver
from hermes_peer.core.sender import Sender
from hermes_peer.core.states import SESSION, Half, Reason, SessionInput, SessionState
from hermes_peer.core.stream import Stream
from hermes_peer.errors import ProtocolError, UsageError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import RESET_BODY_MAX, Type


class Session:
    """Commands raise UsageError and change nothing on misuse; `receive` raises ProtocolError to the link alone.

    `send`, `consumed`, `receive` and `release` are its parts' own methods: nothing stands between them and a token.
    """

    send: Callable[..., None]
    consumed: Callable[[Stream, int], None]
    release: Callable[[Stream], None]
    receive: Callable[..., None]

    def __init__(self, id: bytes, originator: bool, config: Config, settings: Settings) -> None:
        self.id = id
        self.originator = originator
        self.config = config
        self.settings = settings
        self.state = SessionState.DETACHED
        self.events: list[tuple[Any, ...]] = []
        self.places = Places(originator, config, settings)
        self.sender = Sender(config, settings, self.places, self.events)
        self.receiver = Receiver(config, settings, self.places, self.sender, self.events)
        self.send = self.sender.send
        self.consumed = self.receiver.consumed
        self.release = self.places.release
        self.receive = self.receiver.receive
        self.links = 0  # how many links have carried it
        self.sent_again = 0  # records
        self.reason = Reason.NONE
        self._warm: list[Stream] = []
        self._peer_mark: int | None = None
        self._peer_last: int | None = None

    # ------------------------------------------------------------------ commands
    def open(self, *, reserved: bool = False) -> Stream:
        """A new stream of ours. It has no id, and the peer knows nothing of it, until its first frame leaves."""
        if self.state is SessionState.ENDED:
            raise UsageError("the session has ended")
        return self.places.make(True, reserved)

    def reset(self, stream: Stream, error: bytes = b"") -> None:
        """Abort both halves; what has no number yet is dropped. Harmless on a stream that is done."""
        if stream.sending is not Half.OPEN and stream.receiving is not Half.OPEN and not stream.queue:
            return
        self.receiver.abort(stream)
        if stream.id:
            self.sender.resets.append((stream, error[:RESET_BODY_MAX]))
        self.places.forget_if_done(stream)

    def keep_warm(self, now: float, period: float) -> None:
        """Show the peer which silent handlers are alive (mission L13)."""
        for stream in self.places.silent(now - period):
            stream.shown_at = now
            if not stream.queue:
                self._warm.append(stream)

    def heard(self, ack: int, queue_ms: int) -> int:
        """What a PING or PONG of the peer says of the session: how far it has read, how loaded it is. Returns how many
        streams of ours are open."""
        self.sender.acked(ack)
        self.places.heed(queue_ms)
        return self.places.open_mine

    # ------------------------------------------------------------------ links come and go
    def attach(self) -> tuple[int, int]:
        """A link begins to carry the session. Returns our marks for its LINK: (recv_next, send_next)."""
        self._move(SessionInput.ATTACH)
        self.sender.shut()
        self.sender.keep_batch()
        return self.receiver.acked(), self.sender.replay.next

    def peer_link(self, recv_next: int, send_next: int) -> None:
        """The peer's LINK: send again from its mark, tell all limits again, go live. Raises ProtocolError."""
        if send_next < self.receiver.next:
            raise ProtocolError(f"the peer has sent {send_next}, we have {self.receiver.next}: it went back")
        again = self.sender.replay.rewind(recv_next)
        self._move(SessionInput.PEER_LINK)
        self.sender.again = again
        self.sender.open()
        self.sent_again += len(again)
        self.receiver.tell_all()
        self.links += 1
        self.events.append((Event.LIVE, None, None, False, 0))

    def detach(self) -> None:
        """The link is gone. Nothing else is."""
        if self.state in (SessionState.ENDED, SessionState.DETACHED):
            return
        self._move(SessionInput.DETACH)
        self.sender.shut()
        self.sender.keep_batch()
        self.sender.again.clear()
        self._warm.clear()
        self.receiver.ack_at = None
        self.events.append((Event.DETACHED, None, None, False, 0))

    def end(
        self, reason: Reason, text: str = "", *, peer_mark: int | None = None, peer_last: int | None = None
    ) -> None:
        """The end for good. `peer_mark`: what the peer had received; `peer_last`: the last stream it accepted."""
        if self.state is SessionState.ENDED:
            return
        self._move(SessionInput.END)
        self.sender.shut()
        self.receiver.ack_at = None
        self.reason, self._peer_mark, self._peer_last = reason, peer_mark, peer_last
        self.events.append((Event.ENDED, None, reason, text, 0))

    def fate(self, stream: Stream) -> Literal["no", "unknown"]:
        """After the end: whether a stream of ours without an answer may have run at the peer."""
        if stream.first < 0 or (self._peer_mark is not None and stream.first >= self._peer_mark):
            return "no"
        if self._peer_last in (None, frames.MASK32):  # the peer says nothing of it
            return "unknown"
        return "no" if later(stream.id, self._peer_last) else "unknown"

    # ------------------------------------------------------------------ output
    def pending(self) -> bool:
        """Whether take() would give something now."""
        if self.state is not SessionState.LIVE:
            return False
        sender = self.sender
        if sender.batched or sender.again or self.receiver.credits or self.places.tell or self._warm:
            return True
        if not sender.room or not sender.waiting:
            return False
        return bool(sender.resets) or sender.window.room >= frames.COST_MIN

    def take(self) -> tuple[bytes, bytes]:
        """The frames of the next record: (control, data); each may be empty."""
        if self.state is not SessionState.LIVE:
            return b"", b""
        control = self.receiver.control() if self.receiver.credits or self.places.tell else b""
        if self._warm:
            control += b"".join(frames.encode(Type.WARM, stream=s.id) for s in self._warm if s.sending is Half.OPEN)
            self._warm.clear()
        return control, self.sender.take()

    @property
    def idle(self) -> bool:
        """No stream open and nothing unacknowledged: the link may rest."""
        return not self.places.streams and not self.sender.replay.chunks and self.sender.empty

    @property
    def buffered(self) -> int:
        """Bytes held for this session: unread and unacknowledged."""
        return self.receiver.window.unread + self.sender.replay.bytes + self.sender.batched

    def _move(self, input: SessionInput) -> None:
        try:
            self.state = SESSION[self.state, input]
        except KeyError:
            raise UsageError(f"a {self.state.name.lower()} session cannot {input.name.lower()}") from None
