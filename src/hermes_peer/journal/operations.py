"""What can be done to the journal, as values. Several in one commit are stored together or not at all.

Knows: names and arguments. Refuses to know: which are allowed when (rules.py) and how they are stored.
Called by: the agent's durable work; both journals carry them out.
"""

from __future__ import annotations

import msgspec

from hermes_peer.journal.values import Sent, Taken


class Submit(msgspec.Struct, frozen=True):
    """Keep work to be sent. Answers a Verdict; unless it is NEW, what follows in the same commit is not done (its
    answers are None). JournalError if the disk is full.
    """

    sent: Sent


class Attempt(msgspec.Struct, frozen=True):
    """It is being sent: attempts + 1, next look at `next_try_ms`. Answers the attempts."""

    message_id: str
    next_try_ms: int


class Postpone(msgspec.Struct, frozen=True):
    """Next look at `next_try_ms`; no attempt is counted."""

    message_id: str
    next_try_ms: int


class Move(msgspec.Struct, frozen=True):
    """It goes to another `peer` (32 bytes). Only while WAITING: what was accepted stays where it is."""

    message_id: str
    peer: bytes


class MarkAccepted(msgspec.Struct, frozen=True):
    """The receiver has it on its disk. Next look (for its end, or for asking again) at `next_try_ms`."""

    message_id: str
    next_try_ms: int


class MarkConsumed(msgspec.Struct, frozen=True):
    """The first `offset` stream items have been consumed. Never goes back."""

    message_id: str
    offset: int


class MarkDone(msgspec.Struct, frozen=True):
    """The outcome came. Also for a dead letter: a late outcome is better than a guess."""

    message_id: str
    outcome: bytes
    keep_until_ms: int = 0


class MarkDead(msgspec.Struct, frozen=True):
    """Given up; `why` is for the one who reads the dead letters."""

    message_id: str
    why: str
    keep_until_ms: int = 0


class Requeue(msgspec.Struct, frozen=True):
    """A dead letter is sent once more: WAITING, no attempts, a fresh `expires_ms`, the same message id (HPC-016)."""

    message_id: str
    now_ms: int
    by: str
    expires_ms: int


class Discard(msgspec.Struct, frozen=True):
    """Forget a DONE or DEAD row. Answers how many (0 or 1) went; UsageError if it is still open."""

    message_id: str


class Take(msgspec.Struct, frozen=True):
    """Accept work, also such that is about to be run (RUNNING) or has ended already (DONE, with its outcome). Answers a
    Verdict; unless it is NEW, what follows in the same commit is not done (its answers are None). JournalError if the
    disk is full.
    """

    taken: Taken


class Run(msgspec.Struct, frozen=True):
    """A handler is about to be started: RUNNING, attempts + 1. Answers the attempts."""

    principal: bytes
    message_id: str


class Finish(msgspec.Struct, frozen=True):
    """DONE with `outcome`, from ACCEPTED too (expired or cancelled before it ran)."""

    principal: bytes
    message_id: str
    outcome: bytes
    keep_until_ms: int


class Append(msgspec.Struct, frozen=True):
    """The stream items with index `first`, `first` + 1, … of RUNNING work. `first` must be the next index (UsageError).
    Answers the next index after them.
    """

    principal: bytes
    message_id: str
    first: int
    items: tuple[bytes, ...]


class Trim(msgspec.Struct, frozen=True):
    """The items below index `below` are not needed any more. Never goes back."""

    principal: bytes
    message_id: str
    below: int


class Settle(msgspec.Struct, frozen=True):
    """The submitter has the outcomes of these: forget the DONE ones, and their items. Answers how many went."""

    principal: bytes
    message_ids: tuple[str, ...]


class Expire(msgspec.Struct, frozen=True):
    """Forget at most `limit` finished rows of each side whose `keep_until_ms` is set and not after `now_ms`.
    Answers how many went.
    """

    now_ms: int
    limit: int = 1000


SentOperation = Attempt | Postpone | Move | MarkAccepted | MarkConsumed | MarkDone | MarkDead | Requeue
TakenOperation = Run | Finish | Append | Trim
Operation = Submit | Take | Discard | Settle | Expire | SentOperation | TakenOperation
