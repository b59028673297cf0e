"""Two nodes on one virtual clock, joined by a virtual line: tests of what two peers say to each other.

Knows: both ends, the time, every byte. Refuses to know: sockets, asyncio, real time.
Called by: tests, ours and those of users.

    pair = Pair()
    stream = pair.a.open(b"hello", fin=True)
    _, asked, *_ = pair.b.expect("the call arrives", Event.MESSAGE, b"hello", fin=True)
    pair.b.send(asked, b"answer", fin=True)
    pair.a.expect("the answer comes back", Event.MESSAGE, b"answer", fin=True)
    pair.a.idle("all was said")

All randomness comes from `seed`, so that a test sees the same bytes every time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Any, Literal

from hermes_peer.core.config import Config, caps_of
from hermes_peer.core.events import Event
from hermes_peer.core.link import Link
from hermes_peer.core.node import Judge, Node, Verdict
from hermes_peer.core.peer import Peer
from hermes_peer.core.session import Session
from hermes_peer.core.stream import Stream
from hermes_peer.crypto.kem import CT_SIZE, EK_SIZE
from hermes_peer.crypto.keys import Identity
from hermes_peer.testing.sim_line import Clock, Line
from hermes_peer.wire.frames import MASK32

LATENCY = 0.001


class FakeKem:
    """Sizes of ML-KEM-768 and none of its strength: everything comes from `entropy`, so it can be seeded."""

    __slots__ = ("_entropy",)

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy

    def generate(self) -> tuple[bytes, object]:
        ek = self._entropy(32) + bytes(EK_SIZE - 32)
        return ek, ek

    def encapsulate(self, ek: bytes) -> tuple[bytes, bytes]:
        if len(ek) != EK_SIZE:
            raise ValueError("not an encapsulation key")
        ct = self._entropy(32) + bytes(CT_SIZE - 32)
        return hashlib.sha256(ek + ct).digest(), ct

    def decapsulate(self, private: object, ct: bytes) -> bytes:
        if len(ct) != CT_SIZE or not isinstance(private, bytes):
            raise ValueError("not a ciphertext")
        return hashlib.sha256(private + ct).digest()


def number_from(node: Node, first: int) -> None:
    """Let the stream ids of every session that `node` begins start at `first` (odd: the originator's)."""
    begin = node._begin

    def numbered(*args: Any) -> Session:
        session = begin(*args)
        places, odd = session.places, first | 1
        mine, theirs = (odd, odd + 1) if places.originator else (odd + 1, odd)
        places._next_id = mine & MASK32
        places._high = (theirs - 2) & MASK32
        return session

    node._begin = numbered  # type: ignore[method-assign,assignment]


class Side:
    """One of the two: commands that go out at once, and what it was told."""

    def __init__(self, pair: Pair, node: Node) -> None:
        self.pair = pair
        self.node = node
        self.other: Side = self
        self.links: list[Link] = []  # newest last
        self.line_of: dict[Link, tuple[Line, int]] = {}
        self._session: Session | None = None

    @property
    def peer(self) -> Peer:
        """What this side knows of the other."""
        return self.node.peer(self.other.node.identity.fingerprint)

    @property
    def link(self) -> Link:
        """The newest link, whatever its state."""
        return self.links[-1]

    @property
    def session(self) -> Session:
        """The session with the other side, or the last one if it has ended; AssertionError if there was none."""
        session = self._session = self.peer.session or self._session
        assert session is not None, "there is no session"
        return session

    # ------------------------------------------------------------------ commands
    def open(self, message: bytes = b"", *, fin: bool = False, reserved: bool = False) -> Stream:
        """A new stream, and its first message if one is given; delivered before this returns."""
        stream = self.session.open(reserved=reserved)
        if message:
            self.send(stream, message, fin=fin)
        return stream

    def send(self, stream: Stream, message: bytes, *, fin: bool = False) -> None:
        self.session.send(stream, message, fin)
        self.pair.run()

    def consume(self, stream: Stream, cost: int) -> None:
        """The application has read `cost` of the stream."""
        self.session.consumed(stream, cost)
        self.pair.run()

    def reset(self, stream: Stream, error: bytes = b"") -> None:
        self.session.reset(stream, error)
        self.pair.run()

    def release(self, stream: Stream) -> None:
        """The owner is done with the stream."""
        self.session.release(stream)
        self.pair.run()

    def dial(self) -> Link:
        """A new connection to the other side."""
        line = Line(self.pair.clock, lambda: self.pair.latency, self.pair.pieces)
        link = self.node.dial(self.other.node.identity.fingerprint, self.pair.clock.now, loopback=True)
        self._join(link, line, 0)
        self.other._join(self.other.node.accept(self.pair.clock.now, loopback=True), line, 1)
        self.pair.line = line
        return link

    # ------------------------------------------------------------------ golang/net's dialect
    def feed(self, *frames: bytes) -> None:
        """The other side's link sends these frames (whole, with headers) in a record of their own."""
        self.other.link._frames.extend(frames)
        self.pair.run()

    def expect(self, reason: str, kind: Event, body: Any = ..., *, fin: bool | None = None) -> tuple[Any, ...]:
        """The next event of this side's session must be this one; gives it whole. AssertionError says `reason`."""
        self.pair.run()
        events = self.session.events
        assert events, f"{reason}: {kind.name} was expected, nothing happened"
        event = events.pop(0)
        seen = f"{event[0].name} {event[2]!r:.200} fin={event[3]}"
        assert event[0] is kind, f"{reason}: {kind.name} was expected, not {seen}"
        assert body is ... or event[2] == body, f"{reason}: {body!r:.200} was expected, not {seen}"
        assert fin is None or event[3] == fin, f"{reason}: fin={fin} was expected, not {seen}"
        return event

    def idle(self, reason: str) -> None:
        """Nothing more has happened to this side, and it has nothing to write. AssertionError says `reason`."""
        self.pair.run()
        assert not self.session.events, f"{reason}: {self.session.events!r:.400}"
        assert not self.link.pending(self.pair.clock.now), f"{reason}: the link has something to write"

    def told(self) -> list[tuple[Any, ...]]:
        """What the node said since the last time."""
        self.pair.run()
        events, self.node.events[:] = list(self.node.events), []
        return events

    # ------------------------------------------------------------------ inside
    def _join(self, link: Link, line: Line, end: int) -> None:
        self.links.append(link)
        self.line_of[link] = line, end
        line.join(end, lambda data: self._heard(link, data))

    def _heard(self, link: Link, data: bytes) -> None:
        now = self.pair.clock.now
        if data:
            link.receive(data, now)
        else:
            link.eof(now)
        self.flush()

    def flush(self) -> None:
        """Write what the links have to say."""
        now = self.pair.clock.now
        self._session = self.peer.session or self._session
        for link, (line, end) in list(self.line_of.items()):
            while data := link.take(now):
                line.write(end, data)
            if link.done:
                line.close(end)
                del self.line_of[link]

    def due(self) -> float:
        """When one of the links wants to be woken."""
        times = [link.deadline for link in self.line_of]
        times += [link.ack_at for link in self.line_of if link.ack_at is not None]
        return min(times, default=float("inf"))

    def tick(self) -> None:
        now = self.pair.clock.now
        for link in list(self.line_of):
            if now >= link.deadline:
                link.tick(now)
        self.flush()


class Pair:
    """Two connected nodes, `a` (who dialled) and `b`. `Pair(connect=False)` leaves the dialling to the test.

    `config` is for both, `config_b` for b alone. `latency` and `pieces` may be set at any time, for new lines.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        config: Config | None = None,
        config_b: Config | None = None,
        connect: bool = True,
        judge: Judge | None = None,
        **caps: Any,
    ) -> None:
        self.clock = Clock()
        self.dice = Random(seed)
        self.latency = LATENCY
        self.pieces: Callable[[bytes], Any] = lambda data: (data,)
        self.line: Line | None = None
        config = config or Config()
        judge = judge or (lambda fingerprint, caps: Verdict(frozenset({caps.agent})))
        self.a = Side(self, self._node("a", config, judge, caps))
        self.b = Side(self, self._node("b", config_b or config, judge, caps))
        self.a.other, self.b.other = self.b, self.a
        if connect:
            self.connect()

    def _node(self, name: str, config: Config, judge: Judge, caps: dict[str, Any]) -> Node:
        entropy = self.dice.randbytes
        return Node(
            Identity.generate(entropy),
            caps_of(config, name, f"{name}-1", **caps),
            config,
            judge,
            entropy=entropy,
            kem=FakeKem(entropy),
            boot_id=bytes(16) if caps.get("seal") == "none" else b"",
            wall_ms=lambda: int(self.clock.now * 1000),
        )

    def connect(self, who: Literal["a", "b"] = "a") -> None:
        """Dial, and go on until the link is up at both sides; the events LIVE are taken away."""
        (self.a if who == "a" else self.b).dial()
        self.run()
        for side in (self.a, self.b):
            assert side.peer.link is not None, f"no link: {side.node.events}"
            side.expect("the session is live", Event.LIVE)

    def run(self) -> None:
        """Let everything arrive that is on its way; no timer fires, but for an ACK that is due."""
        self.a.flush()
        self.b.flush()
        while self.clock.next <= self.clock.now + max(1.0, 2 * self.latency):
            self.clock.step()

    def advance(self, seconds: float) -> None:
        """Time passes, from one deadline to the next; the nodes' own second ticks, too."""
        until = self.clock.now + seconds
        ticked = self.clock.now
        while True:
            self.run()
            due = min(self.a.due(), self.b.due(), self.clock.next, ticked + 1.0)
            if due > until:
                break
            self.clock.run_until(max(due, self.clock.now + 1e-6))
            for side in (self.a, self.b):
                side.tick()
                if self.clock.now >= ticked + 1.0:
                    side.node.tick(self.clock.now)
            if self.clock.now >= ticked + 1.0:
                ticked = self.clock.now
        self.clock.run_until(until)
        self.run()

    # ------------------------------------------------------------------ what happens to the line
    @property
    def _line(self) -> Line:
        assert self.line is not None, "nobody has dialled"
        return self.line

    def cut(self) -> None:
        """Both ends read the end; what was on its way is lost."""
        self._line.cut()
        self.run()

    def cut_after(self, size: int, side: Literal["a", "b"] = "a") -> None:
        """The line dies once `size` more bytes written by `side` have arrived."""
        way = self._way(side)
        way.cut_at = way.delivered + size

    def hole(self, side: Literal["a", "b"] = "a") -> None:
        """From now on what `side` writes vanishes, and nobody is told."""
        self._way(side).vanish()

    def half_close(self, side: Literal["a", "b"] = "a") -> None:
        """The other side of `side` reads the end; the other direction goes on."""
        self._way(side).shut()
        self.run()

    def _way(self, side: Literal["a", "b"]) -> Any:
        for line, end in (self.a if side == "a" else self.b).line_of.values():
            if line is self._line:
                return line.ways[end]
        raise AssertionError(f"{side} has no open line")
