"""Counters and the way back."""

from __future__ import annotations

from hermes_peer.journal.counts import Counts
from hermes_peer.journal.values import SentState, TakenState

from .rig import ONE, TWO, a_sent, a_taken


def test_what_counts_and_for_whom() -> None:
    counts = Counts()
    counts.move_sent(None, a_sent())
    counts.move_sent(None, a_sent(state=SentState.DEAD))
    counts.move_taken(None, a_taken(principal=TWO))
    assert counts.peers == {ONE: 2} and counts.principals == {TWO: 1} and counts.unfinished == 2
    counts.move_sent(a_sent(), a_sent(state=SentState.DONE))
    assert counts.peers == {ONE: 1}, "what is done does not count against its receiver"
    counts.move_sent(a_sent(state=SentState.DEAD), a_sent(state=SentState.WAITING, peer=TWO))
    assert counts.peers == {TWO: 1}


def test_back_to_a_mark() -> None:
    counts = Counts()
    counts.move_taken(None, a_taken())
    mark = counts.mark()
    counts.move_taken(a_taken(), a_taken(state=TakenState.DONE))
    counts.move_taken(None, a_taken(principal=TWO))
    counts.back(mark)
    assert counts.taken == {TakenState.ACCEPTED: 1} and counts.principals == {ONE: 1}
    counts.back()
    assert not counts.taken and not counts.principals


def test_a_peer_without_rows_is_forgotten() -> None:
    counts = Counts()
    counts.move_taken(None, a_taken())
    counts.move_taken(a_taken(), None)
    counts.forget()
    assert not counts.principals and not counts.mark()
