"""An interactive transaction: async code talks to the writer's thread, which waits for it and nobody else.

Knows: the talk (execute, commit, rollback), the time limit. Refuses to know: batches, tables.
Called by: the writer (`Hold.run` in its thread); async handlers (`HeldTransaction`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from hermes_peer.errors import JournalError
from hermes_peer.journal.operations import Operation
from hermes_peer.journal.own import OwnSql
from hermes_peer.journal.pending import Pending, keep
from hermes_peer.journal.store import Damaged, Fault, Store, fault, run_all
from hermes_peer.journal.values import Answer


class Ask:
    """One sentence of the talk. `sql` None: commit the operations, or roll back if those are None too."""

    def __init__(self, sql: str | None, parameters: Any = (), operations: Sequence[Operation] | None = None) -> None:
        self.sql, self.parameters, self.operations = sql, parameters, operations
        self.pending: Pending[Any] = Pending()


class Hold:
    """The writer's end. `pending` gives the transaction once the writer waits for it."""

    def __init__(self, limit_s: float) -> None:
        self.pending: Pending[HeldTransaction] = Pending()
        self.limit = limit_s
        self._asks: queue.SimpleQueue[Ask] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._over = ""

    def put(self, ask: Ask) -> Pending[Any]:
        with self._gate:
            if not self._over:
                self._asks.put(ask)
                return ask.pending
        undone = ask.sql is None and ask.operations is None
        keep([(ask.pending, None, None if undone else JournalError(self._over))])
        return ask.pending

    def give_up(self) -> None:
        """Whoever waited for the writer does not wait any more."""
        self.put(Ask(None))

    def run(self, store: Store) -> BaseException | None:
        """In the writer's thread, until the transaction ends. Answers an error that concerns the whole journal."""
        deadline = time.monotonic() + self.limit
        try:
            store.begin()
            own = OwnSql(store.own_sql(), deadline)
        except Exception as failure:
            self._end("The transaction could not begin.")
            keep([(self.pending, None, JournalError(f"The transaction could not begin: {failure}."))])
            return failure
        keep([(self.pending, HeldTransaction(self), None)])
        serious: BaseException | None = None
        while True:
            try:
                ask = self._asks.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._end(f"The transaction took longer than {self.limit:g} s and was rolled back.")
                break
            if ask.sql is None:
                serious = self._finish(store, ask)
                return serious
            result, error = self._execute(own, ask)
            if error is not None and (own.lost is not None or own.late()):
                self._end("The transaction has ended: an earlier statement failed it, or its time is over.")
                serious = own.lost
                keep([(ask.pending, None, error)])
                break
            keep([(ask.pending, result, error)])
        return serious or _rolled_back(store)

    def _execute(self, own: OwnSql, ask: Ask) -> tuple[Any, BaseException | None]:
        assert ask.sql is not None
        try:
            with own.allowed():
                return own.execute(ask.sql, ask.parameters), None
        except Exception as error:
            return None, error

    def _finish(self, store: Store, ask: Ask) -> BaseException | None:
        self._end("The transaction has ended.")
        if ask.operations is None:
            error = _rolled_back(store)
            keep([(ask.pending, None, error and JournalError(f"The rollback failed: {error}."))])
            return error
        try:
            answers = run_all(store, ask.operations)
            store.commit()
        except Exception as error:
            if isinstance(error, Damaged):
                error = JournalError("A row that the transaction needs is damaged; nothing was stored.")
            serious: BaseException | None = error if fault(error) is not Fault.UNIT else _rolled_back(store)
            keep([(ask.pending, None, error if serious is None else JournalError(f"Nothing was stored: {error}."))])
            return serious
        keep([(ask.pending, answers, None)])
        return None

    def _end(self, sentence: str) -> None:
        with self._gate:
            self._over = sentence
        try:
            while True:
                ask = self._asks.get_nowait()
                keep([(ask.pending, None, JournalError(sentence))])
        except queue.Empty:
            pass


def _rolled_back(store: Store) -> BaseException | None:
    try:
        store.rollback()
    except Exception as error:
        return error
    return None


class HeldTransaction:
    """See `base.Transaction`."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    async def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = await self._hold.put(Ask(sql, parameters))
        return rows

    async def commit(self, *operations: Operation) -> tuple[Answer, ...]:
        answers: tuple[Answer, ...] = await self._hold.put(Ask(None, (), operations))
        return answers

    async def rollback(self) -> None:
        await self._hold.put(Ask(None))
