"""The ticket of durable work: its acceptance, its result, its items; here, later, or in another process.

Knows: one id and the outbox that keeps it. Refuses to know: how it is delivered. Called by: users.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.durable.entry import Entry
from hermes_peer.agent.durable.rows import consumed, items_of, outcome_of
from hermes_peer.errors import CallError, Cancelled, HermesError, LinkError, SessionLost, Unavailable, UsageError
from hermes_peer.journal.operations import MarkConsumed
from hermes_peer.journal.values import Sent, SentState

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.durable.outbox import Outbox

MARK_EACH = 64  # items between two notes of the consumer's offset
AGAIN_S = 0.2
ENDED = (SentState.DONE, SentState.DEAD)


class Ticket:
    """`message_id` names the work for good; it outlives a run of its agent. Raises, from any method, UsageError if the
    agent never submitted it or does not run, JournalError if it is closed meanwhile: the work is kept, and goes on."""

    def __init__(self, agent: HermesAgent, message_id: str) -> None:
        self.message_id = message_id
        self._agent = agent

    async def _open(self) -> Outbox:
        return (await self._agent._running().durable.open())[1]

    async def state(self) -> str:
        """ "waiting", "accepted", "done" or "dead"."""
        return (await self._open()).state(await self._row())

    async def accepted(self) -> None:
        """Returns once the receiver has it on its disk (or has ended it)."""
        entry = await self._entry()
        if entry is not None:
            await asyncio.shield(entry.accepted)

    async def result(self) -> Any:
        """The result, however long it takes within the ttl. Raises the CallError that ended it."""
        outbox = await self._open()
        entry = outbox.entries.get(self.message_id)
        row = await asyncio.shield(entry.done) if entry is not None else await self._row()
        if row.state not in ENDED:
            entry = outbox.entries.get(self.message_id)
            if entry is None:
                raise UsageError(f"{self.message_id} is open, and this agent does not deliver it")
            row = await asyncio.shield(entry.done)
        return outcome_of(row)

    async def items(self, offset: int | None = None) -> AsyncIterator[Any]:
        """The stream's items from `offset` on (default: where the last reader of this ticket stopped).

        In order and without a gap, over lost links and restarts of either side; each once, but that the default offset
        is noted only now and then: whoever may crash and must see none twice keeps its own. Raises CallError "gap" if
        the producer no longer keeps them, "unknown" if it knows of no such work, and what ended the work.
        """
        row = await self._row()
        at = noted = consumed(row) if offset is None else offset
        outbox = await self._open()
        while True:
            await self.accepted()
            row = await self._row()
            if row.state in ENDED and at >= (items_of(row) or 0):
                if at > noted:
                    await self._consumed(at)
                outbox.consumed_all(self.message_id)
                outcome_of(row)
                return
            try:
                stream = self._agent.stream(
                    row.peer.hex(), "hermes.resume", {"message_id": self.message_id, "offset": at}
                )
                async with stream:
                    async for item in stream:
                        at += 1
                        yield item
                        if at - noted >= MARK_EACH:
                            noted = at
                            await self._consumed(at)
            except (SessionLost, LinkError, Unavailable):
                await self._moment()
            except CallError as error:
                row = await self._row()
                ended = row.state in ENDED and not self._retried()
                if ended and at >= (items_of(row) or 0):
                    continue
                if ended or error.reason == "gap":
                    raise
                await self._moment()  # it is tried again, or is not there yet
            else:
                await self._consumed(at)
                outbox.consumed_all(self.message_id)
                return
            finally:
                if at > noted:
                    noted = at
                    await self._consumed(at)

    def _retried(self) -> bool:
        """A dead letter that was sent once more."""
        opened = self._agent._running().durable.outbox
        return opened is not None and self.message_id in opened.entries

    async def _moment(self) -> None:
        """Until the work ends, but not for long."""
        entry = (await self._open()).entries.get(self.message_id)
        if entry is not None:
            await asyncio.wait([entry.done], timeout=AGAIN_S)
        else:
            await asyncio.sleep(AGAIN_S)

    async def cancel(self) -> None:
        """Give it up: nothing of it is sent any more, the receiver ends it, and its outcome is the error "cancelled".

        Raises LinkError, DeadlineExceeded if whoever has it cannot be told now, JournalError if it could not be noted:
        then it goes on.
        """
        outbox = await self._open()
        entry = await self._entry()
        if entry is None:
            return
        entry.cancelled = True
        while not entry.done.done():
            sent = entry.call is not None or entry.blind or entry.accepted.done()
            if not (sent or entry.busy) or (entry.call is None and not entry.row.peer):
                await outbox.drop(entry, Cancelled("cancelled", "cancelled before it was sent"))
                return
            told = await self._agent.call(entry.row.peer.hex(), "hermes.cancel", {"message_id": self.message_id})
            if told:
                return
            if entry.call is None and not entry.busy:
                await outbox.drop(entry, Cancelled("cancelled", "the submitter cancelled it"))
                return
            await asyncio.wait([entry.done], timeout=AGAIN_S)  # it is just being sent, or just ending

    async def forget(self) -> None:
        """Nobody will read the items: the producer may drop them once the work has ended, rather than after its
        retention. Returns at once; raises what `result` raises of work that has ended."""
        row = await self._row()
        (await self._open()).consumed_all(self.message_id)
        if row.state in ENDED:
            outcome_of(row)

    async def _entry(self) -> Entry | None:
        """What is open of it; None if it has ended."""
        entries = (await self._open()).entries
        entry = entries.get(self.message_id)
        if entry is None:
            await self._row()  # behind a submission that is on its way to the disk
            entry = entries.get(self.message_id)
        return entry

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
