"""The link: one transport's life from its first byte to its last. When it dies, nothing else dies with it.

Knows: records, LINK, heartbeat, CLOSE (spec: handshake, session). Refuses to know: streams, trust, sockets, greetings.
Called by: the pump (bytes in, bytes out, time); it asks its Host, which is the node, what to do with whom.
"""

from __future__ import annotations

from typing import Protocol

from hermes_peer.core import budget
from hermes_peer.core.config import Caps, Settings
from hermes_peer.core.greeting import Greeting
from hermes_peer.core.heartbeat import Heartbeat, Load
from hermes_peer.core.records import Records, Tap
from hermes_peer.core.session import Session
from hermes_peer.core.states import LINK, LinkInput, LinkState, Reason, reason_of
from hermes_peer.crypto.handshake import HandshakeError, Outcome
from hermes_peer.crypto.seal import SealError
from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import HEADER, HEADER_SIZE, MAGIC, VERSION, Flag, Type

SEALED = int(Type.SEALED)
SEALED_MAX = frames.RECORD_PLAIN_MAX + frames.RECORD_TAG


class Host(Protocol):
    """What a link asks of its node."""

    def greeted(self, link: Link, outcome: Outcome) -> frames.Link | tuple[Reason, str]: ...
    def accepted(self, link: Link, outcome: Outcome, now: float) -> frames.Link | tuple[Reason, str]: ...
    def linked(self, link: Link, theirs: frames.Link, now: float) -> tuple[Reason, str] | None: ...
    def closed(self, link: Link, reason: Reason, text: str, by_peer: bool, now: float) -> None: ...
    def load(self) -> Load: ...
    def dice(self) -> float: ...


class Link:
    """`receive`, `eof`, `tick` take what happened, `take` gives what to write; none of them ever raises.

    `done` means: write what take() still gives, then close the transport.
    """

    def __init__(self, host: Host, greeting: Greeting, now: float, patience: float, *, local: bool = False) -> None:
        """`patience`: how many seconds the other side has until its LINK has opened. `local`: a Unix socket."""
        self.host = host
        self.state = greeting.state
        self.born = now
        self.local = local
        self.loopback = False  # both addresses are: set by the node at once
        self.dialled = greeting.dialled
        self.asked = b""  # the resume id that the dialler offered
        self.outcome: Outcome | None = None
        self.caps: Caps | None = None  # the peer's
        self.session: Session | None = None
        self.heartbeat = Heartbeat(patience, patience, now)
        self.sealed = True
        self.unproven_reason = ""  # for the log only
        self.tap: Tap | None = None  # hears all frames, opened (mission L25)
        self._greeting: Greeting | None = greeting
        self._give_up_at = now + patience
        self._records: Records | None = None
        self._buffer = bytearray()
        self._need = HEADER_SIZE  # bytes that must be in the buffer before it is worth a look
        self._raw: list[bytes] = []  # whole frames for the socket, outside of any record
        self._frames: list[bytes] = []  # control frames for the next record
        self._ping: int | None = None
        self._pong: int | None = None
        self._now = now
        if hello := greeting.begin():
            self._raw.append(hello)

    # ------------------------------------------------------------------ input
    def receive(self, data: bytes, now: float) -> None:
        """Bytes from the transport, in any slices."""
        if self.state in (LinkState.CLOSING, LinkState.CLOSED):
            return
        self._now = now
        self.heartbeat.last_in = now
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._need:
                return
            data = bytes(buffer)
        try:
            at = self._parse(data, now)
        except (ProtocolError, SealError) as error:
            self._break(error)
            return
        except HandshakeError as error:
            self._fail(error)
            return
        if buffer:
            buffer.clear()
        if at < len(data) and self.state not in (LinkState.CLOSING, LinkState.CLOSED):
            buffer += data[at:] if at else data

    def _parse(self, data: bytes, now: float) -> int:
        at, end = 0, len(data)
        self._need = HEADER_SIZE
        unpack = HEADER.unpack_from
        while end - at >= HEADER_SIZE:
            magic, version, kind, flags, id, sequence, size = unpack(data, at)
            if magic != MAGIC:
                raise ProtocolError("these bytes are not a Hermes Peer link")
            if version != VERSION:
                raise ProtocolError(f"frame version {version}, this side speaks {VERSION}")
            records = self._records
            bare = records is not None and records.bare_in
            limit = frames.FRAME_BODY_MAX if bare else frames.HANDSHAKE_MAX
            if size > (SEALED_MAX if kind == SEALED and records else limit):
                raise ProtocolError(f"a frame of type {kind} announces {size} bytes")
            body = at + HEADER_SIZE
            after = body + size
            if after > end:
                self._need = after - at
                break
            if records is None or (kind != SEALED and not bare):
                self._greet(kind, flags, id, sequence, data[body:after])
            else:
                plain = records.open(data[at:body], data[body:after]) if kind == SEALED else data[at:after]
                if self.tap is not None:
                    self.tap("in", plain)
                if self.state is not LinkState.OPEN or self.session is None:
                    self._before_open(plain, now)
                elif plain:
                    self.session.receive(plain, now, self._frame)
                else:
                    self._charge(budget.NOTHING)
            at = after
            if self.state is LinkState.CLOSING or self.state is LinkState.CLOSED:
                break
        return at

    def _greet(self, kind: int, flags: int, id: int, sequence: int, body: bytes) -> None:
        """A frame outside of any record: the greeting's, and nobody's once that is done."""
        greeting = self._greeting
        if greeting is None:
            raise HandshakeError("frame")
        if answer := greeting.receive(kind, flags, id, sequence, body, self._now):
            self._raw.append(answer)
        self.state = greeting.state
        if greeting.refusal is not None:
            self._end(*greeting.refusal, by_peer=True)
        elif greeting.outcome is not None:
            self.asked = greeting.asked
            self._keys(greeting.outcome)
            self._introduce(greeting.outcome)

    def _introduce(self, outcome: Outcome) -> None:
        """Our first record: LINK, or why not. The dialler's goes right behind READY."""
        if self.dialled:
            answer = self.host.greeted(self, outcome)
        else:
            self.caps = Caps.decode(outcome.peer_caps)
            answer = self.host.accepted(self, outcome, self._now)
        if isinstance(answer, frames.Link):
            self._frames.append(answer.encode())
        else:
            self.refuse(*answer)

    def _keys(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._greeting = None
        self._records = Records(outcome, self._now)

    def _before_open(self, plain: bytes, now: float) -> None:
        """The first record of the other side: LINK, or a CLOSE that says why not."""
        kind, _, _, _, body = frames.split(plain)[0] if plain else (0, 0, 0, 0, b"")
        if kind == Type.CLOSE:
            self._frame(kind, 0, 0, body)
            return
        if kind != Type.LINK or len(body) > frames.LINK_BODY_MAX:
            raise ProtocolError("the first record does not begin with LINK")
        self.state = LINK[self.state, LinkInput.LINK]
        theirs = frames.Link.decode(body)
        if self.dialled:
            self.caps = Caps.decode(theirs.caps)
        if (refusal := self.host.linked(self, theirs, now)) is not None:
            self.refuse(*refusal)
            return
        assert self.session is not None and self._records is not None
        self._records.bare_in = not self.sealed
        self._records.rekey_s = self.session.config.rekey_s
        self.session.receive(plain[HEADER_SIZE + len(body) :], now, self._frame)

    def agreed(self, settings: Settings, sealed: bool, now: float) -> None:
        """The host has found the session: heartbeat periods and sealing as both sides said."""
        beat = Heartbeat(settings.idle_s, settings.busy_s, now)
        beat.next_ping = now + settings.busy_s * self.host.dice()
        self.heartbeat = beat
        self.sealed = sealed

    def _frame(self, kind: int, flags: int, id: int, body: bytes) -> bool:
        """A frame that is the link's own. False: the link reads no further."""
        now = self._now
        if kind == Type.PING:
            ping = frames.Ping.decode(body)
            self._heard(ping)
            self._pong = ping.n  # latched: the newest is answered, floods queue nothing (attack 32)
            self._charge(min(budget.PING, budget.REFILL * self.heartbeat.shortest / 4))  # the agreed pace is free
        elif kind == Type.PONG:
            pong = frames.Ping.decode(body)
            self._heard(pong)
            self.heartbeat.pong(pong.n, now)
            if self.session is not None:
                self.session.receiver.rtt = self.heartbeat.rtt
        elif kind == Type.REKEY:
            assert self._records is not None
            self._records.rekeyed(now)
        elif kind == Type.CLOSE:
            return self._closed(frames.Close.decode(body))
        elif flags & Flag.CRITICAL or kind <= Type.LINK:
            raise ProtocolError(f"a frame of type {kind} is not understood here")
        else:
            self._charge(budget.UNKNOWN)
        return True

    def _heard(self, ping: frames.Ping) -> None:
        ours = self.session.heard(ping.ack, ping.queue_ms) if self.session is not None else 0
        load = ping.in_flight, ping.queue_ms, ping.accepting, ping.links
        self.heartbeat.load = Load(*load, min(ours, ping.in_flight))

    def _closed(self, close: frames.Close) -> bool:
        reason = reason_of(close.code)
        if reason is Reason.DRAINING and close.mode == frames.CloseMode.DRAIN:
            self.heartbeat.load = self.heartbeat.load._replace(accepting=False)
            return True
        if close.mode == frames.CloseMode.END and self.session is not None:
            self.session.end(reason, close.text, peer_last=close.last_stream)
        self._end(reason, close.text or reason.name.lower(), by_peer=True)
        return False

    # ------------------------------------------------------------------ ends
    def eof(self, now: float) -> None:
        """The transport ended. Without an authenticated CLOSE that is a lost line, never an end."""
        if self.state is not LinkState.CLOSED:
            self._now = now
            was, self.state = self.state, LINK[self.state, LinkInput.EOF]
            if was is not LinkState.CLOSING:
                self.host.closed(self, Reason.LOST, "the connection was lost", False, now)

    def fence(self) -> None:
        """A newer link carries the session: this one reads nothing more, and says so politely."""
        self.session = None
        self.close(Reason.REPLACED, "a newer link took over", frames.CloseMode.DRAIN)

    def close(self, reason: Reason, text: str, mode: frames.CloseMode = frames.CloseMode.END) -> None:
        """End the link from this side. Before the keys stand nothing is sent."""
        if self.state in (LinkState.CLOSING, LinkState.CLOSED):
            return
        if self._records is not None:
            last = self.session.places.last_accepted if self.session else frames.MASK32  # which says nothing
            self._frames.append(frames.Close(mode, reason, last, 0, text).encode())
        if mode is frames.CloseMode.END and self.session is not None:
            self.session.end(reason, text)
        self._end(reason, text, by_peer=False)

    def refuse(self, reason: Reason, text: str) -> None:
        """The link is not wanted. One link too many ends nothing but itself."""
        self.close(reason, text, frames.CloseMode.DRAIN if reason is Reason.DUPLICATE else frames.CloseMode.END)

    def announce_drain(self) -> None:
        """Tell the peer to open nothing more; what runs goes on."""
        self._frames.append(frames.Close(frames.CloseMode.DRAIN, Reason.DRAINING).encode())

    def _break(self, error: ProtocolError | SealError) -> None:
        """The peer broke a rule: it is told, unless it has not proved itself."""
        if self._greeting is not None or isinstance(error, SealError):
            self.unproven_reason = str(error)
            self._end(Reason.PROOF if self._greeting else Reason.PROTOCOL, str(error), by_peer=False)
        else:
            self.close(Reason.ABUSE if isinstance(error, budget.Abuse) else Reason.PROTOCOL, str(error))

    def _fail(self, error: HandshakeError) -> None:
        """The handshake came to nothing: silence, but for the two cases in which the other side may know why."""
        self.unproven_reason = error.reason
        if error.outcome is not None:
            self._keys(error.outcome)
            self.close(Reason.SELF, "this agent dialled itself: the address belongs to its own key")
            return
        if self._greeting is not None and (refuse := self._greeting.last_words(error)):
            self._raw.append(refuse)
        reason = Reason.BUSY if error.reason == "busy" else Reason.PROOF
        self._end(reason, f"the handshake failed ({error.reason})", by_peer=False)

    def _end(self, reason: Reason, text: str, *, by_peer: bool) -> None:
        self._greeting = None
        self.state = LINK[self.state, LinkInput.CLOSE]
        self.host.closed(self, reason, text, by_peer, self._now)

    def _charge(self, cost: float) -> None:
        if self.session is not None:
            self.session.receiver.budget.charge(cost, self._now)

    # ------------------------------------------------------------------ time
    def tick(self, now: float) -> None:
        """Whatever is due by `now`: give up, ping, rest, show silent handlers alive."""
        self._now = now
        if self.state in (LinkState.CLOSING, LinkState.CLOSED):
            return
        if self.state is not LinkState.OPEN:
            if now >= self._give_up_at:
                self._end(Reason.TIMEOUT, "the handshake took too long", by_peer=False)
            return
        beat, session = self.heartbeat, self.session
        assert session is not None
        beat.set_busy(bool(session.places.streams), now, session.places.used)
        if now >= beat.dead_at:
            self._end(Reason.TIMEOUT, f"nothing heard for {beat.patience:g} s", by_peer=False)
            return
        if now >= beat.next_ping:
            self._ping = beat.ping(now, self.host.dice())
            if beat.busy:
                session.keep_warm(now, beat.busy_s)
        if now >= self._rest_at():
            self.close(Reason.IDLE, "idle", frames.CloseMode.DRAIN)

    def _rest_at(self) -> float:
        session, caps = self.session, self.caps
        if self.heartbeat.busy or not session or not caps or caps.keep or session.config.keep or not session.idle:
            return float("inf")
        return self.heartbeat.idle_since + session.config.rest_s + session.config.close_s

    @property
    def deadline(self) -> float:
        """When to call tick() at the latest, as things stand now."""
        if self.state in (LinkState.CLOSING, LinkState.CLOSED):
            return float("inf")
        if self.state is not LinkState.OPEN:
            return self._give_up_at
        beat = self.heartbeat
        due = min(beat.next_ping, beat.dead_at)
        if beat.busy:
            return due
        # A stream may open at any time without telling us: never sleep past the busy period.
        return min(due, self._rest_at(), self._now + beat.busy_s)

    @property
    def ack_at(self) -> float | None:
        """When an ACK is due; much sooner than any deadline."""
        return self.session.receiver.ack_at if self.session is not None else None

    # ------------------------------------------------------------------ output
    def pending(self, now: float) -> bool:
        """Whether take() would give something now."""
        if self._raw or self._frames or self._ping is not None or self._pong is not None:
            return True
        session = self.session if self.state is LinkState.OPEN else None
        return session is not None and (session.pending() or now >= (session.receiver.ack_at or now + 1))

    def take(self, now: float) -> bytes:
        """Bytes to write now: one record at the most. Call again until it gives nothing."""
        if self._raw:
            return self._raw.pop(0)
        control = self._control(now) if self._frames or self._ping is not None or self._pong is not None else b""
        session = self.session
        if session is None or self.state is not LinkState.OPEN:
            return self._wrap(control) if control else b""
        ack_at = session.receiver.ack_at
        if ack_at is not None and now >= ack_at:
            control += frames.encode_ack(session.receiver.acked())
        credit, data = session.take()
        plain = control + credit + data
        if not plain:
            return b""
        if len(plain) <= frames.RECORD_PLAIN_MAX:
            return self._wrap(plain)
        return self._wrap(control + credit) + self._wrap(data)

    def _control(self, now: float) -> bytes:
        parts, self._frames = self._frames, []
        for type, n in ((Type.PONG, self._pong), (Type.PING, self._ping)):
            if n is not None and self.session is not None:
                load = self.host.load()
                ack = self.session.receiver.acked()
                ping = frames.Ping(n, load.in_flight, load.queue_ms, load.accepting, ack, load.links)
                parts.append(ping.encode(type))
        self._ping = self._pong = None
        return b"".join(parts)

    def _wrap(self, plain: bytes) -> bytes:
        records = self._records
        assert records is not None
        if self.tap is not None:
            self.tap("out", plain)
        if not self.sealed and records.written:  # our LINK was the last sealed one
            records.bare_out = True
        return records.wrap(plain, self._now)

    def heard_after(self, when: float) -> bool:
        """Whether something whole has come later than `when`."""
        return self.heartbeat.last_in > when and not self._buffer

    @property
    def done(self) -> bool:
        """Nothing more will be read; close the transport once take() gives nothing."""
        return self.state is LinkState.CLOSING or self.state is LinkState.CLOSED
