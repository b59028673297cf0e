"""The journal without a disk: the same port and the same thread, rows in dicts.

Knows: dicts, and how to take changes back. Refuses to know: files; when the process ends, it is empty.
Called by: agents that asked for no store, tests, and the contract kit as the other implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

from msgspec.structs import replace

from hermes_peer.errors import UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal import rules
from hermes_peer.journal.counts import Counts
from hermes_peer.journal.opening import connect
from hermes_peer.journal.store import Connection, Damaged, disk_full
from hermes_peer.journal.threaded import ThreadedJournal
from hermes_peer.journal.values import (
    Answer,
    Gauges,
    Items,
    Kind,
    Limits,
    Origin,
    Sent,
    SentState,
    SetAside,
    Taken,
    TakenState,
    Verdict,
)

Id = tuple[bytes, str]
_ABSENT: Any = object()


class MemoryStore:
    """See `store.Store`. Every change goes through `_set`, which remembers what was there before."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sent: dict[str, Sent] = {}
        self._taken: dict[Id, Taken] = {}
        self._keys: dict[tuple[bytes, str, str], Id] = {}
        self._logs: dict[Id, dict[int, bytes]] = {}
        self._counts = Counts()
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._at = (0, 0)
        self._seq = self._bytes = 0
        self._own: Connection | None = None

    def _set(self, table: dict[Any, Any], key: Any, value: Any = _ABSENT) -> None:
        old = table.get(key, _ABSENT)
        self._undo.append((table, key, old))
        _put(table, key, value)
        self._bytes += _size(value) - _size(old)

    def _back(self, mark: int) -> None:
        while len(self._undo) > mark:
            table, key, old = self._undo.pop()
            self._bytes += _size(old) - _size(table.get(key, _ABSENT))
            _put(table, key, old)

    def begin(self) -> None:
        self._undo.clear()
        if self._own:
            self._own.execute("BEGIN")

    def commit(self) -> None:
        if self._own and self._own.in_transaction:
            self._own.execute("COMMIT")
        self._counts.forget()

    def rollback(self) -> None:
        if self._own and self._own.in_transaction:
            self._own.execute("ROLLBACK")
        self._back(0)
        self._counts.back()

    def save(self) -> None:
        self._at = (len(self._undo), self._counts.mark())
        if self._own:
            self._own.execute("SAVEPOINT unit")

    def release(self) -> None:
        if self._own:
            self._own.execute("RELEASE unit")

    def back(self) -> None:
        if self._own:
            self._own.execute("ROLLBACK TO unit")
            self._own.execute("RELEASE unit")
        self._back(self._at[0])
        self._counts.back(self._at[1])

    def own_sql(self) -> Connection:
        if self._own is None:
            self._own = connect(":memory:")
            self._own.execute("BEGIN")
            self._own.execute("SAVEPOINT unit")
        return self._own

    def put_aside(self, damaged: Damaged) -> None:
        raise AssertionError("memory does not decay")

    def no_room(self) -> None:
        pass

    def tidy(self, idle: bool) -> bool:
        return False

    untidy = False

    def close(self, clean: bool) -> None:
        if self._own:
            self._own.close()

    # operations

    def apply(self, operation: op.Operation) -> Answer:
        match operation:
            case op.Submit(new):
                return self._submit(new)
            case op.Take(new):
                return self._take(new)
            case op.Discard(id):
                row = self._sent.get(id)
                if row is None:
                    return 0
                rules.allow_sent(row, operation)
                return self._put_sent(row, None)
            case op.Settle(principal, ids):
                rows = [self._taken.get((principal, id)) for id in dict.fromkeys(ids)]
                return sum(self._forget(row) for row in rows if row and row.state is TakenState.DONE)
            case op.Expire():
                return self._expire(operation)
            case op.Run() | op.Finish() | op.Append() | op.Trim():
                return self._change_taken(operation)
            case _:
                before = self._sent.get(operation.message_id)
                after = rules.next_sent(before, operation, self._limits)
                self._put_sent(before, after)
                return after.attempts

    def _submit(self, new: Sent) -> Verdict:
        if new.state is not SentState.WAITING or new.outcome is not None:
            raise UsageError("Only WAITING work without an outcome can be submitted.")
        if old := self._sent.get(new.message_id):
            return rules.judged(old, new.digest)
        body = len(new.envelope) + len(new.payload)
        if refusal := rules.refused(body, self._counts.peers[new.peer], self._limits):
            return refusal
        self._admit(body)
        self._seq += 1
        new = replace(new, seq=self._seq)
        self._put_sent(None, new)
        return Verdict(Kind.NEW, new)

    def _take(self, new: Taken) -> Verdict:
        rules.check_new(new, self._limits)
        id = (new.principal, new.message_id)
        key = (new.principal, new.method, new.idempotency_key)
        if (old := self._taken.get(id if id in self._taken else self._keys.get(key, id))) is not None:
            return rules.judged(old, new.digest)
        body = len(new.envelope) + len(new.payload)
        if refusal := rules.refused(body, self._counts.principals[new.principal], self._limits):
            return refusal
        self._admit(body + len(new.outcome or b""), int(new.outcome is not None))
        self._seq += 1
        new = replace(new, seq=self._seq)
        self._put_taken(None, new)
        if new.idempotency_key:
            self._set(self._keys, key, id)
        return Verdict(Kind.NEW, new)

    def _change_taken(self, o: op.TakenOperation) -> int:
        id = (o.principal, o.message_id)
        before = self._taken.get(id)
        after = rules.next_taken(before, o, self._limits)
        assert before is not None
        log = self._logs.setdefault(id, {})
        if isinstance(o, op.Append):
            self._admit(sum(map(len, o.items)))
            for index, item in enumerate(o.items, o.first):
                self._set(log, index, item)
        elif isinstance(o, op.Trim):
            for index in range(before.first_item, after.first_item):
                self._set(log, index)
        self._put_taken(before, after)
        return after.next_item if isinstance(o, op.Append) else after.attempts

    def _expire(self, o: op.Expire) -> int:
        sent = [r for r in self._sent.values() if 0 < r.keep_until_ms <= o.now_ms and r.state not in rules.OPEN_SENT]
        taken = [r for r in self._taken.values() if 0 < r.keep_until_ms <= o.now_ms and r.state not in rules.OPEN_TAKEN]
        return sum(self._put_sent(row, None) for row in _earliest(sent, o.limit)) + sum(
            self._forget(row) for row in _earliest(taken, o.limit)
        )

    def _forget(self, row: Taken) -> int:
        id = (row.principal, row.message_id)
        if row.idempotency_key:
            self._set(self._keys, (row.principal, row.method, row.idempotency_key))
        self._set(self._logs, id)
        return self._put_taken(row, None)

    def _put_sent(self, before: Sent | None, after: Sent | None) -> int:
        row = after or before
        assert row is not None
        self._set(self._sent, row.message_id, after or _ABSENT)
        self._counts.move_sent(before, after)
        return 1

    def _put_taken(self, before: Taken | None, after: Taken | None) -> int:
        row = after or before
        assert row is not None
        self._set(self._taken, (row.principal, row.message_id), after or _ABSENT)
        self._counts.move_taken(before, after)
        return 1

    def _admit(self, body: int, ended: int = 0) -> None:
        unfinished = self._counts.unfinished + 1 - ended
        if self._bytes + body + unfinished * self._limits.outcome_room > self._limits.size:
            raise disk_full("new work")

    # reading

    def sent(self, message_id: str) -> Sent | None:
        return self._sent.get(message_id)

    def taken(self, principal: bytes, message_id: str) -> Taken | None:
        return self._taken.get((principal, message_id))

    def find_sent(self, states: Collection[SentState], peer: bytes | None, after: int, limit: int) -> list[Sent]:
        rows = [r for r in self._sent.values() if r.seq > after and (not states or r.state in states)]
        return sorted((r for r in rows if peer is None or r.peer == peer), key=lambda r: r.seq)[:limit]

    def find_taken(
        self, states: Collection[TakenState], principal: bytes | None, after: int, limit: int
    ) -> list[Taken]:
        rows = [r for r in self._taken.values() if r.seq > after and (not states or r.state in states)]
        return sorted((r for r in rows if principal is None or r.principal == principal), key=lambda r: r.seq)[:limit]

    def items(self, principal: bytes, message_id: str, offset: int, limit: int) -> Items | None:
        row = self._taken.get((principal, message_id))
        if row is None:
            return None
        start = max(offset, row.first_item)
        log = self._logs.get((principal, message_id), {})
        found, size = [], 0
        for index in range(start, min(start + limit, row.next_item)):
            found.append(log[index])
            size += len(log[index])
            if size >= 1 << 20:
                break
        return Items(start, tuple(found), row.next_item)

    def set_aside(self) -> list[SetAside]:
        return []

    def gauges(self) -> Gauges:
        counts = self._counts
        return Gauges(
            sent={state: counts.sent[state] for state in SentState},
            taken={state: counts.taken[state] for state in TakenState},
            size=self._bytes,
            free=self._limits.size - self._bytes,
        )


class MemoryJournal(ThreadedJournal):
    """A `Journal` that ends with the process."""

    def __init__(
        self,
        *,
        entropy: Callable[[int], bytes],
        limits: Limits | None = None,
        failpoint: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.epoch, self.origin, self.notice = entropy(8), Origin.NEW, ""
        super().__init__(MemoryStore(limits or Limits()), idle_s=1.0, failpoint=failpoint)


def _put(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is _ABSENT:
        table.pop(key, None)
    else:
        table[key] = value


def _size(value: Any) -> int:
    if isinstance(value, Sent | Taken):
        return len(value.envelope) + len(value.payload) + len(value.outcome or b"")
    return len(value) if isinstance(value, bytes) else 0


def _earliest(rows: list[Any], limit: int) -> list[Any]:
    return sorted(rows, key=lambda r: cast(int, r.keep_until_ms))[:limit]
