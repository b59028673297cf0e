"""A handler's own SQL inside the journal's commit.

Knows: what such SQL may not do, its time limit, how the transaction is lost under it. Refuses to know: operations,
promises. Called by: the writer (functions) and the hold (interactive transactions).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hermes_peer.errors import JournalError, UsageError
from hermes_peer.journal.schema import OURS
from hermes_peer.journal.store import Connection, Fault, fault

# Transactions are the journal's; settings, other files and what outlives the transaction are not for handlers.
_FORBIDDEN = frozenset(
    {
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
        sqlite3.SQLITE_PRAGMA,
        sqlite3.SQLITE_ANALYZE,
        sqlite3.SQLITE_CREATE_VTABLE,
        sqlite3.SQLITE_DROP_VTABLE,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
    }
)
_STEPS = 2000  # instructions of SQLite's machine between two looks at the clock


def authorize(action: int, first: str | None, second: str | None, database: str | None, inner: str | None) -> int:
    """SQLite's authorizer while a handler's statement is compiled: names that begin with hermes_ are ours."""
    if action in _FORBIDDEN:
        return sqlite3.SQLITE_DENY
    for name in (first, second):
        if name is not None and name.lower().startswith(OURS):
            return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


class OwnSql:
    """See `base.Cursor`. Usable until `deadline` (of time.monotonic) or the end of its function.

    `lost` is set when the transaction is not there any more (disk full, or a statement with OR ROLLBACK), or when an
    error means that the journal must stop; the handler may swallow the exception, the writer does not.
    """

    def __init__(self, db: Connection, deadline: float) -> None:
        self._db, self._deadline = db, deadline
        self._open = True
        self.lost: BaseException | None = None

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        return self._guarded(lambda: self._db.execute(sql, parameters).fetchall())

    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        self._guarded(lambda: self._db.executemany(sql, parameters).fetchall())

    def _guarded(self, run: Callable[[], list[Any]]) -> list[Any]:
        if not self._open:
            raise UsageError("This transaction has ended; its cursor is not for keeping.")
        if self.lost is not None:
            raise JournalError("This transaction was lost by an earlier error.") from self.lost
        try:
            return run()
        except BaseException as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                self.lost = JournalError("The transaction took longer than its limit; nothing of it was stored.")
                raise self.lost from error
            if fault(error, foreign=True) is not Fault.UNIT:
                self.lost = error
            raise
        finally:
            if self.lost is None and not self._db.in_transaction:
                self.lost = JournalError("A statement of the handler ended the transaction; nothing of it was stored.")

    def late(self) -> bool:
        return time.monotonic() > self._deadline

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """The connection obeys a handler only in here. (Setting an authorizer makes SQLite compile all statements
        anew, so that a handler cannot borrow a statement of ours from the cache.)
        """
        self._db.set_authorizer(authorize)
        self._db.set_progress_handler(self.late, _STEPS)
        try:
            yield
        finally:
            self._db.set_progress_handler(None, 0)
            self._db.set_authorizer(None)

    def end(self) -> None:
        self._open = False
