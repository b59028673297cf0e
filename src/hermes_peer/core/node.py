"""The node: who we are, whom we know, and which link carries which session.

Knows: meeting, resuming, takeover, simultaneous dials, duplicate identities (spec: handshake 6, session 4).
Refuses to know: sockets, files, the trust list (a `Judge` decides). Called by: endpoint, simulator; links ask it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import msgspec

from hermes_peer.core.bucket import Bucket
from hermes_peer.core.config import Caps, Config, Settings
from hermes_peer.core.greeting import Greeting, Seen
from hermes_peer.core.heartbeat import Load
from hermes_peer.core.link import Link
from hermes_peer.core.peer import Peer
from hermes_peer.core.resume import ResumeIndex
from hermes_peer.core.session import Session
from hermes_peer.core.states import LinkState, Reason, SessionState
from hermes_peer.crypto.handshake import ZERO, Acceptor, Dialler, Entropy, Offer, Outcome, host_tag
from hermes_peer.crypto.kem import Kem
from hermes_peer.crypto.keys import Identity
from hermes_peer.errors import ProtocolError, UsageError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import UNKNOWN_MARK


class Verdict(NamedTuple):
    """What the trust list says of a proven key: its granted names, or why not."""

    names: frozenset[str]
    reason: Reason = Reason.NONE
    text: str = ""


YOUNG_S = 1.0  # a handshake takes less: younger links make room for nobody while there are older ones
GONE = Reason.EXPIRED, "the session ended while this link was made"
LATE = Reason.DUPLICATE, "a newer link was taken since this one was begun"

Judge = Callable[[bytes, Caps], Verdict]


class NodeEvent(IntEnum):
    """First member of `(NodeEvent, peer or None, link, reason, text)`."""

    UP = 0  # a link carries the peer's session
    DOWN = 1
    DIAL_FAILED = 2
    REFUSED = 3  # an inbound link was not wanted, or did not prove itself
    SESSION = 4  # a new session begins
    FENCED = 5  # a newer link took the session over: this one has a last word to write


class Node:
    """Links are made by `dial` and `accept`; `events` tells the runtime what came of them."""

    def __init__(
        self,
        identity: Identity,
        caps: Caps,
        config: Config,
        judge: Judge,
        *,
        entropy: Entropy,
        kem: Kem,
        offer: Offer | None = None,
        realm: bytes = ZERO,
        boot_id: bytes = b"",
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.identity = identity
        self.caps = caps
        self.config = config
        self.judge = judge
        self.offer = offer or Offer()
        self.realm = realm
        self.peers: dict[bytes, Peer] = {}
        self.events: list[tuple[Any, ...]] = []
        self.half_open: dict[Link, str] = {}  # inbound, unproven; oldest first; the address it came from
        self.queue_ms = 0
        self.accepting = True
        self._entropy = entropy
        self._kem = kem
        self._boot_id = boot_id
        self._wall_ms = wall_ms
        self._resume = ResumeIndex()
        self._seen = Seen()
        self._hellos = Bucket()

    # ------------------------------------------------------------------ links
    def dial(self, fingerprint: bytes, now: float, *, local: bool = False, loopback: bool = False) -> Link:
        """A link to whoever holds `fingerprint`. `local`: over a Unix socket; `loopback`: between two loopback
        addresses. Raises UsageError for our own key."""
        if fingerprint == self.identity.fingerprint:
            raise UsageError("this address belongs to this agent's own key: an agent does not dial itself")
        peer = self.peer(fingerprint)
        psk, id = peer.offer() or (None, b"")
        handshake = Dialler(
            self.identity,
            fingerprint,
            self.offer,
            lambda session: self._blinded(session, 1, local or loopback).encode(),
            entropy=self._entropy,
            kem=self._kem,
            realm=self.realm,
            psk=psk,
            resume_id=id,
            now_ms=self._wall_ms(),
        )
        greeting = Greeting(handshake, self._resume.find, self._seen)
        if peer.dialling is not None:
            peer.dialling.refuse(Reason.DUPLICATE, "a newer dial takes its place")
        link = peer.dialling = Link(self, greeting, now, self.config.handshake_s, local=local)
        link.loopback = loopback
        return link

    def accept(self, now: float, *, address: str = "", local: bool = False, loopback: bool = False) -> Link:
        """A link for an inbound connection. Too many unproven ones: an old one goes (attack 15)."""
        same = [link for link, where in self.half_open.items() if where == address]
        if len(same) >= self.config.half_open_address and now - same[0].born >= YOUNG_S:
            same[0].close(Reason.BUSY, "too many connections of this address have not proved themselves")
        elif len(self.half_open) >= self.config.half_open:
            self._crowded(now).close(Reason.BUSY, "too many connections have not proved themselves")
        handshake = Acceptor(
            self.identity,
            self.offer,
            entropy=self._entropy,
            kem=self._kem,
            session=self._entropy(16),
            realm=self.realm,
            now_ms=self._wall_ms(),
        )
        # Whoever opens our Unix socket is this user: he needs no flood to use this machine's time.
        admit = None if local else partial(self._hellos.take, address)
        greeting = Greeting(handshake, self._resume.find, self._seen, admit)
        link = Link(self, greeting, now, self.config.handshake_s, local=local)
        link.loopback = loopback
        self.half_open[link] = address
        return link

    def peer(self, fingerprint: bytes) -> Peer:
        """The one Peer for a fingerprint, made at first sight of it by us (dial) or by proof (accept)."""
        found = self.peers.get(fingerprint)
        if found is None:
            found = self.peers[fingerprint] = Peer(fingerprint)
        return found

    # ------------------------------------------------------------------ what links ask
    def greeted(self, link: Link, outcome: Outcome) -> frames.Link | tuple[Reason, str]:
        """We dialled, WELCOME holds: the LINK that goes right behind READY."""
        peer = self.peers[outcome.peer_fingerprint]
        if not outcome.resumed:
            first = self.config.first_sequence
            return frames.Link(outcome.session, False, first, first)
        session = peer.session
        if session is None or session.id != outcome.session:
            return GONE
        self._fence(peer)
        link.session = session
        return frames.Link(session.id, True, *session.attach())

    def accepted(self, link: Link, outcome: Outcome, now: float) -> frames.Link | tuple[Reason, str]:
        """We were dialled, READY holds: our LINK, or why not. Nothing of ours has changed before this."""
        self.half_open.pop(link, None)
        caps = link.caps
        assert caps is not None
        refusal = self._unwanted(outcome, caps)
        if refusal is not None:
            return refusal
        peer = self.peer(outcome.peer_fingerprint)
        session = peer.session
        if outcome.resumed and (session is None or session.id != outcome.session):
            return GONE
        if not outcome.resumed and session is not None and link.born < peer.newest:
            return LATE
        refusal = self._contended(peer, link, caps, now)
        if refusal is not None:
            return refusal
        try:
            settings = Settings.agree(self.caps, caps)
        except ProtocolError as error:
            return Reason.UNACCEPTABLE, str(error)
        self._fence(peer)
        mark = self.config.first_sequence
        if outcome.resumed and session is not None:
            marks = session.attach()
        else:
            self._replace(peer, Reason.REPLACED, "the peer came back without its session")
            session = self._begin(peer, outcome.session, False, settings)
            mark = self._resume.mark(link.asked)
            marks = mark, session.attach()[1]
        self._note(peer, caps)
        link.session = session
        peer.link = link
        peer.newest = link.born
        self._resume.learn(peer, outcome.psk, link.asked)
        mine = self._blinded(session.id, 2, link.local or link.loopback).encode()
        return frames.Link(session.id, outcome.resumed, *marks, mine)

    def linked(self, link: Link, theirs: frames.Link, now: float) -> tuple[Reason, str] | None:
        """The peer's LINK has opened: the link is up, and its secret is the one to resume with."""
        outcome, caps = link.outcome, link.caps
        assert outcome is not None and caps is not None
        peer = self.peers[outcome.peer_fingerprint]
        if theirs.session != outcome.session or theirs.resumed != outcome.resumed:
            raise ProtocolError("LINK names another session than the handshake")
        if link.dialled:
            refusal = self._unwanted(outcome, caps)
            if refusal is not None:
                return refusal
            try:
                settings = Settings.agree(self.caps, caps)
            except ProtocolError as error:
                return Reason.UNACCEPTABLE, str(error)
            peer.dialling = None
            peer.dialled_up_at = peer.newest = now
            if not outcome.resumed:
                self._fence(peer)
                mark = theirs.recv_next if theirs.recv_next != UNKNOWN_MARK else None
                self._replace(peer, Reason.REPLACED, "the peer no longer has the session", mark)
                link.session = self._begin(peer, outcome.session, True, settings)
                link.session.attach()
            elif link.session is not peer.session:
                return GONE
            self._note(peer, caps)
            peer.link = link
            self._resume.learn(peer, outcome.psk)
        session = link.session
        assert session is not None
        first = self.config.first_sequence
        session.peer_link(theirs.recv_next if outcome.resumed else first, theirs.send_next)
        peer.confirm(link, outcome.psk, now)
        link.agreed(session.settings, self._sealed(link, caps, session.id), now)
        self.events.append((NodeEvent.UP, peer, link, Reason.NONE, ""))
        return None

    def closed(self, link: Link, reason: Reason, text: str, by_peer: bool, now: float) -> None:
        """The link is over; its session waits for another."""
        unproven = self.half_open.pop(link, None) is not None
        session, link.session = link.session, None
        if unproven or (link.outcome is None and not link.dialled):
            self.events.append((NodeEvent.REFUSED, None, link, reason, text))
            return
        peer = next((p for p in self.peers.values() if p.dialling is link or p.link is link), None)
        if peer is None:
            kind = NodeEvent.FENCED if reason is Reason.REPLACED else NodeEvent.REFUSED
            known = self.peers.get(link.outcome.peer_fingerprint) if link.outcome else None
            if known and known.session is session and session and not (known.link or known.dialling):
                session.detach()
                known.detached_at = now
            self.events.append((kind, known, link, reason, text))
            return
        was_up = peer.link is link
        if was_up:
            peer.link = None
            if by_peer and reason is Reason.DUPLICATE:  # it dialled anew before it had read our LINK
                peer.unsure = None
        if session is not None and session is peer.session:
            session.detach()
            peer.detached_at = now
            if session.state is SessionState.ENDED:
                self._resume.bury(peer)
        if peer.dialling is link:
            peer.dialling = None
            self.events.append((NodeEvent.DIAL_FAILED, peer, link, reason, text))
        elif was_up:
            self.events.append((NodeEvent.DOWN, peer, link, reason, text))

    def load(self) -> Load:
        """What we tell of ourselves in every PING and PONG (mission L7)."""
        running = sum(p.session.places.handlers for p in self.peers.values() if p.session is not None)
        links = sum(p.link is not None for p in self.peers.values())
        return Load(running, self.queue_ms, self.accepting, links)

    def dice(self) -> float:
        return int.from_bytes(self._entropy(2), "big") / 65536

    # ------------------------------------------------------------------ time
    def tick(self, now: float) -> None:
        """Sessions that nobody came back to end; memory is given or taken. Call about once a second."""
        total = 0
        detached = []
        for peer in self.peers.values():
            session = peer.session
            if session is None:
                continue
            total += session.buffered
            if session.state is SessionState.DETACHED:
                if now - peer.detached_at > session.settings.resume_s:
                    self.end_session(peer, Reason.EXPIRED, "nobody came back within the resume window")
                else:
                    detached.append((peer.detached_at, peer))
        pressed = total > self.config.budget
        for _, peer in sorted(detached, key=lambda pair: pair[0]):
            if total <= self.config.budget:
                break
            assert peer.session is not None
            total -= peer.session.buffered
            self.end_session(peer, Reason.BUSY, "this agent is short of memory")
        for peer in self.peers.values():
            if peer.session is not None:
                receiver = peer.session.receiver
                if receiver.pressed and not pressed:
                    receiver.relieve()
                receiver.pressed = pressed

    def end_session(self, peer: Peer, reason: Reason, text: str) -> None:
        """End a peer's session from our side; its link, if any, says so."""
        if peer.link is not None:
            peer.link.close(reason, text)
        elif peer.session is not None:
            peer.session.end(reason, text)
            self._resume.bury(peer)

    # ------------------------------------------------------------------ inside
    def _unwanted(self, outcome: Outcome, caps: Caps) -> tuple[Reason, str] | None:
        names, reason, text = self.judge(outcome.peer_fingerprint, caps)
        if reason is not Reason.NONE:
            return reason, text
        self.peer(outcome.peer_fingerprint).names = names
        return None

    def _contended(self, peer: Peer, link: Link, caps: Caps, now: float) -> tuple[Reason, str] | None:
        """Two dials at once: while our own is open, the link dialled by the lower fingerprint stays."""
        own = peer.dialling
        crossing = own is not None or (peer.link is not None and link.born <= peer.dialled_up_at)
        if crossing and self.identity.fingerprint < peer.fingerprint:
            return Reason.DUPLICATE, "both sides dialled; the other link stays"
        if peer.instance and caps.instance != peer.instance and peer.link is not None and peer.swapped(now):
            return Reason.CLONED, (
                "this identity is in use by another running instance: "
                "make a new key for one of them (delete its agents/NAME/N folder)"
            )
        if own is not None:
            peer.dialling = None
            own.refuse(Reason.DUPLICATE, "both sides dialled; the other link stays")
            self.events.append((NodeEvent.DIAL_FAILED, peer, own, Reason.DUPLICATE, "the peer's own dial stays"))
        return None

    def _fence(self, peer: Peer) -> None:
        """The newer link wins: stop reading the old one before any mark is computed."""
        old, peer.link = peer.link, None
        if old is not None and old.state is not LinkState.CLOSED:
            old.fence()

    def _begin(self, peer: Peer, id: bytes, originator: bool, settings: Settings) -> Session:
        session = Session(id, originator, self.config, settings)
        peer.session = session
        self.events.append((NodeEvent.SESSION, peer, None, Reason.NONE, ""))
        return session

    def _replace(self, peer: Peer, reason: Reason, text: str, mark: int | None = None) -> None:
        if peer.session is not None:
            peer.session.end(reason, text, peer_mark=mark)
            self._resume.bury(peer)

    def _note(self, peer: Peer, caps: Caps) -> None:
        peer.instance = caps.instance
        peer.caps = caps

    def _crowded(self, now: float) -> Link:
        """Which unproven link goes when there are too many in all: the oldest of the address that has most."""
        oldest = next(iter(self.half_open))
        crowd = Counter(self.half_open.values()).most_common(1)[0][0]
        link = next(link for link, where in self.half_open.items() if where == crowd)
        return oldest if now - link.born < YOUNG_S <= now - oldest.born else link

    def _blinded(self, session: bytes, role: int, near: bool) -> Caps:
        """Our caps for one link. `host` lets both ends prove one machine without naming it; it is told only where the
        transport says the same, so that both ends come to one answer."""
        if not (near and self._boot_id) or self.caps.seal != "none":
            return self.caps
        tag = host_tag(self._boot_id, self.realm, session, role)
        return msgspec.structs.replace(self.caps, host=tag.hex())

    def _sealed(self, link: Link, caps: Caps, session: bytes) -> bool:
        if self.caps.seal != "none" or caps.seal != "none":
            return True
        if link.local:
            return False
        role = 2 if link.dialled else 1
        return (
            not (link.loopback and self._boot_id)
            or caps.host != host_tag(self._boot_id, self.realm, session, role).hex()
        )
