"""The ticket of durable work: its acceptance, its result, its items; here, later, or in another process.

Knows: one id and the outbox that keeps it. Refuses to know: how it is delivered. Called by: users.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.durable.outbox import items_of, outcome_of
from hermes_peer.errors import CallError, HermesError, LinkError, SessionLost, Unavailable, UsageError
from hermes_peer.journal.operations import MarkConsumed
from hermes_peer.journal.values import Sent, SentState

if TYPE_CHECKING:
    from hermes_peer.agent.durable.outbox import Outbox
    from hermes_peer.agent.life import Life

MARK_EACH = 64  # items between two notes of the consumer's offset


class Ticket:
    """`message_id` names the work for good. Raises, from any method, UsageError if this agent never submitted it."""

    def __init__(self, life: Life, message_id: str) -> None:
        self.message_id = message_id
        self._life = life

    async def _open(self) -> Outbox:
        return (await self._life.durable.open())[1]

    async def state(self) -> str:
        """ "waiting", "accepted", "done" or "dead"."""
        row = await self._row()
        entry = (await self._open()).entries.get(self.message_id)
        if entry is not None and entry.accepted.done() and row.state is SentState.WAITING:
            return "accepted"
        return row.state.name.lower()

    async def accepted(self) -> None:
        """Returns once the receiver has it on its disk (or has ended it)."""
        entry = (await self._open()).entries.get(self.message_id)
        if entry is not None:
            await asyncio.shield(entry.accepted)
        else:
            await self._row()

    async def result(self) -> Any:
        """The result, however long it takes within the ttl. Raises the CallError that ended it."""
        outbox = await self._open()
        entry = outbox.entries.get(self.message_id)
        row = await asyncio.shield(entry.done) if entry is not None else await self._row()
        if row.state not in (SentState.DONE, SentState.DEAD):
            entry = outbox.entries.get(self.message_id)
            if entry is None:
                raise UsageError(f"{self.message_id} is open, and this agent does not deliver it")
            row = await asyncio.shield(entry.done)
        return outcome_of(row)

    async def items(self, offset: int | None = None) -> AsyncIterator[Any]:
        """The stream's items from `offset` on (default: where the last reader of this ticket stopped).

        Each once and in order, over lost links and restarts of either side. Raises CallError "gap" if the producer no
        longer keeps them, "unknown" if it knows of no such work, and what ended the work.
        """
        row = await self._row()
        at = row.offset if offset is None else offset
        while True:
            await self.accepted()
            row = await self._row()
            if row.state is SentState.DEAD or items_of(row) == at:
                outcome_of(row)
                return
            try:
                stream = self._life.agent.stream(
                    row.peer.hex(), "hermes.resume", {"message_id": self.message_id, "offset": at}
                )
                async with stream:
                    async for item in stream:
                        at += 1
                        yield item
                        if at % MARK_EACH == 0:
                            await self._consumed(at)
                await self._consumed(at)
                (await self._open()).consumed_all(self.message_id)
                return
            except (SessionLost, LinkError, Unavailable) as lost:
                await self._consumed(at)
                if isinstance(lost, Unavailable) and not lost.retryable:
                    raise
                await asyncio.sleep(0.2)

    async def cancel(self) -> None:
        """Give it up: the receiver ends it, and its end is the answer "cancelled"."""
        row = await self._row()
        if row.state in (SentState.DONE, SentState.DEAD):
            return
        outbox = await self._open()
        entry = outbox.entries.get(self.message_id)
        if entry is not None and not entry.accepted.done() and row.state is SentState.WAITING and not row.peer:
            await outbox.drop(entry, CallError("cancelled", "cancelled before it was sent", code=1))
            return
        await self._life.agent.call(row.peer.hex(), "hermes.cancel", {"message_id": self.message_id})

    async def forget(self) -> None:
        """Nobody will read the items: the producer may drop them now, rather than after its retention."""
        await self.result()
        (await self._open()).consumed_all(self.message_id)

    async def _consumed(self, offset: int) -> None:
        try:
            await (await self._open()).journal.commit(MarkConsumed(self.message_id, offset))
        except HermesError:
            pass  # the row is gone: its offset is of no more use

    async def _row(self) -> Sent:
        row = await (await self._open()).row(self.message_id)
        if row is None:
            raise UsageError(
                f"this agent knows of no ticket {self.message_id}: it was submitted by another, or long ago"
            )
        return row

    def __repr__(self) -> str:
        return f"<ticket {self.message_id}>"
