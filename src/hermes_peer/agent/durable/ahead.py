"""Submissions that leave while they are on the way to the disk: a lone call waits for one commit, not for two.

Knows: which may, what receivers promise of their methods, how to end what could not be stored. Refuses to know: how
they are sent. Called by: outbox, lane. Nothing is told to the application before the commit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hermes_peer.agent.durable.entry import Delivery, Entry
from hermes_peer.agent.durable.lane import WINDOW, Lane
from hermes_peer.core.session import Session
from hermes_peer.errors import CallError, HermesError
from hermes_peer.journal.pending import Pending
from hermes_peer.journal.rules import OPEN_SENT, OPEN_TAKEN
from hermes_peer.journal.values import Contract, Limits, Sent, SentState
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.durable.outbox import Outbox

ROOM = 64 << 20  # bytes free beyond what open work needs: the journal will not refuse it for want of room
ROWS = Limits().rows_per_peer // 2
OUTCOME = Limits().outcome_room
MOST = 1000  # methods of one session that are remembered
PAUSE_S = 5.0  # none leaves ahead so soon after one that could not be stored
END_S = 30.0


class Ahead:
    """`storing` holds the submissions whose commit is on its way, or is not yet seen by the loop."""

    def __init__(self, outbox: Outbox) -> None:
        self.storing: set[Pending[Any]] = set()
        self._outbox = outbox
        self._life = outbox.life
        self._idempotent: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()  # methods, as receivers said
        self._not_before = 0.0

    def learn(self, call: Delivery, contract: str) -> None:
        """An outcome came, and says what its method promises. One that may be of an earlier run says nothing."""
        envelope = call.envelope
        if envelope.again or envelope.own_id or envelope.idempotency_key:
            return
        methods = self._idempotent.setdefault(call.session, set())
        if contract != Contract.IDEMPOTENT:
            methods.discard(envelope.method)
        elif len(methods) < MOST:
            methods.add(envelope.method)

    def may(self, row: Sent, envelope: Envelope, session: Session, lane: Lane | None) -> bool:
        """Only what may be run twice, under an id that nobody chose, that overtakes nothing, and that the journal will
        take as far as can be told without asking it."""
        if row.method not in self._idempotent.get(session, ()) or envelope.own_id or envelope.idempotency_key:
            return False
        if self.storing or self._outbox.flying[row.peer] >= WINDOW or self._life.loop.time() < self._not_before:
            return False
        if lane is not None and not all(entry.done.done() for entry in lane.entries.values()):
            return False
        gauges = self._outbox.journal.gauges()
        rows = sum(gauges.sent.get(state, 0) for state in (*OPEN_SENT, SentState.DEAD))
        open_ = rows + sum(gauges.taken.get(state, 0) for state in OPEN_TAKEN)
        return not gauges.stopped and rows < ROWS and gauges.free >= ROOM + open_ * OUTCOME

    def withdraw(self, entry: Entry) -> bool:
        """It could not be stored: end it over there, too. Returns whether it had left."""
        self._not_before = self._life.loop.time() + PAUSE_S
        call = entry.call
        if call is not None and call.stream.queue:  # not all of OPEN has left: nobody has begun it
            call.give_up(CallError("withdrawn"))
            return False
        if self._life.running:
            self._life.spawn(self._end(entry, call))
        return True

    async def _end(self, entry: Entry, call: Delivery | None) -> None:
        """Cancel it, and let its receiver forget it."""
        agent, contact = self._life.agent, self._life.endpoint.contact(entry.row.peer)
        try:
            await agent.call_contact(contact, "hermes.cancel", {"message_id": entry.id}, ttl=END_S, reserved=True)
            if call is not None:
                await asyncio.wait([call.future], timeout=END_S)
            await agent.call_contact(contact, "hermes.settle", {"ids": [entry.id]}, ttl=END_S, reserved=True)
        except (HermesError, OSError):
            pass  # whoever ran it keeps the outcome for its time
        finally:
            if call is not None and not call.future.done():
                call.give_up(CallError("withdrawn"))
