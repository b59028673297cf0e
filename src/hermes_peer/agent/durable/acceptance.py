"""The commit that accepts one work, with or without what has come of it by then.

Knows: one row, who hands it in first. Refuses to know: handlers, readers, answers. Called by: early, work.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from hermes_peer.journal.base import Journal
from hermes_peer.journal.operations import Take
from hermes_peer.journal.pending import Pending
from hermes_peer.journal.values import Answer, Taken, TakenState


class NotTaken(Exception):
    """The journal knows this work, or has no room for it: what came of the run is nobody's."""


def running(row: Taken) -> Taken:
    """The row of new work whose handler begins at once."""
    return replace(row, state=TakenState.RUNNING, attempts=1)


class Acceptance:
    """Handed in once: by whoever takes the work, or together with the outcome."""

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

    def decided(self, stands: bool) -> None:
        """The verdict is known."""
        self._stands.set_result(stands)

    async def stands(self) -> None:
        """Wait until the work is taken. Raises NotTaken."""
        if not await asyncio.shield(self._stands):
            raise NotTaken

    async def shared(self, outcome: bytes, keep_until_ms: int) -> bool:
        """Hand acceptance and outcome in together, if nobody was faster, and wait. Returns whether they were; if not,
        the acceptance is on the disk alone. Raises NotTaken."""
        first = self._pending is None
        if first:
            done = replace(self._row, state=TakenState.DONE, outcome=outcome, keep_until_ms=keep_until_ms)
            self._pending = self._journal.commit(Take(done))
        await self.stands()
        return first
