"""What the writer's thread drives: a store with transactions, and how its errors are told apart.

Knows: the verbs of a store, the classes of SQLite's errors. Refuses to know: threads, promises, tables.
Called by: writer and hold (they drive it); the SQLite and the memory store implement it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol

from hermes_peer.errors import JournalError
from hermes_peer.journal.operations import Operation
from hermes_peer.journal.values import (
    Answer,
    Gauges,
    Items,
    Kind,
    Sent,
    SentState,
    SetAside,
    Taken,
    TakenState,
    Verdict,
)


class Rows(Protocol):
    """What `Connection.execute` gives."""

    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """The part of sqlite3.Connection that the journal uses, in autocommit mode. Tests put another one beneath."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Rows: ...
    def executemany(self, sql: str, parameters: Any, /) -> Rows: ...
    def set_authorizer(self, callback: Callable[..., int] | None) -> None: ...
    def set_progress_handler(self, callback: Callable[[], int | None] | None, n: int) -> None: ...
    def close(self) -> None: ...


class Damaged(Exception):
    """A row, as it was read, whose checksum is wrong; `side` is sent, taken or items. Nothing was written."""

    def __init__(self, side: str, row: tuple[Any, ...], why: str) -> None:
        super().__init__(why)
        self.side, self.row, self.why = side, row, why


class Store(Protocol):
    """One thread at a time uses it. `apply` works inside begin … commit; readers outside. Both may raise Damaged."""

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None:
        """Also after the transaction was lost. Never raises for that."""

    def save(self) -> None:
        """A point to come back to, inside the transaction; one at a time."""

    def release(self) -> None: ...
    def back(self) -> None:
        """To the last `save`, which is then over."""

    def apply(self, operation: Operation) -> Answer: ...
    def put_aside(self, damaged: Damaged) -> None:
        """Inside a transaction: the row goes where nobody runs it."""

    def own_sql(self) -> Connection:
        """The connection for a handler's own SQL, inside this transaction."""
        ...

    def no_room(self) -> None:
        """The disk was full: give up what was kept for that, refuse new work."""

    def tidy(self, idle: bool) -> bool:
        """Checkpoint and the like, if there is something to do; all of it when `idle`. Whether anything was done."""

    @property
    def untidy(self) -> bool: ...

    def sent(self, message_id: str) -> Sent | None: ...
    def taken(self, principal: bytes, message_id: str) -> Taken | None: ...
    def find_sent(self, states: Collection[SentState], peer: bytes | None, after: int, limit: int) -> list[Sent]: ...
    def find_taken(
        self, states: Collection[TakenState], principal: bytes | None, after: int, limit: int
    ) -> list[Taken]: ...
    def items(self, principal: bytes, message_id: str, offset: int, limit: int) -> Items | None: ...
    def set_aside(self) -> list[SetAside]: ...
    def gauges(self) -> Gauges:
        """The store's share: rows and bytes."""
        ...

    def close(self, clean: bool) -> None: ...


class Fault(Enum):
    """What an error means for the journal. UNIT: this caller's own. FULL: no room now. FATAL: stop."""

    UNIT = 1
    FULL = 2
    FATAL = 3


_FULL, _OURS, _NOBODY_ELSE = 13, frozenset({19}), frozenset({1, 9, 18, 19, 20, 23, 25})


def fault(error: BaseException, foreign: bool = False) -> Fault:
    """What `error` means; `foreign`: it came out of a handler's SQL, where a wrong statement is the handler's affair.

    Every code of SQLite but SQLITE_FULL and SQLITE_CONSTRAINT stops the journal: after a failed fsync nobody knows
    what is on the disk, although SQLite itself would go on.
    """
    if isinstance(error, OSError) or not isinstance(error, Exception):
        return Fault.UNIT if foreign else Fault.FATAL
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return Fault.UNIT
    if code & 0xFF == _FULL:
        return Fault.FULL
    return Fault.UNIT if code & 0xFF in (_NOBODY_ELSE if foreign else _OURS) else Fault.FATAL


def run_all(store: Store, operations: Sequence[Operation]) -> tuple[Answer, ...]:
    """Applies them in order; behind a Submit or Take that is not new, nothing is done."""
    answers: list[Answer] = []
    for operation in operations:
        answer = store.apply(operation)
        answers.append(answer)
        if isinstance(answer, Verdict) and answer.kind is not Kind.NEW:
            break
    return (*answers, *(None for _ in operations[len(answers) :]))


def disk_full(what: str) -> JournalError:
    return JournalError(f"disk full: the journal has no room for {what}; it was not stored.", ran="no")


def picked(states: Sequence[int]) -> str:
    """`state = 4` or `state IN (1,2)`, as the partial indexes spell it; empty for no states."""
    if len(states) == 1:
        return f"state = {int(states[0])}"
    return f"state IN ({','.join(str(int(s)) for s in sorted(states))})" if states else ""
