"""What goes wrong in the simulated world.

Knows: how to do each fault. Refuses to know: what must hold afterwards.
Called by: simulator, at times that the seed has drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_peer.core.states import Reason
from hermes_peer.testing.sim_load import Asking

if TYPE_CHECKING:
    from hermes_peer.testing.sim_actor import Actor
    from hermes_peer.testing.sim_line import Line
    from hermes_peer.testing.simulator import World


class Faults:
    """`parted`: pairs that cannot connect just now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.parted: set[frozenset[int]] = set()
        self.doomed = 0
        self._restarts = 0

    def strike(self) -> None:
        """One fault of a kind that this seed has switched on."""
        kind = self.world.dice.choice(self.world.plan.faults)
        getattr(self, f"_{kind}")()
        self.world.report.faults[kind] += 1

    def heal(self) -> None:
        """No more faults; what was swallowed stays swallowed."""
        self.parted.clear()
        self.doomed = 0
        for actor in self.world.actors:
            actor.refusing.clear()
            actor.redials.clear()
            actor.node.config = actor.config

    # ------------------------------------------------------------------ helpers
    def _two(self) -> tuple[Actor, Actor]:
        one, two = self.world.dice.sample(self.world.actors, 2)
        return one, two

    def _line(self) -> Line | None:
        lines = [line for line, _, _ in self.world.lines[-6:] if not line.dead]
        if not lines:
            return None
        line = self.world.dice.choice(lines)
        line.harmed = True
        return line

    # ------------------------------------------------------------------ lines
    def _cut(self) -> None:
        if line := self._line():
            line.cut()

    def _cut_at(self) -> None:
        if line := self._line():
            way = self.world.dice.choice(line.ways)
            way.cut_at = way.delivered + self.world.dice.choice((1, 10, 19, 40, 300, 2600, 20_000))

    def _doomed(self) -> None:
        self.doomed += self.world.dice.randint(1, 6)

    def doom(self, line: Line) -> None:
        """A new line; perhaps it is one of those that die young."""
        if self.doomed:
            self.doomed -= 1
            line.harmed = True
            self.world.dice.choice(line.ways).cut_at = int(
                self.world.dice.choice((300, 1500, 5000, 20_000)) * self.world.dice.random()
            )

    def _hole(self) -> None:
        if line := self._line():
            self.world.dice.choice(line.ways).vanish()

    def _silence(self) -> None:
        if line := self._line():
            line.abandon()

    def _half_close(self) -> None:
        if line := self._line():
            self.world.dice.choice(line.ways).shut()

    def _stall(self) -> None:
        if line := self._line():
            self.world.dice.choice(line.ways).stall(self.world.clock.now + self.world.dice.choice((0.1, 2.0, 20.0)))

    def _partition(self) -> None:
        one, two = self._two()
        pair = frozenset((one.number, two.number))
        self.parted.add(pair)
        for line, a, b in self.world.lines:
            if {a, b} == {one, two}:
                line.cut()
        self.world.clock.after(self.world.dice.choice((0.5, 5.0, 20.0)), lambda: self.parted.discard(pair))

    def _cross(self) -> None:
        one, two = self._two()
        for here, there in ((one, two), (two, one)):
            peer = here.node.peer(there.identity.fingerprint)
            if peer.link is None and peer.dialling is None:
                here.run(here.life, lambda here=here, there=there: here.dial(there))  # type: ignore[misc]

    def _again(self) -> None:
        one, two = self._two()
        one.run(one.life, lambda: one.dial(two))

    # ------------------------------------------------------------------ processes
    def _freeze(self) -> None:
        self.world.dice.choice(self.world.actors).freeze(self.world.dice.choice((0.5, 5.0, 40.0)))

    def _restart(self) -> None:
        if self._restarts >= 2:
            return
        self._restarts += 1
        actor = self.world.dice.choice(self.world.actors)
        for other in self.world.actors:
            if other is not actor:
                self.world.cause(actor, other, "restart")
        for line, a, b in self.world.lines:
            if actor in (a, b):
                line.cut()
        actor.frozen_until = 0.0
        actor.boot()

    def _refuse(self) -> None:
        one, two = self._two()
        self.world.cause(one, two, "refuse")
        fingerprint = two.identity.fingerprint
        one.refusing.add(fingerprint)
        self.world.clock.after(self.world.dice.choice((0.2, 5.0)), lambda: one.refusing.discard(fingerprint))
        if self.world.dice.random() < 0.5 and (line := self._line()):
            line.cut()

    def _give_up(self) -> None:
        actor = self.world.dice.choice(self.world.actors)

        def cancel() -> None:
            for talk in list(actor.talks):
                if isinstance(talk, Asking) and self.world.dice.random() < 0.9:
                    talk.cancel()

        actor.run(actor.life, cancel)

    def _goodbye(self) -> None:
        one, two = self._two()
        self.world.cause(one, two, "goodbye")
        peer = one.node.peer(two.identity.fingerprint)
        one.run(one.life, lambda: one.node.end_session(peer, Reason.SHUTDOWN, "goodbye"))

    def _squeeze(self) -> None:
        """The budget shrinks to nothing for a while: nothing is renewed, detached sessions end."""
        actor = self.world.dice.choice(self.world.actors)
        for other in actor.world.actors:
            if other is not actor:
                self.world.cause(actor, other, "squeeze")
        actor.node.config = replace(actor.config, budget=0)

        def relax() -> None:
            actor.node.config = actor.config

        self.world.clock.after(self.world.dice.choice((1.5, 6.0)), relax)
