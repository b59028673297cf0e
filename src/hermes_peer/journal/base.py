"""The port that every journal implements: commit values, read rows, and the handler's own SQL in the same commit.

Knows: the verbs and their promises. Refuses to know: disks, threads, clocks, the wire.
Called by: the agent's durable work. The contract is `hermes_peer.testing.journal_contract.check_journal`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from hermes_peer.journal.operations import Operation
from hermes_peer.journal.pending import Pending
from hermes_peer.journal.values import Answer, Gauges, Items, Origin, Sent, SentState, SetAside, Taken, TakenState

T = TypeVar("T")
Row = tuple[Any, ...]


class Work(Protocol):
    """The half that keeps messages. What it promises with is a `Pending`: await it, or call `result()` in a thread."""

    def commit(self, *operations: Operation, patient: bool = False) -> Pending[tuple[Answer, ...]]:
        """Carries out all of them, in order and in one commit, or none. Kept only after that commit is on the disk;
        the answers are in order (see operations.py). `patient`: it may wait some ms for others to share the commit.

        Nothing can be cancelled: what was handed in is carried out. Raises (when awaited) UsageError for what the
        rules forbid, and JournalError if it cannot be made durable: disk full, stopped, closed.
        """
        ...

    def sent(self, message_id: str) -> Pending[Sent | None]:
        """The submitted message with this id."""
        ...

    def taken(self, principal: bytes, message_id: str) -> Pending[Taken | None]:
        """The work taken from this principal (32 bytes) with this id."""
        ...

    def find_sent(
        self,
        states: Collection[SentState] = (),
        *,
        peer: bytes | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> Pending[list[Sent]]:
        """Submitted messages in these states (none: any) to this peer (None: any), with `seq` above `after`, in the
        order of arrival.
        """
        ...

    def find_taken(
        self, states: Collection[TakenState] = (), *, principal: bytes | None = None, after: int = 0, limit: int = 1000
    ) -> Pending[list[Taken]]:
        """Taken work in these states (none: any), with `seq` above `after`, in the order of arrival."""
        ...


class StreamLog(Protocol):
    """The half that keeps stream items of taken work; Append and Trim are operations of `commit`."""

    def items(self, principal: bytes, message_id: str, offset: int, limit: int = 1000) -> Pending[Items | None]:
        """At most `limit` items, and about 1 MiB, from index `offset` on; None if there is no such work.

        Never a splice: if `offset` is gone, `first` of the answer is the first index after it that is there.
        """
        ...


class Cursor(Protocol):
    """What a handler gets for SQL of its own. Tables whose names begin with hermes_ are the journal's: neither read
    nor written. No PRAGMA, ATTACH, BEGIN, COMMIT or SAVEPOINT. Raises sqlite3.Error as sqlite3 does.
    """

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """One statement; the rows that it gives."""
        ...

    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """One statement for each of the parameters."""
        ...


class Transaction(Protocol):
    """SQL of a handler's own that is stored together with operations, from async code. It holds the writer: everybody
    else waits until it ends, and after its time limit it is rolled back.
    """

    async def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """See `Cursor.execute`. JournalError if the transaction has ended."""
        ...

    async def commit(self, *operations: Operation) -> tuple[Answer, ...]:
        """Stores the SQL and the operations in one commit, or raises and stores nothing. Either way it is the end."""
        ...

    async def rollback(self) -> None:
        """Forgets the SQL. Does nothing if the transaction has ended."""
        ...


class Journal(Work, StreamLog, Protocol):
    """A durable store of one key. `epoch` (8 bytes) names this history: another epoch means that rows were lost.
    `notice` is empty, or a sentence that a human must see; `origin` says the same to the program.
    """

    epoch: bytes
    notice: str
    origin: Origin

    def transaction(
        self,
        fn: Callable[[Cursor], T],
        then: Callable[[T], Sequence[Operation]] = lambda _: (),
        *,
        limit_s: float = 5.0,
    ) -> Pending[T]:
        """Runs `fn` in the writer's thread and stores its SQL together with the operations `then(result)`. `fn` runs
        once; if it raises, nothing is stored and the error is raised here. SQL beyond `limit_s` is interrupted.
        """
        ...

    async def begin(self, *, limit_s: float = 5.0) -> Transaction:
        """See `Transaction`."""
        ...

    def gauges(self) -> Gauges:
        """Numbers as of the last commit. Never waits."""
        ...

    def set_aside(self) -> Pending[list[SetAside]]:
        """The rows whose checksum was wrong."""
        ...

    def close(self) -> None:
        """Stores what was handed in, then closes. Waits for that; closing twice does nothing."""
        ...
