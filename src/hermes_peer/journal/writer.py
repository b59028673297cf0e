"""The thread that owns the store: takes what is queued, stores it in one commit, keeps the promises.

Knows: batches, units within them, when to stop for good. Refuses to know: SQL, rows, loops.
Called by: the threaded journal, which queues; it drives a `Store`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hermes_peer.errors import JournalError, UsageError
from hermes_peer.journal.hold import Hold
from hermes_peer.journal.operations import Append, Expire, Operation, Settle, Submit, Take, Trim
from hermes_peer.journal.own import OwnSql
from hermes_peer.journal.pending import Pending, keep
from hermes_peer.journal.store import Damaged, Fault, Store, disk_full, fault, run_all
from hermes_peer.journal.values import Gauges

MOST = 1024  # units in one commit
MOST_BYTES = 8 << 20
PATIENCE_S = 0.002  # how long a batch waits for others if nobody in it is in a hurry
Kept = tuple[Pending[Any], Any, BaseException | None]


class Unit:
    """What is stored together: operations, or a handler's function and what follows from its result."""

    def __init__(self, operations: Sequence[Operation], patient: bool = False) -> None:
        self.operations = operations
        self.patient = patient
        self.pending: Pending[Any] = Pending()

    started = False

    @property
    def alone(self) -> bool:
        """A single operation that checks all before its only write: it needs no point to come back to."""
        return len(self.operations) == 1 and not isinstance(self.operations[0], Append | Trim | Settle | Expire)

    def run(self, store: Store) -> Any:
        return run_all(store, self.operations)


class OwnUnit(Unit):
    """A handler's function, run once and never again: a commit that fails under it fails it."""

    def __init__(self, fn: Callable[[Any], Any], then: Callable[[Any], Sequence[Operation]], limit_s: float) -> None:
        super().__init__(())
        self._fn, self._then, self._limit = fn, then, limit_s

    def run(self, store: Store) -> Any:
        self.started = True
        own = OwnSql(store.own_sql(), time.monotonic() + self._limit)
        try:
            with own.allowed():
                result = self._fn(own)
        except BaseException as error:
            if own.lost is None:
                raise Handler(error) from error
        finally:
            own.end()
        if own.lost is not None:
            raise Lost(own.lost)
        try:
            operations = self._then(result)
        except Exception as error:
            raise Handler(error) from error
        run_all(store, operations)
        return result


class Read:
    """A question, answered after the commit of what was queued before it."""

    def __init__(self, ask: Callable[[Store], Any]) -> None:
        self.ask = ask
        self.pending: Pending[Any] = Pending()


class Handler(Exception):
    """Carries what a handler raised; the unit fails with it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Lost(Exception):
    """The transaction is gone because of a handler's statement."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def weight(unit: Unit) -> int:
    """About how many bytes it brings."""
    total = 0
    for o in unit.operations:
        if isinstance(o, Submit):
            total += len(o.sent.payload)
        elif isinstance(o, Take):
            total += len(o.taken.payload) + len(o.taken.outcome or b"")
        elif isinstance(o, Append):
            total += sum(map(len, o.items))
    return total


class Writer:
    """One daemon thread. `stopped` is empty, or the sentence that every later caller gets."""

    def __init__(self, store: Store, *, idle_s: float, failpoint: Callable[[str], None]) -> None:
        self._store, self._idle, self._failpoint = store, idle_s, failpoint
        self._queue: queue.SimpleQueue[Unit | Read | Hold | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self.stopped = ""
        self._units = self._commits = 0
        self._last_ms = 0.0
        self._gauges = store.gauges()
        self._thread = threading.Thread(target=self._run, name="hermes-journal", daemon=True)
        self._thread.start()

    def put(self, entry: Unit | Read | Hold) -> None:
        """Hands in work; its promise is kept in any case."""
        with self._gate:
            if not self._closed:
                self._queue.put(entry)
                return
        keep([(entry.pending, None, JournalError("The journal is closed.", ran="no"))])

    def close(self) -> None:
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def gauges(self) -> Gauges:
        g = self._gauges
        return Gauges(
            sent=g.sent,
            taken=g.taken,
            set_aside=g.set_aside,
            size=g.size,
            free=g.free,
            wal=g.wal,
            queue=self._queue.qsize(),
            units=self._units,
            commits=self._commits,
            last_commit_ms=self._last_ms,
            stopped=self.stopped,
        )

    # the thread

    def _run(self) -> None:
        while True:
            batch = self._next()
            try:
                self._carry_out(batch)
            except BaseException as error:  # nobody may wait for ever
                self._stop(error)
                waiting = [e.pending for e in batch if e is not None and not e.pending.done()]
                keep([(pending, None, JournalError(self.stopped)) for pending in waiting])
            if batch and batch[-1] is None:
                self._store.close(clean=not self.stopped)
                return

    def _carry_out(self, batch: list[Unit | Read | Hold | None]) -> None:
        units = [e for e in batch if isinstance(e, Unit)]
        if units:
            self._store_all(units)
        reads = [e for e in batch if isinstance(e, Read)]
        if reads:
            keep([self._answer(read) for read in reads])
        if batch and isinstance(batch[-1], Hold):
            self._hold(batch[-1])
        self._tidy(idle=not batch)

    def _next(self) -> list[Unit | Read | Hold | None]:
        """All that is queued, up to and including what must be alone; nothing if it was idle for a while."""
        try:
            entry = self._queue.get(timeout=self._idle if self._store.untidy and not self.stopped else None)
        except queue.Empty:
            return []
        batch = [entry]
        size = 0
        until = time.monotonic() + PATIENCE_S
        while isinstance(entry, Unit | Read) and len(batch) < MOST:
            size += weight(entry) if isinstance(entry, Unit) else 0
            if size > MOST_BYTES:
                break
            if not (isinstance(entry, Unit) and entry.patient):
                until = 0.0
            try:
                entry = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            batch.append(entry)
        return batch

    def _store_all(self, units: list[Unit]) -> None:
        if self.stopped:
            keep([(unit.pending, None, JournalError(self.stopped)) for unit in units])
            return
        try:
            promises = self._commit(units)
        except Exception as error:
            promises = self._recover(units, error)
        self._failpoint("before answer")
        keep(promises)
        self._failpoint("after answer")

    def _commit(self, units: list[Unit]) -> list[Kept]:
        began = time.perf_counter()
        store = self._store
        store.begin()
        promises = [self._unit(unit) for unit in units]
        store.commit()
        self._last_ms = (time.perf_counter() - began) * 1000
        self._commits += 1
        self._units += sum(error is None for _, _, error in promises)
        self._gauges = store.gauges()
        return promises

    def _unit(self, unit: Unit) -> Kept:
        """Its result or its own error. Raises what concerns the whole batch."""
        store = self._store
        alone = unit.alone
        while True:
            if not alone:
                store.save()
            try:
                result = unit.run(store)
                if not alone:
                    store.release()
                return unit.pending, result, None
            except Damaged as damaged:
                if not alone:
                    store.back()
                store.put_aside(damaged)
                if unit.started:
                    told = JournalError("A row that the transaction needs is damaged; it was set aside.")
                    return unit.pending, None, told
            except Handler as error:
                store.back()
                return unit.pending, None, error.error
            except Exception as error:
                if isinstance(error, Lost) or fault(error) is not Fault.UNIT:
                    raise
                if not alone:
                    store.back()
                return unit.pending, None, error

    def _recover(self, units: list[Unit], error: Exception) -> list[Kept]:
        """The batch failed. Out of room, or lost by a handler: each unit anew and alone; anything else: stop."""
        cause = error.error if isinstance(error, Lost) else error
        if not self._may_go_on(error, cause):
            return [(unit.pending, None, JournalError(self.stopped)) for unit in units]
        promises: list[Kept] = []
        for unit in units:
            if unit.started:  # a handler's function does not run twice
                promises.append((unit.pending, None, _told(cause)))
                continue
            if self.stopped:
                promises.append((unit.pending, None, JournalError(self.stopped)))
                continue
            try:
                promises += self._commit([unit])
            except Exception as again:
                cause_now = again.error if isinstance(again, Lost) else again
                lives = self._may_go_on(again, cause_now)
                promises.append((unit.pending, None, _told(cause_now) if lives else JournalError(self.stopped)))
        self._gauges = self._store.gauges()
        return promises

    def _may_go_on(self, error: Exception, cause: BaseException) -> bool:
        """Rolls back and says whether the journal lives."""
        full = fault(cause, foreign=isinstance(error, Lost)) is Fault.FULL
        if full or (isinstance(error, Lost) and isinstance(cause, JournalError)):
            try:
                self._store.rollback()
                if full:
                    self._store.no_room()
                return True
            except Exception as second:
                cause = second
        self._stop(cause)
        return False

    def _stop(self, cause: BaseException) -> None:
        self.stopped = (
            f"The journal stopped because the disk failed it ({cause}): nothing is stored any more, and whether the"
            " last commit was is not known. Restart the process once the disk is well."
        )

    def _answer(self, read: Read) -> Kept:
        while True:
            if self.stopped:
                return read.pending, None, JournalError(self.stopped)
            try:
                return read.pending, read.ask(self._store), None
            except Damaged as damaged:
                try:
                    self._store.begin()
                    self._store.put_aside(damaged)
                    self._store.commit()
                    self._gauges = self._store.gauges()
                except Exception as error:
                    if not self._may_go_on(error, error):
                        continue
                    return read.pending, None, _told(error)
            except Exception as error:
                if fault(error) is Fault.UNIT:
                    return read.pending, None, error
                self._stop(error)

    def _hold(self, hold: Hold) -> None:
        if self.stopped:
            keep([(hold.pending, None, JournalError(self.stopped))])
            return
        error = hold.run(self._store)
        if error is None:
            self._gauges = self._store.gauges()
        else:
            self._may_go_on(Lost(error), error)

    def _tidy(self, idle: bool) -> None:
        if self.stopped or not self._store.untidy:
            return
        try:
            if self._store.tidy(idle):
                self._gauges = self._store.gauges()
        except Exception as error:
            self._stop(error)


def _told(cause: BaseException) -> BaseException:
    """What the caller of a single unit reads."""
    if isinstance(cause, JournalError | UsageError):
        return cause
    return disk_full("this") if fault(cause, foreign=True) is Fault.FULL else cause
