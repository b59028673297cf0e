"""Operations and queries as SQL on the journal's own tables.

Knows: which statement each operation is, and that a row is checked whenever it is read. Refuses to know: commits,
threads, files. Called by: the SQLite store, inside its transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from hermes_peer.errors import UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal import rules, schema
from hermes_peer.journal.counts import Counts
from hermes_peer.journal.room import Room
from hermes_peer.journal.schema import SENT, TAKEN, Columns, Side
from hermes_peer.journal.store import Connection, Damaged, picked
from hermes_peer.journal.stream_table import StreamTable
from hermes_peer.journal.values import Answer, Kind, Limits, Sent, SentState, Taken, TakenState, Verdict

SENT_BY_ID = "FROM hermes_sent WHERE message_id=?"
TAKEN_BY_ID = "FROM hermes_taken WHERE principal=? AND message_id=?"
TAKEN_BY_KEY = "FROM hermes_taken WHERE principal=? AND method=? AND idempotency_key=? AND idempotency_key <> x''"


class Tables:
    """The rows. Every reading method may raise `Damaged`; nothing that it concerns has then been written."""

    def __init__(self, db: Connection, limits: Limits, room: Room, next_seq: int) -> None:
        self.db = db
        self.limits = limits
        self.room = room
        self.counts = Counts()
        self.stream = StreamTable(db)
        self.gone: set[tuple[str, bytes, bytes]] = set()  # (side, principal, message_id) of rows set aside
        self._next_seq = next_seq
        self._do: dict[type, Callable[[Any], Answer]] = {
            op.Submit: self._submit,
            op.Take: self._take,
            op.Discard: self._discard,
            op.Settle: self._settle,
            op.Expire: self._expire,
            **dict.fromkeys(rules.SENT_RULES.keys() - {op.Discard}, self._change_sent),
            **dict.fromkeys(rules.TAKEN_RULES, self._change_taken),
        }

    def apply(self, operation: op.Operation) -> Answer:
        """Carries one operation out. Raises UsageError, JournalError (disk full), Damaged, sqlite3.Error."""
        return self._do[type(operation)](operation)

    # reading

    def read(self, side: Side, columns: str, where: str, parameters: Columns) -> Columns | None:
        """One sound row, or None."""
        row = self.db.execute(f"SELECT {columns} {where}", parameters).fetchone()
        return None if row is None else self.sound(side, row)

    def sound(self, side: Side, row: Columns) -> Columns:
        why = side.damage(row)
        if why:
            raise Damaged(side.name, row, why)
        return row

    def sent(self, message_id: str) -> Sent | None:
        row = self.read(SENT, SENT.whole, SENT_BY_ID, (message_id.encode(),))
        return None if row is None else schema.sent_of(row)

    def taken(self, principal: bytes, message_id: str) -> Taken | None:
        row = self.read(TAKEN, TAKEN.whole, TAKEN_BY_ID, (principal, message_id.encode()))
        return None if row is None else schema.taken_of(row)

    def find_sent(self, states: Collection[SentState], peer: bytes | None, after: int, limit: int) -> list[Sent]:
        return [schema.sent_of(row) for row in self._find(SENT, states, "peer", peer, after, limit)]

    def find_taken(
        self, states: Collection[TakenState], principal: bytes | None, after: int, limit: int
    ) -> list[Taken]:
        return [schema.taken_of(row) for row in self._find(TAKEN, states, "principal", principal, after, limit)]

    def _find(
        self, side: Side, states: Collection[int], column: str, whose: bytes | None, after: int, limit: int
    ) -> list[Columns]:
        where = ["seq>?"]
        values: list[Any] = [after]
        if states:
            where.append(picked(list(states)))
        if whose is not None:
            where.append(f"{column}=?")
            values.append(whose)
        sql = f"SELECT {side.whole} FROM {side.table} WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"
        return [self.sound(side, row) for row in self.db.execute(sql, (*values, limit)).fetchall()]

    # the submitter's side

    def _submit(self, o: op.Submit) -> Verdict:
        new = o.sent
        if new.state is not SentState.WAITING or new.outcome is not None:
            raise UsageError("Only WAITING work without an outcome can be submitted.")
        old = self.sent(new.message_id)
        if old is not None:
            return rules.judged(old, new.digest)
        body = len(new.envelope) + len(new.payload)
        refusal = self._lost("sent", b"", new.message_id) or rules.refused(
            body, self.counts.peers[new.peer], self.limits
        )
        if refusal:
            return refusal
        self.room.admit(body, self.counts.unfinished, "new work")
        new = replace(new, seq=self._seq())
        self.db.execute(SENT.insert, schema.sent_columns(new))
        self.counts.move_sent(None, new)
        return Verdict(Kind.NEW, new)

    def _change_sent(self, o: op.SentOperation) -> int:
        row = self.read(SENT, SENT.light, SENT_BY_ID, (o.message_id.encode(),))
        before = None if row is None else schema.sent_of(row)
        after = rules.next_sent(before, o, self.limits)
        assert row is not None
        self.db.execute(*SENT.changed(row, schema.sent_mutable(after)))
        self.counts.move_sent(before, after)
        return after.attempts

    def _discard(self, o: op.Discard) -> int:
        row = self.read(SENT, SENT.light, SENT_BY_ID, (o.message_id.encode(),))
        if row is None:
            return 0
        before = schema.sent_of(row)
        rules.allow_sent(before, o)
        return self._delete_sent(before)

    def _delete_sent(self, before: Sent) -> int:
        self.db.execute("DELETE FROM hermes_sent WHERE seq=?", (before.seq,))
        self.counts.move_sent(before, None)
        return 1

    # the receiver's side

    def _take(self, o: op.Take) -> Verdict:
        new = o.taken
        rules.check_new(new, self.limits)
        old = self.taken(new.principal, new.message_id)
        if old is None and new.idempotency_key:
            key = (new.principal, new.method.encode(), new.idempotency_key.encode())
            row = self.read(TAKEN, TAKEN.whole, TAKEN_BY_KEY, key)
            old = None if row is None else schema.taken_of(row)
        if old is not None:
            return rules.judged(old, new.digest)
        body = len(new.envelope) + len(new.payload)
        rows = self.counts.principals[new.principal]
        refusal = self._lost("taken", new.principal, new.message_id) or rules.refused(body, rows, self.limits)
        if refusal:
            return refusal
        unfinished = self.counts.unfinished - (new.outcome is not None)  # for itself it needs no more room
        self.room.admit(body + len(new.outcome or b""), unfinished, "new work")
        new = replace(new, seq=self._seq())
        self.db.execute(TAKEN.insert, schema.taken_columns(new))
        self.counts.move_taken(None, new)
        return Verdict(Kind.NEW, new)

    def _change_taken(self, o: op.TakenOperation) -> int:
        row = self.read(TAKEN, TAKEN.light, TAKEN_BY_ID, (o.principal, o.message_id.encode()))
        before = None if row is None else schema.taken_of(row)
        after = rules.next_taken(before, o, self.limits)
        assert row is not None and before is not None
        if isinstance(o, op.Append):
            self.room.admit(sum(map(len, o.items)), self.counts.unfinished - 1, "stream items")
            self.stream.append(before.seq, o.first, o.items)
        elif isinstance(o, op.Trim):
            self.stream.trim(before.seq, after.first_item)
        self.db.execute(*TAKEN.changed(row, schema.taken_mutable(after)))
        self.counts.move_taken(before, after)
        return after.next_item if isinstance(o, op.Append) else after.attempts

    def _settle(self, o: op.Settle) -> int:
        gone = 0
        for id in o.message_ids:
            row = self.read(TAKEN, TAKEN.light, TAKEN_BY_ID, (o.principal, id.encode()))
            if row is not None:
                before = schema.taken_of(row)
                if before.state is TakenState.DONE:
                    gone += self._delete_taken(before)
        return gone

    def _delete_taken(self, before: Taken) -> int:
        if before.next_item:
            self.stream.forget(before.seq)
        self.db.execute("DELETE FROM hermes_taken WHERE seq=?", (before.seq,))
        self.counts.move_taken(before, None)
        return 1

    def _expire(self, o: op.Expire) -> int:
        gone = 0
        due = "WHERE keep_until_ms>0 AND keep_until_ms<=? ORDER BY keep_until_ms LIMIT ?"
        limits = (o.now_ms, o.limit)
        for row in self.db.execute(f"SELECT {SENT.light} FROM hermes_sent {due}", limits).fetchall():
            sent = schema.sent_of(self.sound(SENT, row))
            gone += self._delete_sent(sent) if sent.state not in rules.OPEN_SENT else 0
        for row in self.db.execute(f"SELECT {TAKEN.light} FROM hermes_taken {due}", limits).fetchall():
            taken = schema.taken_of(self.sound(TAKEN, row))
            gone += self._delete_taken(taken) if taken.state not in rules.OPEN_TAKEN else 0
        return gone

    def _lost(self, side: str, principal: bytes, message_id: str) -> Verdict | None:
        """The refusal of an id whose row was set aside: whether it ran is not known, so it is not begun anew."""
        if (side, principal, message_id.encode()) in self.gone:
            return Verdict(Kind.REFUSED, None, f"The row of {message_id!r} is damaged and was set aside.")
        return None

    def _seq(self) -> int:
        self._next_seq += 1
        return self._next_seq - 1
