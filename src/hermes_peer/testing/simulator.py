"""The seeded simulator: whole worlds of nodes, lines and faults, each from one number.

Knows: the course of a world: work and faults, then healing, then the reckoning. Refuses to know: real time.
Called by: `python -m hermes_peer.testing.simulator`, `make sim`, tests.

A seed decides everything (sim_plan); `simulate(seed)` twice gives the same report. During the first part faults
may happen at any time (safety); then everything heals and all that was begun must end (liveness).
"""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hermes_peer.core.link import Link
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.peer import Peer
from hermes_peer.core.session import Session
from hermes_peer.core.states import Reason, SessionState
from hermes_peer.crypto.keys import Identity
from hermes_peer.testing import sim_checks
from hermes_peer.testing.sim_actor import Actor
from hermes_peer.testing.sim_faults import Faults
from hermes_peer.testing.sim_line import Clock, Line
from hermes_peer.testing.sim_load import Call, Script, Violation
from hermes_peer.testing.sim_plan import Plan

PATIENCE = 150.0  # virtual seconds in which something must end while anything is left, once the faults have stopped
FLAPS = 16  # links that a pair may need to come to rest


@dataclass
class Report:
    """What came of one seed. `violation` is empty if all promises were kept."""

    seed: int
    plan: Plan
    violation: str = ""
    trace: str = ""
    seconds: float = 0.0  # virtual
    events: int = 0
    links: int = 0
    sessions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    digest: str = ""


class World:
    """Everything there is. One clock, one source of chance."""

    def __init__(self, seed: int, plan: Plan | None = None, **changes: Any) -> None:
        self.dice = Random(seed)
        drawn = Plan.draw(self.dice)
        self.plan = replace(plan or drawn, **changes)
        self.clock = Clock()
        self.report = Report(seed, self.plan)
        self.links = 0
        self.calls: list[Call] = []
        self.lines: list[tuple[Line, Actor, Actor]] = []
        self.nonces = sim_checks.Nonces()
        self.faults = Faults(self)
        self.causes: dict[frozenset[int], set[str]] = {}
        self.known: dict[bytes, set[int]] = {}  # session -> who had it
        self.over: set[bytes] = set()  # sessions that one side has ended
        self.healed = False
        self._turns = 0
        self._story = hashlib.sha256()
        self._numbers: dict[bytes, int] = {}
        self.actors: list[Actor] = []
        for number in range(self.plan.nodes):
            identity = Identity.generate(self.dice.randbytes)
            self._numbers[identity.fingerprint] = number
            self.actors.append(Actor(self, number, identity))

    # ------------------------------------------------------------------ the course of things
    def run(self) -> Report:
        report, plan, clock, dice = self.report, self.plan, self.clock, self.dice
        begun = clock.now
        try:
            for _ in range(plan.calls):
                clock.at(begun + dice.random() * plan.seconds, self._begin_call)
            for _ in range(plan.strikes):
                clock.at(begun + dice.random() * plan.seconds, self.faults.strike)
            clock.run_until(begun + plan.seconds)
            self.faults.heal()
            self.healed = True
            links = self.links
            progress, until = self._progress(), clock.now + PATIENCE
            while not self._at_rest():
                clock.run_until(clock.now + 1.0)
                if progress != (progress := self._progress()):
                    until = clock.now + PATIENCE
                if clock.now > until:
                    raise Violation("nothing moves any more: " + self._stuck())
            clock.run_until(clock.now + 2.0)
            if plan.quiet:
                clock.run_until(clock.now + 150.0)
            self._reckon()
            pairs = plan.nodes * (plan.nodes - 1) // 2
            if self.links - links > 2 * FLAPS * pairs:
                raise Violation(f"{self.links - links} link ends were made after everything had healed")
        except Violation as violation:
            report.violation = str(violation)
        except Exception as error:
            report.violation = f"{type(error).__name__}: {error}"
            report.trace = traceback.format_exc()
        report.seconds = clock.now - begun
        report.events = clock.events
        report.links = self.links
        report.outcomes.update(call.outcome or "none" for call in self.calls)
        report.digest = self._story.hexdigest()[:16]
        return report

    def _begin_call(self) -> None:
        caller, callee = self.dice.sample(self.actors, 2)
        many = 1
        if "burst" in self.plan.loads and self.dice.random() < 0.1:
            many = self.dice.choice((5, 20, 20, 140))
        script = self._script(caller, callee)
        short = replace(script, item_size=20, open_size=20, think_s=0.0, stall_s=0.0, read_s=0.0, linger_s=0.0)
        for n in range(many):
            call = self.make_call(caller, callee, script if not n else short)
            caller.run(caller.life, lambda call=call: caller.call(call))  # type: ignore[misc]

    def _script(self, caller: Actor, callee: Actor) -> Script:
        dice, on = self.dice, self.plan.loads
        limit = min(caller.config.message, callee.config.message)
        large = "large" in on

        def size() -> int:
            if large and dice.random() < 0.2:
                return dice.randint(limit // 2, limit)
            return dice.choice((9, 20, 70, dice.randint(9, 300), dice.randint(9, 3000)))

        def maybe(load: str, chance: float = 0.4) -> bool:
            return load in on and dice.random() < chance

        return Script(
            open_size=size(),
            answer_size=size(),
            item_size=size(),
            items_in=dice.randint(1, 12) if maybe("items_in") else 0,
            items_out=dice.randint(1, 25) if maybe("items_out", 0.6) else 0,
            pace=dice.choice((0.0, 0.0, 0.01, 0.3)),
            read_s=dice.choice((0.01, 0.2)) if maybe("slow", 0.3) else 0.0,
            stall_s=dice.choice((1.0, 10.0)) if maybe("slow", 0.3) else 0.0,
            think_s=dice.choice((0.01, 1.0, 8.0)) if maybe("think") else 0.0,
            linger_s=dice.choice((0.0, 0.0, 0.05, 3.0)),
            cancel_s=dice.random() ** 2 * 3 if maybe("cancel") else None,
            abort_s=dice.random() ** 2 * 3 if maybe("abort", 0.25) else None,
            asks=dice.randint(1, 2) if maybe("asks") else 0,
            early=maybe("early", 0.3),
            late=dice.random() < 0.5,
            error_size=dice.choice((0, 4, 4096)),
        )

    def make_call(self, caller: Actor, callee: Actor, script: Script, *, asked: bool = False) -> Call:
        call = Call(len(self.calls), caller, callee, script, asked, callee_life=callee.life, caller_life=caller.life)
        self.calls.append(call)
        return call

    # ------------------------------------------------------------------ what actors ask
    def line(self, dialler: Actor, acceptor: Actor) -> Line:
        low, high = self.plan.latency
        line = Line(self.clock, lambda: self.dice.uniform(low, high), self._pieces)
        self.lines = [entry for entry in self.lines if not entry[0].dead]
        line.buffer = self.plan.buffer or self.dice.choice((1 << 30, 1 << 30, 3000, 1))
        self.lines.append((line, dialler, acceptor))
        self.faults.doom(line)
        return line

    def _pieces(self, data: bytes) -> list[bytes]:
        most = self.plan.split
        if not most or self.dice.random() < 0.7:
            return [data]
        if len(data) // most > 40:  # a few small ones at the front, for speed
            return [data[n * most : (n + 1) * most] for n in range(40)] + [data[40 * most :]]
        return [data[at : at + most] for at in range(0, len(data), most)]

    def reachable(self, one: Actor, two: Actor) -> bool:
        return frozenset((one.number, two.number)) not in self.faults.parted

    def number_of(self, peer: Peer) -> int:
        return self._numbers[peer.fingerprint]

    def attach(self, actor: Actor, session: Session, link: Link) -> None:
        actor.attached[session] = link

    def check_carrier(self, actor: Actor, link: Link) -> None:
        """At most one unfenced link carries a session, and it is the newest that was attached."""
        session = link.session
        if session is None or link.done:
            return
        for other in actor.lines:
            if other is not link and other.session is session and not other.done:
                raise Violation(f"two links feed one session at {actor.number}")

    def sealed(self, link: Link, data: bytes) -> None:
        self.nonces.written(link, data)

    def saw(
        self, actor: Actor, kind: NodeEvent, peer: Peer | None, link: Link | None, reason: Reason, text: str
    ) -> None:
        self._story.update(f"{self.clock.now:.6f} {actor.number} {kind} {reason} {text}\n".encode())
        if reason is Reason.TIMEOUT and link is not None and not self.harmed(actor, link):
            raise Violation(f"a link died at {actor.number} although nothing had happened to its line: {text}")
        if kind is NodeEvent.SESSION:
            self.report.sessions += 1
            if peer is not None and peer.session is not None:  # else it has ended within the same turn
                self.known.setdefault(peer.session.id, set()).add(actor.number)

    def harmed(self, actor: Actor, link: Link) -> bool:
        """Whether a fault may have touched this link."""
        line = actor.line_of.get(link)
        return line is None or line.harmed or line.dead or "freeze" in self.report.faults

    def ended(self, actor: Actor, peer: Peer, session: Session, reason: Reason, text: str) -> None:
        """A session ends only for a cause: it is never lost by losing lines."""
        self.report.ends[reason.name.lower()] += 1
        pair = frozenset((actor.number, self.number_of(peer)))
        causes = self.causes.get(pair, set())
        others = self.known[session.id] - {actor.number}
        expired = reason is Reason.EXPIRED and self.clock.now - peer.detached_at >= session.settings.resume_s
        if others and not expired and not causes and session.id not in self.over:
            raise Violation(f"a session of {sorted(pair)} ended at {actor.number} for no cause: {reason.name} {text}")
        self.over.add(session.id)

    def cause(self, one: Actor, two: Actor, what: str) -> None:
        """From now on the sessions of these two may end."""
        self.causes.setdefault(frozenset((one.number, two.number)), set()).add(what)

    def check(self, actor: Actor) -> None:
        self._turns += 1
        if self._turns % 8:
            return
        for session in actor.sessions:
            sim_checks.always(session)
        for talk in actor.talks:
            sim_checks.has_its_place(talk)

    # ------------------------------------------------------------------ the end
    def _progress(self) -> tuple[int, ...]:
        moved = sum(session.receiver.next for actor in self.actors for session in actor.sessions)
        return moved, sum(1 for call in self.calls if call.outcome), *(len(actor.talks) for actor in self.actors)

    def _at_rest(self) -> bool:
        if any(not call.outcome and call.caller_life == call.caller.life for call in self.calls):
            return False
        for actor in self.actors:
            if actor.talks or any(actor.waiting.values()):
                return False
            for session in actor.sessions:
                if not session.idle:
                    return False
        return True

    def _stuck(self) -> str:
        calls = [f"{c.id} ({c.caller.number}->{c.callee.number})" for c in self.calls if not c.outcome]
        rest = []
        for actor in self.actors:
            for session, peer in actor.sessions.items():
                if not session.idle:
                    rest.append(
                        f"{actor.number}->{self.number_of(peer)} {session.state.name} link={peer.link is not None} "
                        f"streams={list(session.places.streams)[:8]} kept={len(session.sender.replay.chunks)}"
                    )
            rest += [f"talk of {t.call.id} at {actor.number}" for t in list(actor.talks)[:5]]
        return f"calls {calls[:8]}; {'; '.join(rest[:8])}"

    def _reckon(self) -> None:
        live: dict[bytes, list[Session]] = {}
        for actor in self.actors:
            for session in actor.sessions:
                sim_checks.always(session)
                sim_checks.given_back(session)
                if session.state is not SessionState.ENDED:
                    live.setdefault(session.id, []).append(session)
        for ends in live.values():
            if len(ends) == 2:
                sim_checks.agree(*ends)
        for call in self.calls:
            if not call.outcome and call.caller_life == call.caller.life:
                raise Violation(f"call {call.id} has no outcome")


def simulate(seed: int, plan: Plan | None = None, **changes: Any) -> Report:
    """Run the world of `seed`; `changes` replace single decisions of its plan."""
    return World(seed, plan, **changes).run()


if __name__ == "__main__":
    from hermes_peer.testing.sim_main import main

    raise SystemExit(main())
