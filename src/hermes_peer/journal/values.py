"""The values that the journal keeps and answers.

Knows: the rows of both sides, their states, verdicts, bounds, gauges. Refuses to know: how or where they are kept.
Called by: everything in this room, and the agent's durable work.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

MIB = 1 << 20


class SentState(IntEnum):
    """The submitter's side. WAITING: the receiver may not know of it. ACCEPTED: it has it on its disk."""

    WAITING = 1
    ACCEPTED = 2
    DONE = 3
    DEAD = 4


class TakenState(IntEnum):
    """The receiver's side. RUNNING: a handler was started at least once, and nobody has said how it ended."""

    ACCEPTED = 1
    RUNNING = 2
    DONE = 3


class Contract(StrEnum):
    """What a method promises about being run again (protocol, section 6). NONE: started at most once."""

    NONE = ""
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """Work that was submitted here for somebody else. Times are milliseconds since 1970 of the caller's clock.

    `peer` is the 32-byte fingerprint it was first sent to (empty: not chosen yet), `target` the name it was addressed
    to, `digest` what tells two works with one id apart, `offset` the stream items consumed, `why` the reason of its
    death, `seq` the order of arrival (the journal gives it). `keep_until_ms` is 0 as long as no end is set.
    """

    message_id: str
    peer: bytes
    target: str
    method: str
    envelope: bytes
    payload: bytes
    digest: bytes
    created_ms: int
    expires_ms: int
    state: SentState = SentState.WAITING
    attempts: int = 0
    next_try_ms: int = 0
    outcome: bytes | None = None
    offset: int = 0
    why: str = ""
    requeued_ms: int = 0
    requeued_by: str = ""
    keep_until_ms: int = 0
    seq: int = 0


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Work that was taken from `principal` (32-byte fingerprint). `(principal, message_id)` is unique, and so is
    `(principal, method, idempotency_key)` unless the key is empty.

    Its stream log holds the items `first_item` up to, not including, `next_item`.
    """

    principal: bytes
    message_id: str
    method: str
    contract: Contract
    envelope: bytes
    payload: bytes
    digest: bytes
    taken_ms: int
    expires_ms: int
    idempotency_key: str = ""
    state: TakenState = TakenState.ACCEPTED
    attempts: int = 0
    outcome: bytes | None = None
    keep_until_ms: int = 0
    first_item: int = 0
    next_item: int = 0
    seq: int = 0


class Items(msgspec.Struct, frozen=True):
    """A piece of a stream log: `items` are those with index `first`, `first` + 1, …; `next_item` counts all that were
    ever appended. `first` above the offset that was asked for is a gap: what lies between is gone.
    """

    first: int
    items: tuple[bytes, ...]
    next_item: int


class Kind(StrEnum):
    """What became of a Submit or a Take."""

    NEW = "new"
    ATTACH = "attach"
    CONFLICT = "conflict"
    REFUSED = "refused"


class Verdict(msgspec.Struct, frozen=True):
    """The answer to Submit and Take. `row` is what is stored now: the new row, or for ATTACH and CONFLICT the one that
    was there (with another message_id if it was found by its idempotency key). `why` is a sentence if REFUSED.
    """

    kind: Kind
    row: Sent | Taken | None = None
    why: str = ""


Answer = Verdict | int | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds. `size`: bytes of the database file. `rows_per_peer`: rows kept for one principal, and open or dead
    ones for one receiver. `body`: bytes of envelope and payload, of an outcome, or of one stream item. `outcome_room`:
    bytes kept free for each unfinished row, so that its end can be written on a full disk. `ballast`: bytes of a file
    that is given up when the disk itself is full.
    """

    size: int = 1024 * MIB
    rows_per_peer: int = 10_000
    body: int = MIB
    outcome_room: int = 16 << 10
    ballast: int = 4 * MIB


class Origin(StrEnum):
    """How this store continues the one that was here before. Anything but NEW and SAME has a new epoch and a notice.

    What a store that is not SAME says about running or finished work may be out of date.
    """

    NEW = "new"
    SAME = "same"
    DELETED = "deleted"
    OLDER = "older"
    COPIED = "copied"
    SALVAGED = "salvaged"


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose checksum was wrong: kept for a human to see, never run and never answered."""

    side: str
    principal: bytes
    message_id: str
    why: str


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers for a console. `size`, `free` and `wal` are bytes; `queue` counts what waits for the writer; `units` are
    calls of commit that were stored and `commits` the disk commits that held them; `stopped` is empty or says why.
    """

    sent: dict[SentState, int]
    taken: dict[TakenState, int]
    set_aside: int = 0
    size: int = 0
    free: int = 0
    wal: int = 0
    queue: int = 0
    units: int = 0
    commits: int = 0
    last_commit_ms: float = 0.0
    stopped: str = ""
