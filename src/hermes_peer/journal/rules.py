"""Which operation is allowed when, and what a row is after it. One table each side.

Knows: states and transitions, sizes. Refuses to know: storage; it turns a row into the next row.
Called by: both journals, before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from hermes_peer.errors import UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal.values import Kind, Limits, Sent, SentState, Taken, TakenState, Verdict

_WAITING, _ACCEPTED, _DONE, _DEAD = SentState
_TAKEN, _RUNNING, _ENDED = TakenState

# operation -> states it is allowed in
SENT_RULES: dict[type, frozenset[SentState]] = {
    op.Attempt: frozenset({_WAITING, _ACCEPTED}),
    op.Postpone: frozenset({_WAITING, _ACCEPTED}),
    op.Move: frozenset({_WAITING}),
    op.MarkAccepted: frozenset({_WAITING, _ACCEPTED}),
    op.MarkConsumed: frozenset({_WAITING, _ACCEPTED, _DONE}),
    op.MarkDone: frozenset({_WAITING, _ACCEPTED, _DEAD}),
    op.MarkDead: frozenset({_WAITING, _ACCEPTED}),
    op.Requeue: frozenset({_DEAD}),
    op.Discard: frozenset({_DONE, _DEAD}),
}
TAKEN_RULES: dict[type, frozenset[TakenState]] = {
    op.Run: frozenset({_TAKEN, _RUNNING}),
    op.Finish: frozenset({_TAKEN, _RUNNING}),
    op.Append: frozenset({_RUNNING}),
    op.Trim: frozenset(TakenState),
}

OPEN_SENT = frozenset({_WAITING, _ACCEPTED})
OPEN_TAKEN = frozenset({_TAKEN, _RUNNING})


def attempt(row: Sent, o: op.Attempt) -> Sent:
    return replace(row, attempts=row.attempts + 1, next_try_ms=o.next_try_ms)


def requeue(row: Sent, o: op.Requeue) -> Sent:
    return replace(
        row,
        state=_WAITING,
        attempts=0,
        why="",
        next_try_ms=o.now_ms,
        expires_ms=o.expires_ms,
        offset=0,
        requeued_ms=o.now_ms,
        requeued_by=o.by,
        keep_until_ms=0,
    )


_NEXT_SENT: dict[type, Callable[[Sent, Any], Sent]] = {
    op.Attempt: attempt,
    op.Postpone: lambda row, o: replace(row, next_try_ms=o.next_try_ms),
    op.Move: lambda row, o: replace(row, peer=o.peer),
    op.MarkAccepted: lambda row, o: replace(row, state=_ACCEPTED, next_try_ms=o.next_try_ms),
    op.MarkConsumed: lambda row, o: replace(row, offset=max(row.offset, o.offset)),
    op.MarkDone: lambda row, o: replace(row, state=_DONE, outcome=o.outcome, why="", keep_until_ms=o.keep_until_ms),
    op.MarkDead: lambda row, o: replace(row, state=_DEAD, why=o.why, keep_until_ms=o.keep_until_ms),
    op.Requeue: requeue,
}


def trim(row: Taken, o: op.Trim) -> Taken:
    return replace(row, first_item=max(row.first_item, min(o.below, row.next_item)))


_NEXT_TAKEN: dict[type, Callable[[Taken, Any], Taken]] = {
    op.Run: lambda row, o: replace(row, state=_RUNNING, attempts=row.attempts + 1),
    op.Finish: lambda row, o: replace(row, state=_ENDED, outcome=o.outcome, keep_until_ms=o.keep_until_ms),
    op.Append: lambda row, o: replace(row, next_item=o.first + len(o.items)),
    op.Trim: trim,
}


def next_sent(row: Sent | None, o: op.SentOperation, limits: Limits) -> Sent:
    """The row after `o`. Raises UsageError if there is none, or its state does not allow it."""
    if row is None:
        raise UsageError(f"The journal holds no message {o.message_id!r}.")
    allow_sent(row, o)
    if isinstance(o, op.MarkDone):
        fits(len(o.outcome), limits, "outcome")
    return _NEXT_SENT[type(o)](row, o)


def allow_sent(row: Sent, o: op.SentOperation | op.Discard) -> None:
    """Raises UsageError if the row's state does not allow `o`."""
    if row.state not in SENT_RULES[type(o)]:
        raise UsageError(f"{type(o).__name__} is not for a message that is {row.state.name}: {row.message_id!r}.")


def next_taken(row: Taken | None, o: op.TakenOperation, limits: Limits) -> Taken:
    """The row after `o`. Raises UsageError if there is none, its state does not allow it, or items leave a gap."""
    if row is None:
        raise UsageError(f"The journal holds no work {o.message_id!r} of that principal.")
    if row.state not in TAKEN_RULES[type(o)]:
        raise UsageError(f"{type(o).__name__} is not for work that is {row.state.name}: {row.message_id!r}.")
    if isinstance(o, op.Finish):
        fits(len(o.outcome), limits, "outcome")
    elif isinstance(o, op.Append):
        if o.first != row.next_item:
            raise UsageError(f"Item {o.first} cannot follow: the next index of {row.message_id!r} is {row.next_item}.")
        for item in o.items:
            fits(len(item), limits, "stream item")
    return _NEXT_TAKEN[type(o)](row, o)


def fits(size: int, limits: Limits, what: str) -> None:
    """Raises UsageError if a body of `size` bytes is too large."""
    if size > limits.body:
        raise UsageError(f"The {what} has {size} bytes; the journal takes at most {limits.body}.")


def check_new(row: Taken, limits: Limits) -> None:
    """Raises UsageError for what cannot be a new row of taken work."""
    if row.next_item or (row.outcome is None) is (row.state is _ENDED):
        raise UsageError("Work is taken without items, and with an outcome if and only if it is DONE.")
    fits(len(row.outcome or b""), limits, "outcome")


def judged(old: Sent | Taken, digest: bytes) -> Verdict:
    """The verdict on a second work with the id or the key of `old` (attack 49: never another work's answer)."""
    return Verdict(Kind.ATTACH if old.digest == digest else Kind.CONFLICT, old)


def refused(body: int, rows: int, limits: Limits) -> Verdict | None:
    """The refusal of a new row of `body` bytes beside `rows` of the same peer, if a bound is passed (attack 47)."""
    if body > limits.body:
        return Verdict(Kind.REFUSED, None, f"The message has {body} bytes; the journal takes at most {limits.body}.")
    if rows >= limits.rows_per_peer:
        return Verdict(Kind.REFUSED, None, f"This peer has {rows} messages in the journal; that is the limit.")
    return None


def counts_sent(row: Sent) -> bool:
    """Whether it counts against its peer's rows: what is done waits for nobody and has an end of its own."""
    return row.state is not _DONE
