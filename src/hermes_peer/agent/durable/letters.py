"""Dead letters: work that was given up, who hears of it, and what an operator does with it.

Knows: rows that are dead. Refuses to know: why work dies, how it is sent. Called by: outbox, the hermes.dead method,
the command line.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_peer.agent.durable.rows import now_ms, ran
from hermes_peer.errors import UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal.values import Sent, SentState
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.durable.outbox import Outbox

log = logging.getLogger("hermes_peer.work")
PAGE = 500
TTL_LEAST = 60.0  # a letter that is sent once more has at least so long

_envelope = msgspec.json.Decoder(Envelope).decode


class Letters:
    """All methods raise JournalError; those that name a letter UsageError if there is none of that id."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._life = outbox.life
        self._journal = outbox.journal

    def tell(self, row: Sent) -> None:
        """Whoever asked to hear of dead letters (`on_dead_letter`) hears of this one."""
        for watcher in self._life.agent.dead_watchers:
            try:
                heard = watcher(row)
            except Exception:
                log.exception("a function that hears of dead letters failed")
                continue
            if inspect.isawaitable(heard):
                self._life.spawn(self._hear(heard))

    async def _hear(self, heard: Awaitable[Any]) -> None:
        try:
            await heard
        except Exception:
            log.exception("a function that hears of dead letters failed")

    async def page(self, after: int = 0) -> list[Sent]:
        """At most 500 of them, oldest first, behind the one whose `seq` is `after`."""
        return await self._journal.find_sent((SentState.DEAD,), after=after, limit=PAGE)

    async def replay(self, message_id: str, by: str) -> Sent:
        """Send it once more: the same id, a fresh ttl, no attempts. Goes on if whoever asked goes away."""
        return await asyncio.shield(self._life.spawn(self._replay(message_id, by)))

    async def _replay(self, message_id: str, by: str) -> Sent:
        old = await self._letter(message_id)
        ttl = max(TTL_LEAST, (old.expires_ms - max(old.created_ms, old.requeued_ms)) / 1000)
        now = max(now_ms(), old.requeued_ms + 1)
        await self._journal.commit(op.Requeue(message_id, now, by, now + int(ttl * 1000)))
        row = await self._journal.sent(message_id)
        assert row is not None
        # A round above all earlier ones tells the receiver that an operator wants another run of what had failed.
        envelope = msgspec.structs.replace(_envelope(row.envelope), ttl=ttl, attempt=1, round=now)
        # Whoever may have done it answers from what it keeps; what is known to have failed may go to anybody.
        self._outbox.enter_again(row, envelope, ttl, blind=ran(old) == "unknown")
        return row

    async def discard(self, message_id: str) -> None:
        """Forget it, here and over there."""
        row = await self._letter(message_id)
        self._outbox.settling.add(row, read=True)
        await self._journal.commit(op.Discard(message_id))

    async def _letter(self, message_id: str) -> Sent:
        row = await self._journal.sent(message_id)
        if row is None or row.state is not SentState.DEAD:
            raise UsageError(f"there is no dead letter {message_id}: `hermes-peer dead list` shows them")
        return row
