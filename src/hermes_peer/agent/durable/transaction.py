"""`async with request.transaction() as db: await db.execute(...)`: the handler's SQL and its outcome, one commit.

Knows: one run of one work, the journal's transaction. Refuses to know: what the SQL does. Called by: handlers, work.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from hermes_peer.errors import UsageError
from hermes_peer.journal.operations import Operation
from hermes_peer.journal.values import Contract

if TYPE_CHECKING:
    from hermes_peer.agent.durable.work import Work
    from hermes_peer.journal.base import Transaction


class WorkTransaction:
    """It holds the journal's writer until the handler returns: keep it short, and submit nothing inside. Items that
    are yielded after its beginning are stored with it, too. Raises JournalError once its time limit (5 s) has passed;
    then nothing was stored.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._open: Transaction | None = None

    async def __aenter__(self) -> WorkTransaction:
        work = self._work
        if work.contract is not Contract.TRANSACTIONAL:
            raise UsageError('transaction() is for methods with contract="transactional"')
        if work.transaction is not None:
            raise UsageError("one transaction per run: everything in it is stored with the outcome")
        await work.written()
        self._open = await work.inbox.journal.begin()
        work.transaction = self
        return self

    async def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """One statement; the rows that it gives. Raises sqlite3.Error, JournalError."""
        if self._open is None:
            raise UsageError("this transaction has ended, or was not begun: use `async with`")
        return await self._open.execute(sql, parameters)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.rollback()

    async def commit(self, *operations: Operation) -> None:
        """Stores all of it, or raises and stores nothing."""
        opened, self._open = self._open, None
        assert opened is not None
        await opened.commit(*operations)

    async def rollback(self) -> None:
        """Harmless twice."""
        self._work.transaction = None
        self._work.drop_pending()
        if self._open is not None:
            opened, self._open = self._open, None
            await opened.rollback()
