"""Telling receivers which works they may forget: in batches, and again at the next link if there is none now.

Knows: ids per receiver, the hermes.settle method. Refuses to know: lanes, how works ended. Called by: outbox.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from hermes_peer.agent.durable.rows import items_of, ran, settled
from hermes_peer.errors import HermesError
from hermes_peer.journal.operations import MarkConsumed
from hermes_peer.journal.values import Sent, SentState
from hermes_peer.runtime.contact import Contact
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life
    from hermes_peer.journal.base import Journal

BATCH_S = 0.05
BATCH = 500
REACH_S = 10.0

_envelope = msgspec.json.Decoder(Envelope).decode


class Settling:
    """`add` what has ended; `linked` when a peer is there again."""

    def __init__(self, life: Life, journal: Journal) -> None:
        self._life = life
        self._journal = journal
        self._ids: dict[bytes, dict[str, int]] = {}  # per receiver: message id -> offset that notes it as told
        self._targets: dict[bytes, str] = {}  # under which name each was found
        self._telling: set[bytes] = set()

    def __len__(self) -> int:
        return sum(len(ids) for ids in self._ids.values())

    def add(self, row: Sent, *, read: bool = False, dial: bool = True) -> None:
        """It may be forgotten, unless its items may still be read. `read`: nobody will read them any more."""
        if not row.peer or row.state not in (SentState.DONE, SentState.DEAD):
            return
        items = items_of(row) or 0
        if row.state is SentState.DEAD and ran(row) != "answered" and not read:
            return  # whoever has it may still say how it went, to a replay
        if settled(row) or (row.offset < items and not read) or _kept(row):
            return
        self._ids.setdefault(row.peer, {})[row.message_id] = items + 1 if row.state is SentState.DONE else 0
        self._targets[row.peer] = row.target
        if dial:
            self._soon(row.peer)

    def linked(self, contact: Contact) -> None:
        """A line to this peer came up."""
        if contact.peer.fingerprint in self._ids:
            self._soon(contact.peer.fingerprint)

    def _soon(self, peer: bytes) -> None:
        if peer not in self._telling and self._life.running:
            self._telling.add(peer)
            self._life.loop.call_later(BATCH_S, self._begin, peer)

    def _begin(self, peer: bytes) -> None:
        if self._life.running:
            self._life.spawn(self._tell(peer))

    async def _tell(self, peer: bytes) -> None:
        contact = self._life.endpoint.contact(peer)
        try:
            if contact.pump is None:
                contact = self._life.directory.find_key(peer, self._targets[peer])
                async with asyncio.timeout(REACH_S):
                    await contact.ready(linked=True)
            while ids := self._ids.get(peer):
                part = dict(list(ids.items())[:BATCH])
                await self._life.agent.call_contact(
                    contact, "hermes.settle", {"ids": list(part)}, ttl=30, reserved=True
                )
                for id in part:
                    ids.pop(id, None)
                if not ids:
                    del self._ids[peer]
                await self._note(part)
                if len(ids) < BATCH:
                    await asyncio.sleep(BATCH_S)  # what ends meanwhile goes along
        except (HermesError, OSError):
            pass  # it keeps them until we meet again, and for its retention at the longest
        finally:
            self._telling.discard(peer)

    async def _note(self, told: dict[str, int]) -> None:
        """So that the next process does not tell it again."""
        notes = [self._journal.commit(MarkConsumed(id, offset)) for id, offset in told.items() if offset]
        for note in notes:  # each a unit of its own, as one may have been discarded; all in one commit
            try:
                await note
            except HermesError:
                pass


def _kept(row: Sent) -> bool:
    """Work with an id and a key of the application's own: the receiver keeps it, so that the key is known to it when
    the same step comes under another id."""
    if b'"idempotency_key"' not in row.envelope:
        return False
    envelope = _envelope(row.envelope)
    return bool(envelope.idempotency_key) and envelope.own_id
