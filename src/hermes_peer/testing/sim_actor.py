"""One process of the simulated world: a node, its lines, its work. It drives the core as the runtime does.

Knows: when to dial, feed, tick, take and close. Refuses to know: which fault comes next, what is promised.
Called by: simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from hermes_peer.core.config import caps_of
from hermes_peer.core.events import Event
from hermes_peer.core.link import Link
from hermes_peer.core.node import Node, NodeEvent, Verdict
from hermes_peer.core.peer import Peer
from hermes_peer.core.session import Session
from hermes_peer.core.states import Reason, SessionState
from hermes_peer.crypto.handshake import Offer
from hermes_peer.crypto.keys import Identity
from hermes_peer.testing.pair import FakeKem, number_from
from hermes_peer.testing.sim_line import Clock, Line
from hermes_peer.testing.sim_load import OPEN, Asking, Call, Script, Serving, Talk, Violation, understand

if TYPE_CHECKING:
    from hermes_peer.testing.simulator import World


class Actor:
    """`link_of`: which line end carries which link; a link that is done and written leaves it."""

    def __init__(self, world: World, number: int, identity: Identity) -> None:
        self.world = world
        self.number = number
        self.identity = identity
        self.clock: Clock = world.clock
        self.dice: Random = world.dice
        self.config = world.plan.configs[number]
        self.life = 0
        self.frozen_until = 0.0
        self.refusing: set[bytes] = set()
        self._inbox: list[Callable[[], None]] = []
        self.boot()

    def boot(self) -> None:
        """A process begins, with the same key and no memory."""
        world, config = self.world, self.config
        self.life += 1
        self.touched = False
        self._flushes = 0
        self.blocked: set[Link] = set()
        self.line_of: dict[Link, Line] = {}
        self.lines: dict[Link, tuple[Line, int]] = {}
        self.attached: dict[Session, Link] = {}
        self.armed: dict[Link, float] = {}
        self.sessions: dict[Session, Peer] = {}
        self.talks: dict[Talk, None] = {}
        self.waiting: dict[int, list[Call]] = {}
        self.tries: dict[int, int] = {}
        self.redials: dict[int, float] = {}
        caps = caps_of(
            config, f"n{self.number}", f"n{self.number}-{self.life}", seal="required" if world.plan.sealed else "none"
        )
        self.node = Node(
            self.identity,
            caps,
            config,
            self._judge,
            entropy=self.dice.randbytes,
            kem=FakeKem(self.dice.randbytes),
            offer=Offer(suites=(1, 2) if self.number % 2 else (2,)),
            boot_id=b"" if world.plan.sealed else bytes(16),
            wall_ms=lambda: int(self.clock.now * 1000),
        )
        if world.plan.first_id:
            number_from(self.node, world.plan.first_id)
        self.later(1.0, self._each_second)

    def _judge(self, fingerprint: bytes, caps: Any) -> Verdict:
        if fingerprint in self.refusing:
            return Verdict(frozenset(), Reason.UNTRUSTED, "not today")
        return Verdict(frozenset({caps.agent}))

    # ------------------------------------------------------------------ time
    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Call `do` in this life of the process, once it runs."""
        life = self.life
        self.clock.after(seconds, lambda: self.run(life, do))

    def run(self, life: int, do: Callable[[], None]) -> None:
        """One turn of the event loop. What comes while the process stands still waits in order."""
        if life != self.life:
            return
        if self.clock.now < self.frozen_until:
            self._inbox.append(lambda: self.run(life, do))
            return
        do()
        self.settle()

    def freeze(self, seconds: float) -> None:
        self.frozen_until = self.clock.now + seconds
        for link in self.lines:
            if self.dice.random() < 0.5:
                link.heartbeat.forgive(seconds)
        self.clock.at(self.frozen_until, self._thaw)

    def _thaw(self) -> None:
        inbox, self._inbox = self._inbox, []
        for do in inbox:
            do()

    def _each_second(self) -> None:
        self.node.tick(self.clock.now)
        for peer in self.node.peers.values():
            self._dial_if_wanted(peer)
        self.later(1.0, self._each_second)

    # ------------------------------------------------------------------ lines
    def dial(self, other: Actor) -> None:
        world = self.world
        self.tries[other.number] = self.tries.get(other.number, 0) + 1
        if not world.reachable(self, other):
            self._postpone(other.number)
            return
        link = self.node.dial(other.identity.fingerprint, self.clock.now, loopback=True)
        line = world.line(self, other)
        self._join(link, line, 0)
        life = other.life
        self.clock.after(line.ways[0].latency(), lambda: other.run(life, lambda: other.offered(line)))

    def offered(self, line: Line) -> None:
        """Somebody has connected."""
        if not line.dead:
            self._join(self.node.accept(self.clock.now, loopback=True), line, 1)

    def _join(self, link: Link, line: Line, end: int) -> None:
        life = self.life
        self.lines[link] = line, end
        self.line_of[link] = line
        self.world.links += 1
        line.join(end, lambda data: self._hear(life, link, data))
        line.ways[end].drained = lambda: self._drained(life, link)
        self.arm(link)

    def _drained(self, life: int, link: Link) -> None:
        """There is room in the line again: what the link kept back may go."""
        if link in self.blocked:
            self.run(life, lambda: self.blocked.discard(link))

    def _hear(self, life: int, link: Link, data: bytes) -> None:
        if life != self.life or self.clock.now < self.frozen_until:
            self.run(life, lambda: self._heard(link, data))
            return
        self._heard(link, data)
        session = link.session
        if self.node.events or link.done or link.pending(self.clock.now) or (session is not None and session.events):
            self.settle()

    def _heard(self, link: Link, data: bytes) -> None:
        if link not in self.lines:
            return
        self.world.check_carrier(self, link)
        if data:
            link.receive(data, self.clock.now)
            if self.world.plan.overlap and link.session is not None:
                _repeat_more(link.session)
        else:
            link.eof(self.clock.now)
        self._note_carrier(link)
        self.arm(link)

    def _note_carrier(self, link: Link) -> None:
        session = link.session
        if session is not None and self.attached.get(session) is not link:
            self.world.attach(self, session, link)

    def arm(self, link: Link) -> None:
        """Wake up when the link wants it, or an ACK is due."""
        due, ack_at = link.deadline, link.ack_at
        if ack_at is not None and ack_at < due and link not in self.blocked:
            due = ack_at
        due = max(due, self.clock.now + 1e-6)
        if due < self.armed.get(link, float("inf")):
            self.armed[link] = due
            if due != float("inf"):
                life = self.life
                self.clock.at(due, lambda: self.run(life, lambda: self._wake(link, due)))

    def _wake(self, link: Link, due: float) -> None:
        if self.armed.get(link) == due:
            del self.armed[link]
        if link in self.lines:
            if self.clock.now >= link.deadline:
                link.tick(self.clock.now)
            self.arm(link)

    # ------------------------------------------------------------------ one turn's consequences
    def settle(self) -> None:
        """Events to the work, bytes to the lines, until nothing moves."""
        moved = True
        while moved:
            self.touched = False
            self._node_events()
            for session in list(self.sessions):
                if session.events:
                    self._session_events(session)
            moved = self._flush() or self.touched
        self.world.check(self)

    def _flush(self) -> bool:
        now, moved = self.clock.now, False
        self._flushes += 1
        for link in list(self.lines):
            if link in self.blocked and not link.done:
                continue
            if link.pending(now):
                moved = self._write(link, now) or moved
            elif not self._flushes % 16 and link.take(now):
                raise Violation("take() gave something although pending() said no")
            if link.done:
                line, end = self.lines.pop(link)
                line.close(end)
                self.armed.pop(link, None)
        return moved

    def _write(self, link: Link, now: float) -> bool:
        line, end = self.lines[link]
        moved = False
        while data := link.take(now):
            moved = True
            self.world.sealed(link, data)
            line.write(end, data)
            if line.ways[end].flying > line.buffer and not link.done:
                self.blocked.add(link)
                return True
        if link.pending(now):
            raise Violation("pending() goes on promising what take() does not give")
        self.arm(link)
        return moved

    def _node_events(self) -> None:
        events = self.node.events
        while events:
            kind, peer, link, reason, text = events.pop(0)
            self.touched = True
            self.world.saw(self, kind, peer, link, reason, text)
            if kind is NodeEvent.SESSION and peer.session is not None:
                self.sessions[peer.session] = peer
                for session, owner in self.sessions.items():
                    if owner is peer and session is not peer.session and session.reason is Reason.NONE:
                        raise Violation("two sessions of one pair are alive on one node")
                self._begin_waiting(peer)
            elif kind is NodeEvent.UP:
                self.tries.pop(self.world.number_of(peer), None)
                self._note_carrier(link)
            elif kind is NodeEvent.DIAL_FAILED:
                self._postpone(self.world.number_of(peer))
            elif kind is NodeEvent.DOWN:
                self.redials[self.world.number_of(peer)] = self.clock.now + self.dice.random() * 0.2

    def _session_events(self, session: Session) -> None:
        events = session.events
        while events:
            batch = events[:]
            events.clear()
            self.touched = True
            for kind, stream, body, fin, cost in batch:
                if kind is Event.ENDED:
                    self._ended(session, body, fin)
                elif stream is not None:
                    self._stream_event(session, kind, stream, body, fin, cost)

    def _stream_event(self, session: Session, kind: Event, stream: Any, body: Any, fin: bool, cost: int) -> None:
        talk = stream.owner
        if kind is Event.MESSAGE:
            if talk is None and (stream.mine or stream.released):
                session.consumed(stream, cost)
            elif talk is None:
                self._serve(session, stream, body, fin, cost)
            elif talk.dead:
                session.consumed(stream, cost)
            else:
                talk.arrived(body, fin, cost)
        elif kind is Event.RESET:
            if talk is None:  # aborted before its first message was whole
                session.release(stream)
            else:
                talk.was_reset(body)
        elif kind is Event.WRITABLE and talk is not None:
            talk.writable()

    def _serve(self, session: Session, stream: Any, body: bytes, fin: bool, cost: int) -> None:
        kind, number, _ = understand(body)
        call = self.world.calls[number]
        if kind != OPEN or stream.mine or call.callee is not self:
            raise Violation(f"message {kind} of call {number} began a stream at {self.number}")
        Serving(self, session, stream, call).arrived(body, fin, cost)

    def _ended(self, session: Session, reason: Reason, text: str) -> None:
        peer = self.sessions.pop(session)
        self.world.ended(self, peer, session, reason, text)
        for talk in [t for t in self.talks if t.session is session]:
            talk.lost()

    # ------------------------------------------------------------------ calls
    def call(self, call: Call) -> None:
        peer = self.node.peer(call.callee.identity.fingerprint)
        if peer.session is None:
            self.waiting.setdefault(call.callee.number, []).append(call)
            self._dial_if_wanted(peer)
        else:
            self._start(peer.session, call)

    def _start(self, session: Session, call: Call) -> None:
        call.session = session
        stream = session.open(reserved=call.asked)
        Asking(self, session, stream, call, True).start()
        self.touched = True

    def _begin_waiting(self, peer: Peer) -> None:
        session = peer.session
        for call in self.waiting.pop(self.world.number_of(peer), []):
            assert session is not None
            self._start(session, call)

    def ask_back(self, session: Session, parent: Call, then: Callable[[], None]) -> None:
        if session.state is SessionState.ENDED:
            return  # whoever asks will hear of it next
        call = self.world.make_call(self, parent.caller, Script(), asked=True)
        call.on_end = then
        self._start(session, call)

    def _dial_if_wanted(self, peer: Peer) -> None:
        number = self.world.number_of(peer)
        wanted = bool(self.waiting.get(number)) or (peer.session is not None and not self.at_rest(peer.session))
        if wanted and peer.link is None and peer.dialling is None and self.clock.now >= self.redials.get(number, 0.0):
            self.dial(self.world.actors[number])

    def at_rest(self, session: Session) -> bool:
        """Whether nothing of ours waits for a link."""
        return session.idle and not any(t.session is session for t in self.talks)

    def _postpone(self, number: int) -> None:
        wait = min(8.0, 0.25 * 2 ** min(10, self.tries.get(number, 0)))
        self.redials[number] = self.clock.now + wait * self.dice.random()


def _repeat_more(session: Session) -> None:
    """Before anything is sent again: the first batch whole, although the peer has some of it."""
    again, chunks = session.sender.again, session.sender.replay.chunks
    if again and len(again) == len(chunks) and len(again[0]) < len(chunks[0][1]):
        again[0] = chunks[0][1]
