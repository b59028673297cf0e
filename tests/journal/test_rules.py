"""The transition tables, over their full product."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_peer.errors import UsageError
from hermes_peer.journal import rules
from hermes_peer.journal.values import Kind, Limits, SentState, TakenState

from .rig import ONE, a_sent, a_taken, op

SENT: dict[type, Any] = {
    op.Attempt: op.Attempt("m-1", 5),
    op.Postpone: op.Postpone("m-1", 5),
    op.Move: op.Move("m-1", ONE),
    op.MarkAccepted: op.MarkAccepted("m-1", 5),
    op.MarkConsumed: op.MarkConsumed("m-1", 3),
    op.MarkDone: op.MarkDone("m-1", b"out"),
    op.MarkDead: op.MarkDead("m-1", "why"),
    op.Requeue: op.Requeue("m-1", 9, "me", 99),
}
TAKEN: dict[type, Any] = {
    op.Run: op.Run(ONE, "m-1"),
    op.Finish: op.Finish(ONE, "m-1", b"out", 9),
    op.Append: op.Append(ONE, "m-1", 0, (b"a",)),
    op.Trim: op.Trim(ONE, "m-1", 1),
}
W, A, D, X = SentState
TO_SENT = {  # (operation, from) -> to; what is not here is refused
    **{(o, s): s for o in (op.Attempt, op.Postpone) for s in (W, A)},
    **{(op.MarkConsumed, s): s for s in (W, A, D)},
    (op.Move, W): W,
    (op.MarkAccepted, W): A,
    (op.MarkAccepted, A): A,
    **{(op.MarkDone, s): D for s in (W, A, X)},
    **{(op.MarkDead, s): X for s in (W, A)},
    (op.Requeue, X): W,
}
T, R, E = TakenState
TO_TAKEN = {
    (op.Run, T): R,
    (op.Run, R): R,
    (op.Finish, T): E,
    (op.Finish, R): E,
    (op.Append, R): R,
    **{(op.Trim, s): s for s in (T, R, E)},
}


@pytest.mark.parametrize("state", SentState)
@pytest.mark.parametrize("kind", SENT)
def test_the_submitter_s_table(kind: type, state: SentState) -> None:
    row = a_sent(state=state)
    if (kind, state) in TO_SENT:
        assert rules.next_sent(row, SENT[kind], Limits()).state is TO_SENT[kind, state]
    else:
        with pytest.raises(UsageError, match=state.name):
            rules.next_sent(row, SENT[kind], Limits())


@pytest.mark.parametrize("state", TakenState)
@pytest.mark.parametrize("kind", TAKEN)
def test_the_receiver_s_table(kind: type, state: TakenState) -> None:
    row = a_taken(state=state)
    if (kind, state) in TO_TAKEN:
        assert rules.next_taken(row, TAKEN[kind], Limits()).state is TO_TAKEN[kind, state]
    else:
        with pytest.raises(UsageError, match=state.name):
            rules.next_taken(row, TAKEN[kind], Limits())


def test_only_what_is_over_is_discarded() -> None:
    for state in (D, X):
        rules.allow_sent(a_sent(state=state), op.Discard("m-1"))
    for state in (W, A):
        with pytest.raises(UsageError):
            rules.allow_sent(a_sent(state=state), op.Discard("m-1"))


def test_a_row_that_is_not_there_is_the_caller_s_mistake() -> None:
    with pytest.raises(UsageError, match="no message 'm-1'"):
        rules.next_sent(None, SENT[op.Attempt], Limits())
    with pytest.raises(UsageError, match="no work 'm-1'"):
        rules.next_taken(None, TAKEN[op.Run], Limits())


def test_bounds_are_exact() -> None:
    limits = Limits(body=10, rows_per_peer=2)
    assert rules.refused(10, 1, limits) is None
    for body, rows in ((11, 1), (10, 2)):
        verdict = rules.refused(body, rows, limits)
        assert verdict and verdict.kind is Kind.REFUSED and verdict.why
    rules.fits(10, limits, "outcome")
    with pytest.raises(UsageError, match="11 bytes"):
        rules.fits(11, limits, "outcome")


def test_trimming_stays_within_what_there_is() -> None:
    row = a_taken(first_item=2, next_item=5)
    firsts = [rules.next_taken(row, op.Trim(ONE, "m-1", below), Limits()).first_item for below in (0, 2, 3, 5, 9)]
    assert firsts == [2, 2, 3, 5, 5]
