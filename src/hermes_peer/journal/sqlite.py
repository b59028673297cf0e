"""The journal on a disk: one SQLite file, one connection, one writer thread.

Knows: transactions, checkpoints, rows that are set aside, the room that is left. Refuses to know: SQL of single
operations (tables.py) and threads (writer.py). Called by: the agent's durable work, the command line.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

from msgspec.structs import replace

from hermes_peer.errors import JournalError
from hermes_peer.journal import aside, schema
from hermes_peer.journal import meta as identity
from hermes_peer.journal.opening import WAL_LIMIT, Connect, Opened, connect
from hermes_peer.journal.operations import Append, Operation, Submit, Take
from hermes_peer.journal.room import PAGE, Room, cost
from hermes_peer.journal.schema import SENT, TAKEN
from hermes_peer.journal.store import Connection, Damaged, Fault, fault
from hermes_peer.journal.tables import TAKEN_BY_ID, Tables
from hermes_peer.journal.threaded import ThreadedJournal
from hermes_peer.journal.values import (
    Answer,
    Gauges,
    Items,
    Limits,
    Sent,
    SentState,
    SetAside,
    Taken,
    TakenState,
)

VACUUM_PAGES = 2048  # freed pages given back per idle moment


def _nothing(name: str) -> None:
    pass


class SqliteStore:
    """See `store.Store`. Used by one thread at a time."""

    def __init__(self, opened: Opened, limits: Limits, failpoint: Callable[[str], None]) -> None:
        self.path, self._lock, self._meta = opened.path, opened.lock, opened.meta
        self.db, self._limits, self._failpoint = opened.db, limits, failpoint
        self.room = Room(self.path, limits)
        self.tables = Tables(self.db, limits, self.room, 1 + max(self._highest(side.table) for side in (SENT, TAKEN)))
        self._written = 0  # about how many bytes went to the write-ahead log since the last checkpoint
        self._blocked = False  # the last checkpoint found no room
        self._asides = 0
        self._pages = (0, 0)
        self._recount()
        self.room.fill()
        self._measure()

    # transactions

    def begin(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self.room.look(self._measure(), self._wal() if self._written else 0)

    def commit(self) -> None:
        self._failpoint("before commit")
        self.db.execute("COMMIT")
        self._failpoint("after commit")
        self.tables.counts.forget()
        self._written += PAGE
        self._blocked = False

    def rollback(self) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")
        self._recount()

    def save(self) -> None:
        self.db.execute("SAVEPOINT unit")
        self._mark = self.tables.counts.mark()

    def release(self) -> None:
        self.db.execute("RELEASE unit")

    def back(self) -> None:
        self.db.execute("ROLLBACK TO unit")
        self.db.execute("RELEASE unit")
        self.tables.counts.back(self._mark)

    def apply(self, operation: Operation) -> Answer:
        answer = self.tables.apply(operation)
        self._written += cost(_size(operation)) // 2
        return answer

    def own_sql(self) -> Connection:
        self._written += 8 * PAGE
        return self.db

    def put_aside(self, damaged: Damaged) -> None:
        aside.put_aside(self.db, damaged)
        self._recount()

    # room and tidiness

    def no_room(self) -> None:
        """Also a checkpoint, as the log is then written from its beginning and grows no more."""
        self.room.give_up()
        try:
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._written = 0
        except sqlite3.Error as error:
            if fault(error) is not Fault.FULL:
                raise

    @property
    def untidy(self) -> bool:
        return self._written > 0 and not self._blocked

    def tidy(self, idle: bool) -> bool:
        """A passive checkpoint when the log is long, or when nothing else is to be done; then also the mark. Whether
        anything was done."""
        if not self.untidy or not (idle or (self._written >= WAL_LIMIT and self._wal() >= WAL_LIMIT)):
            return False
        try:
            self._failpoint("before checkpoint")
            if idle:
                self._vacuum()
                self._write_meta(replace(self._meta, tick=self._meta.tick + 1))
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if idle:
                identity.write_mark(self.path, self._meta)
            self._failpoint("after checkpoint")
        except (sqlite3.Error, OSError) as error:
            if fault(error) is not Fault.FULL and not _is_full(error):
                raise
            self.rollback()
            self.no_room()
            self._blocked = True  # until something is stored again: it would only fail again
        else:
            self._written = 0
        self._measure()
        return True

    def close(self, clean: bool) -> None:
        try:
            if clean:
                self._write_meta(replace(self._meta, clean=True, tick=self._meta.tick + 1))
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                identity.write_mark(self.path, self._meta)
                self.room.remove()
        except (sqlite3.Error, OSError):
            pass  # not marked as clean: the next opening checks it
        finally:
            try:
                self.db.close()
            except sqlite3.Error:
                pass
            self._lock.release()

    def _vacuum(self) -> None:
        """Gives freed pages back. A single call of the pragma frees one page, however many it is asked for, as sqlite3
        does not step on behind a row without columns.
        """
        free = self.db.execute("PRAGMA freelist_count").fetchone()[0]
        if free:
            self.db.execute("BEGIN IMMEDIATE")
            for _ in range(min(free, VACUUM_PAGES)):
                self.db.execute("PRAGMA incremental_vacuum(1)").fetchall()
            self.db.execute("COMMIT")

    def _write_meta(self, meta: identity.Meta) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        identity.write_meta(self.db, meta)
        self.db.execute("COMMIT")
        self._meta = meta

    def _measure(self) -> int:
        """Looks at the file's pages; answers how many are free within the bound."""
        count, free = (self.db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        self._pages = (count, max(self._limits.size // PAGE, 64) - count + free)
        return self._pages[1]

    def _wal(self) -> int:
        try:
            return os.stat(f"{self.path}-wal").st_size
        except OSError:
            return 0

    def _highest(self, table: str) -> int:
        return int(self.db.execute(f"SELECT max(seq) FROM {table}").fetchone()[0] or 0)

    def _recount(self) -> None:
        counts = self.tables.counts
        for counter in (counts.sent, counts.taken, counts.peers, counts.principals):
            counter.clear()
        for peer, state, n in self.db.execute("SELECT peer,state,count(*) FROM hermes_sent NOT INDEXED GROUP BY 1,2"):
            counts.sent[state] += n
            counts.peers[peer] += n if state != SentState.DONE else 0
        for principal, state, n in self.db.execute(
            "SELECT principal,state,count(*) FROM hermes_taken NOT INDEXED GROUP BY 1,2"
        ):
            counts.taken[state] += n
            counts.principals[principal] += n
        counts.forget()
        gone = aside.gone(self.db)
        self._asides, self.tables.gone = len(gone), set(gone)

    # reading

    def sent(self, message_id: str) -> Sent | None:
        return self.tables.sent(message_id)

    def taken(self, principal: bytes, message_id: str) -> Taken | None:
        return self.tables.taken(principal, message_id)

    def find_sent(self, states: Collection[SentState], peer: bytes | None, after: int, limit: int) -> list[Sent]:
        return self.tables.find_sent(states, peer, after, limit)

    def find_taken(
        self, states: Collection[TakenState], principal: bytes | None, after: int, limit: int
    ) -> list[Taken]:
        return self.tables.find_taken(states, principal, after, limit)

    def items(self, principal: bytes, message_id: str, offset: int, limit: int) -> Items | None:
        row = self.tables.read(TAKEN, TAKEN.light, TAKEN_BY_ID, (principal, message_id.encode()))
        if row is None:
            return None
        work = schema.taken_of(row)
        start = max(offset, work.first_item)
        if start >= work.next_item:
            return Items(start, (), work.next_item)
        first, items, damaged = self.tables.stream.read(work.seq, start, limit)
        if damaged:
            raise Damaged("items", damaged[0], "a piece of a stream does not match its checksum")
        return Items(first if items else work.next_item, tuple(items), work.next_item)

    def set_aside(self) -> list[SetAside]:
        return aside.listed(self.db)

    def gauges(self) -> Gauges:
        count, free = self._pages
        counts = self.tables.counts
        return Gauges(
            sent={state: counts.sent[state] for state in SentState},
            taken={state: counts.taken[state] for state in TakenState},
            set_aside=self._asides,
            size=count * PAGE,
            free=min(free * PAGE, self.room.free or free * PAGE),
            wal=self._wal(),
        )


class SqliteJournal(ThreadedJournal):
    """A `Journal` in the file `path` of the key `fingerprint` (32 bytes). Opening reads and checks, so it may take a
    second for a large file after a crash; the folder must be the caller's own (0700).

    `entropy(n)` gives n random bytes; it is asked for an epoch when a history begins. Raises JournalError: the file is
    in use, belongs to another key, has another schema, or cannot be opened. A damaged file is salvaged (see `notice`).
    """

    def __init__(
        self,
        path: str | Path,
        fingerprint: bytes,
        *,
        entropy: Callable[[int], bytes],
        limits: Limits | None = None,
        idle_s: float = 1.0,
        failpoint: Callable[[str], None] = _nothing,
        connect: Connect = connect,
    ) -> None:
        limits = limits or Limits()
        self.path = Path(path)
        opened = Opened(self.path, fingerprint, entropy, limits, connect)
        try:
            store = SqliteStore(opened, limits, failpoint)
        except sqlite3.Error as error:
            opened.close()
            raise JournalError(f"The journal {path} cannot be opened: {error}.") from error
        self.epoch, self.origin, self.notice = opened.meta.epoch, opened.origin, opened.notice
        super().__init__(store, idle_s=idle_s, failpoint=failpoint)


def _size(operation: Operation) -> int:
    if isinstance(operation, Submit):
        return len(operation.sent.envelope) + len(operation.sent.payload)
    if isinstance(operation, Take):
        return len(operation.taken.envelope) + len(operation.taken.payload)
    if isinstance(operation, Append):
        return sum(map(len, operation.items))
    return len(getattr(operation, "outcome", b""))


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (28, 122)  # ENOSPC, EDQUOT
