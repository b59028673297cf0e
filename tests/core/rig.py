"""Two honest nodes with loaded dice, and two bare sessions.

Knows: how the tests of this room make and move them. Refuses to know: attacks. Called by: the tests of this room.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from hermes_peer.core.config import Caps, Config, Settings, caps_of
from hermes_peer.core.events import Event
from hermes_peer.core.link import Link
from hermes_peer.core.node import Node, NodeEvent, Verdict
from hermes_peer.core.peer import Peer
from hermes_peer.core.records import Records
from hermes_peer.core.session import Session
from hermes_peer.core.states import LinkState, Reason
from hermes_peer.core.stream import Stream
from hermes_peer.crypto.handshake import Offer
from hermes_peer.crypto.kem import MlKem768
from hermes_peer.crypto.keys import Identity
from hermes_peer.wire import frames
from hermes_peer.wire.frames import HEADER, HEADER_SIZE, Flag, Frame, Type

# Sorted, so that in every test A has the lower fingerprint.
A, B, C = sorted((Identity.from_seed(bytes([n]) * 32) for n in (1, 2, 3)), key=lambda i: i.fingerprint)
WRAP = 2**32 - 4  # sequences start here and wrap at once
FEW = Config(streams=20, window=4096, message=20_000, spare=0)
SYN, FIN, RST, MORE = int(Flag.SYN), int(Flag.FIN), int(Flag.RST), int(Flag.MORE)
SUITE = Offer(suites=(2,))  # no ML-KEM, for speed


def dice(label: str) -> Callable[[int], bytes]:
    count = 0

    def draw(n: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_256(f"{label} {count}".encode()).digest(n)

    return draw


def welcome_all(fingerprint: bytes, caps: Caps) -> Verdict:
    return Verdict(frozenset({caps.agent}))


def node(identity: Identity, name: str, config: Config | None = None, *, judge: Any = welcome_all, **more: Any) -> Node:
    config = config or Config()
    caps = more.pop("caps", {})
    instance = more.pop("instance", name + "-1")
    more = {"entropy": dice(name + instance), "kem": MlKem768(), "offer": SUITE} | more
    return Node(identity, caps_of(config, name, instance, **caps), config, judge, **more)


class World:
    """Nodes a and b, a clock, and at most one pair of links between them at a time."""

    def __init__(self, a: Node | None = None, b: Node | None = None, now: float = 1.0) -> None:
        self.a = a or node(A, "a")
        self.b = b or node(B, "b")
        self.now = now
        self.la: Link
        self.lb: Link

    def dial(self, by_a: bool = True, **more: Any) -> World:
        """Two fresh links, nothing moved yet."""
        one, two = (self.a, self.b) if by_a else (self.b, self.a)
        dialled = one.dial(two.identity.fingerprint, self.now, **more)
        accepted = two.accept(self.now, **more)
        self.la, self.lb = (dialled, accepted) if by_a else (accepted, dialled)
        return self

    def connect(self, by_a: bool = True, **more: Any) -> World:
        self.dial(by_a, **more).pump()
        assert self.la.state is self.lb.state is LinkState.OPEN, (self.la.state, self.lb.state)
        return self

    def pump(self) -> None:
        shuttle(self.la, self.lb, self.now)

    def cut(self) -> None:
        self.la.eof(self.now)
        self.lb.eof(self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for link in (self.la, self.lb):
            link.tick(self.now)
        self.pump()

    @property
    def peer_of_a(self) -> Peer:
        """b, as a knows it."""
        return self.a.peer(self.b.identity.fingerprint)

    @property
    def peer_of_b(self) -> Peer:
        return self.b.peer(self.a.identity.fingerprint)

    @property
    def sa(self) -> Session:
        session = self.peer_of_a.session
        assert session is not None
        return session

    @property
    def sb(self) -> Session:
        session = self.peer_of_b.session
        assert session is not None
        return session


def shuttle(one: Link, two: Link, now: float) -> None:
    """Carry bytes both ways until none are left."""
    moved = True
    while moved:
        moved = False
        for giver, taker in ((one, two), (two, one)):
            while data := giver.take(now):
                moved = True
                taker.receive(data, now)


def drain(link: Link, now: float) -> bytes:
    return b"".join(iter(lambda: link.take(now), b""))


def inject(link: Link, plain: bytes, now: float) -> None:
    """What a proven but rude peer of `link` may do: seal `plain` as its next record."""
    opener = link._records._opener  # type: ignore[union-attr]
    counter = opener.records
    size = len(plain) + 16
    header = b"HRMP\x01\x05\x00" + bytes(4) + counter.to_bytes(4, "big") + size.to_bytes(4, "big")
    nonce = (opener._iv ^ counter).to_bytes(12, "big")
    link.receive(header + opener._decrypt.__self__.encrypt(nonce, plain, header), now)  # type: ignore[attr-defined]


# ------------------------------------------------------------------ bare sessions
def agreed(mine: Config, theirs: Config) -> Settings:
    return Settings.agree(caps_of(mine, "x", "x"), caps_of(theirs, "y", "y"))


def other_fails(kind: int, flags: int, id: int, body: bytes) -> bool:
    raise AssertionError(f"frame {kind} is not the session's")


class Sessions:
    """x, the originator, and y, without links, keys or clocks."""

    def __init__(self, x: Config | None = None, y: Config | None = None) -> None:
        x, y = x or Config(), y or x or Config()
        self.x = Session(b"s" * 16, True, x, agreed(x, y))
        self.y = Session(b"s" * 16, False, y, agreed(y, x))
        self.now = 1.0

    def join(self) -> Sessions:
        """A link carries both."""
        x, y = self.x.attach(), self.y.attach()
        self.x.peer_link(*y)
        self.y.peer_link(*x)
        return self

    def cut(self) -> None:
        self.x.detach()
        self.y.detach()

    def give(self, giver: Session, taker: Session) -> bool:
        control, data = giver.take()
        if giver.receiver.ack_at is not None and giver.receiver.ack_at <= self.now:
            control += frames.encode_ack(giver.receiver.acked())
        if control or data:
            taker.receive(control + data, self.now, other_fails)
        return bool(control or data)

    def pump(self) -> None:
        while self.give(self.x, self.y) | self.give(self.y, self.x):
            pass

    def settle(self) -> None:
        """Also every acknowledgement."""
        self.pump()
        self.now += 1.0
        self.pump()


def messages(session: Session) -> list[bytes]:
    return [e[2] for e in session.events if e[0] is Event.MESSAGE]


def of(session: Session, kind: Event) -> list[tuple[Any, ...]]:
    return [e for e in session.events if e[0] is kind]


def arrived(session: Session) -> list[Stream]:
    """The streams that the peer opened, in order of their ids."""
    return [s for _, s in sorted(session.places.streams.items()) if not s.mine]


def eat(session: Session) -> list[bytes]:
    """Take all events, consume every message; the messages."""
    taken = list(session.events)
    session.events.clear()
    for event in taken:
        if event[0] is Event.MESSAGE:
            session.consumed(event[1], event[4])
    return [e[2] for e in taken if e[0] is Event.MESSAGE]


def data(stream: int, sequence: int, body: bytes = b"x", flags: int = 0) -> bytes:
    return frames.encode(Type.DATA, body, flags=flags, stream=stream, sequence=sequence)


def split(parts: Iterable[bytes]) -> list[Frame]:
    return [frame for part in parts for frame in frames.split(part)]


def last(world: World, of_a: bool = False) -> tuple[Any, ...]:
    """The newest node event: (kind, reason, text)."""
    kind, _, _, reason, text = (world.a if of_a else world.b).events[-1]
    return kind, reason, text


def unsealed(records: Records, frame: bytes) -> bytes:
    """What is inside of a whole SEALED frame."""
    return records.open(frame[:HEADER_SIZE], frame[HEADER_SIZE:])


def told(link: Link, other: Link, now: float) -> list[frames.Frame]:
    """The frames inside what `link` still says, as `other` can open them."""
    assert other._records is not None
    said, found, at = drain(link, now), [], 0
    while at < len(said):
        end = at + HEADER_SIZE + HEADER.unpack_from(said, at)[6]
        found += frames.split(unsealed(other._records, said[at:end]))
        at = end
    return found


def kinds(n: Node) -> list[NodeEvent]:
    return [e[0] for e in n.events]


def link_events(n: Node) -> list[tuple[NodeEvent, Reason]]:
    return [(e[0], e[3]) for e in n.events if e[0] is not NodeEvent.SESSION]


def trusts(*wanted: Identity) -> Any:
    def judge(fingerprint: bytes, caps: Caps) -> Verdict:
        if fingerprint in {i.fingerprint for i in wanted}:
            return Verdict(frozenset({caps.agent}))
        return Verdict(frozenset(), Reason.UNTRUSTED, f"your key is {fingerprint.hex()}")

    return judge


def receiving(config: Config = FEW) -> Session:
    """The originator's side of a session whose peer is this test."""
    return Sessions(config).join().x


def feed(session: Session, *parts: bytes, now: float = 1.0) -> None:
    session.receive(b"".join(parts), now, other_fails)


def pieces(stream: int, first: int, message: bytes, size: int, flags: int = 0) -> list[bytes]:
    """The frames of a message on an open stream."""
    cuts = [message[at : at + size] for at in range(0, len(message), size)]
    return [data(stream, first + n, cut, flags if n == len(cuts) - 1 else MORE) for n, cut in enumerate(cuts)]
