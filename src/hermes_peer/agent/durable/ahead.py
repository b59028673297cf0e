"""Submissions that leave while they are on the way to the disk: a lone call waits for one commit, not for two.

Knows: which may, what receivers promise of their methods, what is told if the commit fails after all. Refuses to know:
how they are sent. Called by: outbox, lane. Nothing is told to the application before the commit.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.durable.entry import Entry
from hermes_peer.errors import HermesError, JournalError
from hermes_peer.journal.pending import Pending
from hermes_peer.journal.values import Contract, Limits, Sent, SentState
from hermes_peer.runtime.contact import Contact

if TYPE_CHECKING:
    from hermes_peer.agent.durable.lane import Lane
    from hermes_peer.agent.life import Life
    from hermes_peer.journal.base import Journal
    from hermes_peer.wire.messages import Envelope

ROOM = 64 << 20  # bytes free: the journal will not refuse it for want of room
ROWS = Limits().rows_per_peer // 2
MOST = 10_000  # methods that are remembered
COUNTED = (SentState.WAITING, SentState.ACCEPTED, SentState.DEAD)


class Ahead:
    """`storing` holds the submissions whose commit is on its way, or is not yet seen by the loop."""

    def __init__(self, life: Life, journal: Journal) -> None:
        self.storing: set[Pending[Any]] = set()
        self._life = life
        self._journal = journal
        self._idempotent: set[tuple[bytes, str]] = set()  # (receiver, method), as it said with an outcome

    def learn(self, receiver: bytes, method: str, contract: str) -> None:
        """An outcome came, and says what its method promises."""
        if contract != Contract.IDEMPOTENT:
            self._idempotent.discard((receiver, method))
            return
        if len(self._idempotent) >= MOST:
            self._idempotent.clear()
        self._idempotent.add((receiver, method))

    def may(self, row: Sent, envelope: Envelope, lane: Lane | None) -> bool:
        """Only what may be run twice, under an id that nobody else can have chosen, that overtakes nothing, and that
        the journal will take as far as can be told without asking it."""
        if (row.peer, row.method) not in self._idempotent or envelope.own_id or envelope.idempotency_key:
            return False
        if self.storing or (lane is not None and not all(e.done.done() for e in lane.entries.values())):
            return False
        gauges = self._journal.gauges()
        return not gauges.stopped and gauges.free >= ROOM and sum(gauges.sent.get(s, 0) for s in COUNTED) < ROWS

    def withdrawn(self, entry: Entry, why: object) -> JournalError:
        """It could not be stored: end it over there, too. Returns what its submitter is told."""
        if self._life.running:
            self._life.spawn(self._cancel(entry))
        return JournalError(f"{why} The work {entry.id} had left by then: whether it runs is not known.")

    async def _cancel(self, entry: Entry) -> None:
        contact: Contact = self._life.endpoint.contact(entry.row.peer)
        with suppress(HermesError, OSError):  # whoever ran it keeps the outcome for its time
            await self._life.agent.call_contact(
                contact, "hermes.cancel", {"message_id": entry.id}, ttl=30, reserved=True
            )
