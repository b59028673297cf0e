"""Work that begins while its acceptance is on the way to the disk: a quick handler's outcome shares that commit.

Knows: which work may, who hands the acceptance in. Refuses to know: handlers, readers, answers. Called by: inbox, which
takes; work, which ends. Nothing is told to anybody before the commit: a crash leaves a submission that is sent again.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from hermes_peer.agent.methods import Method, Shape
from hermes_peer.journal.base import Journal
from hermes_peer.journal.operations import Take
from hermes_peer.journal.pending import Pending
from hermes_peer.journal.values import Answer, Taken, TakenState
from hermes_peer.wire.messages import Envelope


class NotTaken(Exception):
    """The journal knows this work, or has no room for it: what came of the run is nobody's."""


def may_begin_early(method: Method, envelope: Envelope) -> bool:
    """Only what may be run twice, and whose id cannot have been used before."""
    return (
        method.contract == "idempotent"
        and method.shape is Shape.CALL
        and not (envelope.again or envelope.own_id or envelope.idempotency_key)
        and envelope.attempt == 1
        and not envelope.round
    )


def running(row: Taken) -> Taken:
    """The row of new work whose handler begins at once."""
    return replace(row, state=TakenState.RUNNING, attempts=1)


class Acceptance:
    """The commit that accepts one work: handed in once, by the inbox or together with the outcome."""

    def __init__(self, journal: Journal, row: Taken, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._row = row
        self._pending: Pending[tuple[Answer, ...]] | None = None
        self._stands: asyncio.Future[bool] = loop.create_future()

    def handed_in(self) -> Pending[tuple[Answer, ...]]:
        """The commit that is on its way."""
        if self._pending is None:
            self._pending = self._journal.commit(Take(self._row))
        return self._pending

    def settle(self, stands: bool) -> None:
        """The verdict is known."""
        self._stands.set_result(stands)

    async def stands(self) -> None:
        """Wait until the work is taken. Raises NotTaken."""
        if not await asyncio.shield(self._stands):
            raise NotTaken

    async def shared(self, outcome: bytes, keep_until_ms: int) -> bool:
        """Whether the outcome is on the disk with the acceptance; if not, the acceptance is, alone. Raises NotTaken."""
        first = self._pending is None
        if first:
            done = replace(self._row, state=TakenState.DONE, outcome=outcome, keep_until_ms=keep_until_ms)
            self._pending = self._journal.commit(Take(done))
        await self.stands()
        return first
