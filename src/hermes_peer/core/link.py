"""The link: one transport's life from HELLO to its last byte. When it dies, nothing else dies with it.

Knows: handshake, sealing, heartbeat, CLOSE (spec: handshake, session). Refuses to know: streams, trust, sockets.
Called by: the pump (bytes in, bytes out, time); it asks its Host, which is the node, what to do with whom.
"""

from __future__ import annotations

from typing import Any, Protocol

from hermes_peer.core.config import Caps, Settings
from hermes_peer.core.heartbeat import Heartbeat, Load
from hermes_peer.core.session import Session
from hermes_peer.core.states import LINK, LinkInput, LinkState, Reason
from hermes_peer.crypto.handshake import Acceptor, Dialler, HandshakeError, Outcome
from hermes_peer.crypto.seal import Opener, Sealer, SealError
from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import (
    FRAME_BODY_MAX,
    HANDSHAKE_MAX,
    HEADER,
    HEADER_SIZE,
    LINK_BODY_MAX,
    MAGIC,
    RECORD_PLAIN_MAX,
    RECORD_TAG,
    VERSION,
    Flag,
    Type,
)

SEALED = int(Type.SEALED)
ABUSE_BUDGET = 10_000.0  # frames that move nothing; it refills by a hundredth of itself each second


class Host(Protocol):
    """What a link asks of its node."""

    def find_psk(self, link: Link, resume_id: bytes) -> Any: ...
    def greeted(self, link: Link, outcome: Outcome) -> frames.Link: ...
    def accepted(self, link: Link, outcome: Outcome) -> frames.Link | tuple[Reason, str]: ...
    def linked(self, link: Link, theirs: frames.Link, now: float) -> tuple[Reason, str] | None: ...
    def closed(self, link: Link, reason: Reason, text: str, by_peer: bool, now: float) -> None: ...
    def load(self) -> Load: ...
    def dice(self) -> float: ...


class Link:
    """`receive`, `eof`, `tick` take what happened, `take` gives what to write; none of them ever raises.

    `done` means: write what take() still gives, then close the transport.
    """

    def __init__(self, host: Host, handshake: Dialler | Acceptor, now: float, patience: float) -> None:
        self.host = host
        self.state = LinkState.HELLO
        self.born = now
        self.dialled = isinstance(handshake, Dialler)
        self.outcome: Outcome | None = None
        self.caps: Caps | None = None  # the peer's
        self.session: Session | None = None
        self.heartbeat = Heartbeat(patience, patience, now)
        self.sealed = True
        self.unproven_reason = ""  # for the log only
        self.records_in = self.records_out = 0
        self._handshake: Dialler | Acceptor | None = handshake
        self._give_up_at = now + patience
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._bare_in = self._bare_out = False
        self._buffer = bytearray()
        self._raw: list[bytes] = []  # whole frames for the socket, outside of any record
        self._frames: list[bytes] = []  # control frames for the next record
        self._ping: int | None = None
        self._pong: int | None = None
        self._abuse = 0.0
        self._abuse_at = now
        self._now = now
        self._session_rekeyed = False
        if isinstance(handshake, Dialler):
            self._raw.append(frames.encode(Type.HELLO, handshake.hello()))

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
            data = bytes(buffer)
        try:
            at = self._parse(data, now)
        except (ProtocolError, SealError) as error:
            self._break(error)
            return
        except HandshakeError as error:
            self._refuse(error)
            return
        if buffer:
            buffer.clear()
        if at < len(data) and self.state not in (LinkState.CLOSING, LinkState.CLOSED):
            buffer += data[at:] if at else data

    def _parse(self, data: bytes, now: float) -> int:
        at, end = 0, len(data)
        unpack = HEADER.unpack_from
        view = memoryview(data)
        while end - at >= HEADER_SIZE:
            magic, version, kind, flags, id, sequence, size = unpack(data, at)
            if magic != MAGIC:
                raise ProtocolError("these bytes are not a Hermes Peer link")
            if version != VERSION:
                raise ProtocolError(f"frame version {version}, this side speaks {VERSION}")
            if size > (self._limit(kind)):
                raise ProtocolError(f"a frame of type {kind} announces {size} bytes")
            after = at + HEADER_SIZE + size
            if after > end:
                break
            if kind == SEALED and not self._bare_in:
                opener = self._opener
                if opener is None:
                    raise ProtocolError("a sealed record before the keys")
                plain = opener.open(view[at : at + HEADER_SIZE], view[at + HEADER_SIZE : after])
                self.records_in += 1
                if self.state is LinkState.OPEN and self.session is not None:
                    self.session.receive(plain, now, self._frame)
                else:
                    self._before_open(plain, now)
            elif self._bare_in:
                assert self.session is not None
                self.session.receive(data[at:after], now, self._frame)
            else:
                self._greet(kind, flags, id, sequence, data[at + HEADER_SIZE : after], now)
            at = after
            if self.state is LinkState.CLOSING or self.state is LinkState.CLOSED:
                break
        return at

    def _limit(self, kind: int) -> int:
        if self._bare_in:
            return FRAME_BODY_MAX
        return RECORD_PLAIN_MAX + RECORD_TAG if kind == SEALED else HANDSHAKE_MAX

    def _greet(self, kind: int, flags: int, id: int, sequence: int, body: bytes, now: float) -> None:
        """One handshake frame. The path is linear: what is not awaited ends the link (attack 14)."""
        handshake = self._handshake
        if flags or id or sequence or handshake is None:
            raise HandshakeError("frame")
        if isinstance(handshake, Dialler):
            if kind == Type.REFUSE and self.state is LinkState.HELLO:
                refuse = frames.Refuse.decode(body)
                reason = Reason(refuse.code) if refuse.code in Reason._value2member_map_ else Reason.NONE
                self._end(reason, refuse.text or "the other side refused", by_peer=True)
            elif kind == Type.WELCOME:
                self._move(LinkInput.WELCOME)
                self._raw.append(frames.encode(Type.READY, handshake.welcome(body)))
                assert handshake.outcome is not None
                self._keys(handshake.outcome)
                self._frames.append(self.host.greeted(self, handshake.outcome).encode())
            else:
                raise HandshakeError("state")
        elif kind == Type.HELLO:
            self._move(LinkInput.HELLO)
            welcome = handshake.hello(body, lambda id: self.host.find_psk(self, id))
            self._raw.append(frames.encode(Type.WELCOME, welcome))
        elif kind == Type.READY:
            self._move(LinkInput.READY)
            try:
                outcome = handshake.ready(body)
            except HandshakeError as error:
                if error.outcome is not None:
                    self._keys(error.outcome)
                raise
            self._keys(outcome)
            self.caps = Caps.decode(outcome.peer_caps)
            answer = self.host.accepted(self, outcome)
            if isinstance(answer, frames.Link):
                self._frames.append(answer.encode())
            else:
                self.close(*answer)
        else:
            raise HandshakeError("state")

    def _keys(self, outcome: Outcome) -> None:
        now_ms = int(self._now * 1000)
        self.outcome = outcome
        self._handshake = None
        self._sealer = Sealer(outcome.send_secret, now_ms)
        self._opener = Opener(outcome.receive_secret)

    def _before_open(self, plain: bytes, now: float) -> None:
        """The first record of the other side: LINK, or a CLOSE that says why not."""
        first = frames.split(plain)
        kind, body = first[0].type, first[0].body
        if kind == Type.CLOSE:
            self._frame(kind, 0, 0, body)
            return
        if kind != Type.LINK or len(body) > LINK_BODY_MAX:
            raise ProtocolError("the first record does not begin with LINK")
        self._move(LinkInput.LINK)
        theirs = frames.Link.decode(body)
        if self.dialled:
            self.caps = Caps.decode(theirs.caps)
        refusal = self.host.linked(self, theirs, now)
        if refusal is not None:
            self.close(*refusal)
            return
        self._bare_in = not self.sealed
        assert self.session is not None
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
            self._charge(10.0)
        elif kind == Type.PONG:
            pong = frames.Ping.decode(body)
            self._heard(pong)
            self.heartbeat.pong(pong.n, now)
            if self.session is not None:
                self.session.receiver.rtt = self.heartbeat.rtt
        elif kind == Type.REKEY:
            assert self._opener is not None
            self._opener.rekey(int(now * 1000))
        elif kind == Type.CLOSE:
            return self._closed(frames.Close.decode(body))
        elif flags & Flag.CRITICAL or kind <= Type.LINK:
            raise ProtocolError(f"a frame of type {kind} is not understood here")
        else:
            self._charge(10.0)
        return True

    def _heard(self, ping: frames.Ping) -> None:
        self.heartbeat.load = Load(ping.in_flight, ping.queue_ms, ping.accepting)
        if self.session is not None:
            self.session.sender.replay.ack(ping.ack)

    def _closed(self, close: frames.Close) -> bool:
        reason = Reason(close.code) if close.code in Reason._value2member_map_ else Reason.NONE
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
            was = self.state
            self.state = LINK[self.state, LinkInput.EOF]
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
        if self._sealer is not None:
            last = self.session.places.last_accepted if self.session else 0
            self._frames.append(frames.Close(mode, reason, last, 0, text).encode())
        if mode is frames.CloseMode.END and self.session is not None:
            self.session.end(reason, text)
        self._end(reason, text, by_peer=False)

    def announce_drain(self) -> None:
        """Tell the peer to open nothing more; what runs goes on."""
        self._frames.append(frames.Close(frames.CloseMode.DRAIN, Reason.DRAINING).encode())

    def _break(self, error: ProtocolError | SealError) -> None:
        """The peer broke a rule: it is told, unless it has not proved itself."""
        if self._handshake is not None or isinstance(error, SealError):
            self.unproven_reason = str(error)
            self._end(Reason.PROOF if self._handshake else Reason.PROTOCOL, str(error), by_peer=False)
        else:
            self.close(Reason.PROTOCOL, str(error))

    def _refuse(self, error: HandshakeError) -> None:
        self.unproven_reason = error.reason
        if error.proven:
            self.close(Reason.SELF, "this agent dialled itself: the address belongs to its own key")
            return
        if error.refuse is not None and isinstance(self._handshake, Acceptor):
            reason = Reason[error.refuse.name]
            offer = self._handshake.offer
            text = f"no common {error.refuse.name.lower()}: this side speaks versions {list(offer.versions)} "
            text += f"and suites {list(offer.suites)}"
            self._raw.append(frames.Refuse(reason, offer.versions, offer.suites, 0, text).encode())
        self._end(Reason.PROOF, f"the handshake failed ({error.reason})", by_peer=False)

    def _end(self, reason: Reason, text: str, *, by_peer: bool) -> None:
        self._handshake = None
        self.state = LINK[self.state, LinkInput.CLOSE]
        self.host.closed(self, reason, text, by_peer, self._now)

    def _move(self, input: LinkInput) -> None:
        try:
            self.state = LINK[self.state, input]
        except KeyError:
            raise HandshakeError("state") from None

    def _charge(self, cost: float) -> None:
        now = self._now
        self._abuse = max(0.0, self._abuse - (now - self._abuse_at) * ABUSE_BUDGET / 100) + cost
        self._abuse_at = now
        if self._abuse > ABUSE_BUDGET:
            raise ProtocolError("too many frames that move nothing")

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
        beat.set_busy(bool(session.places.streams), now)
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
        if self.heartbeat.busy or session is None or caps is None or caps.keep or session.config.keep:
            return float("inf")
        if not session.idle:
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
        if self.state is not LinkState.OPEN or self.session is None:
            return False
        ack_at = self.session.receiver.ack_at
        return self.session.pending() or (ack_at is not None and now >= ack_at)

    def take(self, now: float) -> bytes:
        """Bytes to write now: one record at the most. Call again until it gives nothing."""
        if self._raw:
            return self._raw.pop(0)
        control = self._control(now) if self._frames or self._ping is not None or self._pong is not None else b""
        session = self.session
        if session is None or self.state is not LinkState.OPEN:
            return self._seal(control) if control else b""
        ack_at = session.receiver.ack_at
        if ack_at is not None and now >= ack_at:
            control += frames.encode_ack(session.receiver.acked())
        credit, data = session.take()
        plain = control + credit + data
        if not plain:
            return b""
        if len(plain) <= RECORD_PLAIN_MAX:
            return self._seal(plain)
        return self._seal(control + credit) + self._seal(data)

    def _control(self, now: float) -> bytes:
        parts, self._frames = self._frames, []
        for type, n in ((Type.PONG, self._pong), (Type.PING, self._ping)):
            if n is not None and self.session is not None:
                load = self.host.load()
                parts.append(frames.Ping(n, *load, self.session.receiver.acked()).encode(type))
        self._ping = self._pong = None
        return b"".join(parts)

    def _seal(self, plain: bytes) -> bytes:
        self.records_out += 1
        if self._bare_out:
            return plain
        sealer = self._sealer
        assert sealer is not None
        if not self.sealed and self.state is LinkState.OPEN:
            self._bare_out = True
            return plain
        if sealer.records & 63 == 63 and sealer.due(int(self._now * 1000)):
            rekey = frames.encode(Type.REKEY)
            if len(plain) + len(rekey) > RECORD_PLAIN_MAX:
                data = sealer.seal(plain) + sealer.seal(rekey)
            else:
                data = sealer.seal(plain + rekey)
            sealer.rekey(int(self._now * 1000))
            return data
        return sealer.seal(plain)

    @property
    def done(self) -> bool:
        """Nothing more will be read; close the transport once take() gives nothing."""
        return self.state is LinkState.CLOSING or self.state is LinkState.CLOSED
