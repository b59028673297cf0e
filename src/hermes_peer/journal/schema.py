"""Tables, columns and checksums of the journal's file.

Knows: SQL text, which columns may change, how a row is summed and read back. Refuses to know: connections, states.
Called by: the SQLite tables, the opening and the salvage.

A row has two sums of 8 bytes: `fixed` over what never changes (with the bodies), `sum` over that and what may change.
A change therefore reads and sums no bodies, and a single wrong bit anywhere in the row is found when it is read.
Text is stored as UTF-8 blobs: a flipped bit must not become a decoding error inside SQLite's binding.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from hermes_peer.journal.values import Contract, Sent, SentState, Taken, TakenState

SCHEMA = 1
APPLICATION_ID = 0x48504A31  # "HPJ1"
OURS = "hermes_"
Columns = tuple[Any, ...]

# Small columns first: a scan over them does not read the pages of the bodies.
TABLES = f"""
CREATE TABLE hermes_meta (id INTEGER PRIMARY KEY CHECK (id = 1), schema INTEGER NOT NULL, fingerprint BLOB NOT NULL,
  epoch BLOB NOT NULL, boot INTEGER NOT NULL, tick INTEGER NOT NULL, clean INTEGER NOT NULL, sum BLOB NOT NULL) STRICT;
CREATE TABLE hermes_sent (seq INTEGER PRIMARY KEY, message_id BLOB NOT NULL UNIQUE,
  peer BLOB NOT NULL, state INTEGER NOT NULL, attempts INTEGER NOT NULL, next_try_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL, consumed INTEGER NOT NULL, why BLOB NOT NULL, requeued_ms INTEGER NOT NULL,
  requeued_by BLOB NOT NULL, keep_until_ms INTEGER NOT NULL, fixed BLOB NOT NULL, sum BLOB NOT NULL,
  target BLOB NOT NULL, method BLOB NOT NULL, digest BLOB NOT NULL, created_ms INTEGER NOT NULL,
  outcome BLOB, envelope BLOB NOT NULL, payload BLOB NOT NULL) STRICT;
CREATE INDEX hermes_sent_dead ON hermes_sent (seq) WHERE state = {int(SentState.DEAD)};
CREATE INDEX hermes_sent_keep ON hermes_sent (keep_until_ms) WHERE keep_until_ms > 0;
CREATE TABLE hermes_taken (seq INTEGER PRIMARY KEY, principal BLOB NOT NULL, message_id BLOB NOT NULL,
  state INTEGER NOT NULL, attempts INTEGER NOT NULL, keep_until_ms INTEGER NOT NULL,
  first_item INTEGER NOT NULL, next_item INTEGER NOT NULL, fixed BLOB NOT NULL, sum BLOB NOT NULL,
  method BLOB NOT NULL, contract BLOB NOT NULL, idempotency_key BLOB NOT NULL, digest BLOB NOT NULL,
  taken_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
  outcome BLOB, envelope BLOB NOT NULL, payload BLOB NOT NULL, UNIQUE (principal, message_id)) STRICT;
CREATE UNIQUE INDEX hermes_taken_key ON hermes_taken (principal, method, idempotency_key) WHERE idempotency_key <> x'';
CREATE INDEX hermes_taken_keep ON hermes_taken (keep_until_ms) WHERE keep_until_ms > 0;
CREATE TABLE hermes_items (work INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, sum BLOB NOT NULL,
  body BLOB NOT NULL, UNIQUE (work, first)) STRICT;
CREATE TABLE hermes_aside (id INTEGER PRIMARY KEY, side BLOB NOT NULL, principal BLOB NOT NULL,
  message_id BLOB NOT NULL, why BLOB NOT NULL, body BLOB NOT NULL) STRICT;
"""

SENT_KEY = ("seq", "message_id")
SENT_MUTABLE = (
    "peer",
    "state",
    "attempts",
    "next_try_ms",
    "expires_ms",
    "consumed",
    "why",
    "requeued_ms",
    "requeued_by",
    "keep_until_ms",
    "outcome",
)
SENT_FIXED = ("target", "method", "digest", "created_ms", "envelope", "payload")
TAKEN_KEY = ("seq", "principal", "message_id")
TAKEN_MUTABLE = ("state", "attempts", "keep_until_ms", "first_item", "next_item", "outcome")
TAKEN_FIXED = ("method", "contract", "idempotency_key", "digest", "taken_ms", "expires_ms", "envelope", "payload")

_encode = msgspec.msgpack.Encoder().encode
pack, unpack = _encode, msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


def digest8(*values: Any) -> bytes:
    """8 bytes of BLAKE2b over the values. Against decay, not against an attacker, who could write the file anyway."""
    return blake2b(_encode(values), digest_size=8).digest()


class Side:
    """The columns of one table: key + mutable + fixed, sum + (in a whole row) the rest of what never changes."""

    def __init__(self, table: str, key: Sequence[str], mutable: Sequence[str], fixed: Sequence[str]) -> None:
        self.table = table
        self.name = table.removeprefix(OURS)
        self.mutable = tuple(mutable)
        self.keys, self.light_width = len(key), len(key) + len(mutable) + 2
        light = (*key, *mutable, "fixed", "sum")
        self.light = ",".join(light)
        self.whole = ",".join((*light, *fixed))
        marks = ",".join("?" * (len(light) + len(fixed)))
        self.insert = f"INSERT INTO {table} ({self.whole}) VALUES ({marks})"
        self._updates: dict[tuple[int, ...], str] = {}

    def fixed_sum(self, key: Columns, fixed: Columns) -> bytes:
        return digest8(self.name, *key, *fixed)

    def columns(self, key: Columns, mutable: Columns, fixed: Columns) -> Columns:
        """A whole row to insert."""
        own = self.fixed_sum(key, fixed)
        return (*key, *mutable, own, digest8(own, *mutable), *fixed)

    def damage(self, row: Columns) -> str:
        """Why this row, light or whole, as it was read, cannot be true; empty if it can."""
        light = self.light_width
        own, total = row[light - 2], row[light - 1]
        try:
            if digest8(own, *row[self.keys : light - 2]) != total:
                return "its changing columns do not match their checksum"
            if len(row) > light and self.fixed_sum(row[: self.keys], row[light:]) != own:
                return "its unchanging columns do not match their checksum"
        except (TypeError, ValueError, UnicodeError):
            return "a column holds what cannot be read"
        return ""

    def changed(self, row: Columns, mutable: Columns) -> tuple[str, Columns]:
        """The UPDATE, and its parameters, that gives the row as it was read these mutable columns."""
        old = row[self.keys : self.light_width - 2]
        at = tuple(i for i, value in enumerate(mutable) if value != old[i])
        sql = self._updates.get(at)
        if sql is None:
            sets = "".join(f"{self.mutable[i]}=?," for i in at)
            sql = self._updates[at] = f"UPDATE {self.table} SET {sets}sum=? WHERE seq=?"
        return sql, (*(mutable[i] for i in at), digest8(row[self.light_width - 2], *mutable), row[0])


SENT = Side("hermes_sent", SENT_KEY, SENT_MUTABLE, SENT_FIXED)
TAKEN = Side("hermes_taken", TAKEN_KEY, TAKEN_MUTABLE, TAKEN_FIXED)


def aside(side: str, row: Columns, why: str) -> Columns:
    """A row of hermes_aside: whose row it seems to be, and all that was read of it."""
    principal = row[1] if side == "taken" and isinstance(row[1], bytes) else b""
    id = row[2] if side == "taken" else row[1]
    return (
        side.encode(),
        principal,
        id if isinstance(id, bytes) else b"",
        why.encode(),
        repr(row).encode(errors="replace"),
    )


def sent_key(s: Sent) -> Columns:
    return (s.seq, s.message_id.encode())


def sent_mutable(s: Sent) -> Columns:
    return (
        s.peer,
        int(s.state),
        s.attempts,
        s.next_try_ms,
        s.expires_ms,
        s.offset,
        s.why.encode(),
        s.requeued_ms,
        s.requeued_by.encode(),
        s.keep_until_ms,
        s.outcome,
    )


def sent_columns(s: Sent) -> Columns:
    fixed = (s.target.encode(), s.method.encode(), s.digest, s.created_ms, s.envelope, s.payload)
    return SENT.columns(sent_key(s), sent_mutable(s), fixed)


def sent_of(row: Columns) -> Sent:
    """The value of a sound row. A light row lacks target, method, digest, created_ms and bodies."""
    seq, id, peer, state, attempts, next_try, expires, offset, why, requeued, by, keep, outcome, _, _, *rest = row
    target, method, digest, created, envelope, payload = rest or (b"", b"", b"", 0, b"", b"")
    return Sent(
        seq=seq,
        message_id=id.decode(),
        peer=peer,
        state=SentState(state),
        attempts=attempts,
        next_try_ms=next_try,
        expires_ms=expires,
        offset=offset,
        why=why.decode(),
        requeued_ms=requeued,
        requeued_by=by.decode(),
        keep_until_ms=keep,
        outcome=outcome,
        target=target.decode(),
        method=method.decode(),
        digest=digest,
        created_ms=created,
        envelope=envelope,
        payload=payload,
    )


def taken_key(t: Taken) -> Columns:
    return (t.seq, t.principal, t.message_id.encode())


def taken_mutable(t: Taken) -> Columns:
    return (int(t.state), t.attempts, t.keep_until_ms, t.first_item, t.next_item, t.outcome)


def taken_columns(t: Taken) -> Columns:
    fixed = (
        t.method.encode(),
        t.contract.encode(),
        t.idempotency_key.encode(),
        t.digest,
        t.taken_ms,
        t.expires_ms,
        t.envelope,
        t.payload,
    )
    return TAKEN.columns(taken_key(t), taken_mutable(t), fixed)


def taken_of(row: Columns) -> Taken:
    """The value of a sound row. A light row lacks method, contract, key, digest, times and bodies."""
    seq, principal, id, state, attempts, keep, first, next_item, outcome, _, _, *rest = row
    method, contract, key, digest, taken_ms, expires, envelope, payload = rest or (b"", b"", b"", b"", 0, 0, b"", b"")
    return Taken(
        seq=seq,
        principal=principal,
        message_id=id.decode(),
        state=TakenState(state),
        attempts=attempts,
        keep_until_ms=keep,
        first_item=first,
        next_item=next_item,
        outcome=outcome,
        method=method.decode(),
        contract=Contract(contract.decode()),
        idempotency_key=key.decode(),
        digest=digest,
        taken_ms=taken_ms,
        expires_ms=expires,
        envelope=envelope,
        payload=payload,
    )
