"""A store with a writer thread in front of it is a journal.

Knows: the port, the queue of the writer. Refuses to know: what kind of store it is.
Called by: the SQLite and the memory journal, which are this with a store of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from hermes_peer.errors import JournalError
from hermes_peer.journal.base import Cursor, Transaction
from hermes_peer.journal.hold import Hold
from hermes_peer.journal.operations import Operation
from hermes_peer.journal.pending import Pending, keep
from hermes_peer.journal.store import Store
from hermes_peer.journal.values import Answer, Gauges, Items, Origin, Sent, SentState, SetAside, Taken, TakenState
from hermes_peer.journal.writer import OwnUnit, Read, Unit, Writer

T = TypeVar("T")


class ThreadedJournal:
    """See `base.Journal`. Any thread and any loop may call it."""

    epoch: bytes
    origin: Origin
    notice: str

    def __init__(self, store: Store, *, idle_s: float, failpoint: Callable[[str], None]) -> None:
        self._writer = Writer(store, idle_s=idle_s, failpoint=failpoint)
        self._pid = os.getpid()

    def commit(self, *operations: Operation, patient: bool = False) -> Pending[tuple[Answer, ...]]:
        return self._put(Unit(operations, patient))

    def transaction(
        self,
        fn: Callable[[Cursor], T],
        then: Callable[[T], Sequence[Operation]] = lambda _: (),
        *,
        limit_s: float = 5.0,
    ) -> Pending[T]:
        return self._put(OwnUnit(fn, then, limit_s))

    async def begin(self, *, limit_s: float = 5.0) -> Transaction:
        hold = Hold(limit_s)
        try:
            self._put(hold)
            return await hold.pending
        except BaseException:  # cancelled while it waited: nobody would end it
            hold.give_up()
            raise

    def sent(self, message_id: str) -> Pending[Sent | None]:
        return self._read(lambda store: store.sent(message_id))

    def taken(self, principal: bytes, message_id: str) -> Pending[Taken | None]:
        return self._read(lambda store: store.taken(principal, message_id))

    def find_sent(
        self,
        states: Collection[SentState] = (),
        *,
        peer: bytes | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> Pending[list[Sent]]:
        return self._read(lambda store: store.find_sent(states, peer, after, limit))

    def find_taken(
        self, states: Collection[TakenState] = (), *, principal: bytes | None = None, after: int = 0, limit: int = 1000
    ) -> Pending[list[Taken]]:
        return self._read(lambda store: store.find_taken(states, principal, after, limit))

    def items(self, principal: bytes, message_id: str, offset: int, limit: int = 1000) -> Pending[Items | None]:
        return self._read(lambda store: store.items(principal, message_id, offset, limit))

    def set_aside(self) -> Pending[list[SetAside]]:
        return self._read(lambda store: store.set_aside())

    def gauges(self) -> Gauges:
        return self._writer.gauges()

    def close(self) -> None:
        if os.getpid() == self._pid:
            self._writer.close()

    def _read(self, ask: Callable[[Store], T]) -> Pending[T]:
        return self._put(Read(ask))

    def _put(self, entry: Any) -> Pending[Any]:
        if os.getpid() != self._pid:
            keep([(entry.pending, None, JournalError("The journal was opened before this process was forked off."))])
        else:
            self._writer.put(entry)
        pending: Pending[Any] = entry.pending
        return pending
