"""Busy polling: only where answers are quick, and never for longer than it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_peer.runtime import busypoll
from hermes_peer.runtime.busypoll import PROOF, PROOF_MAX, BusyPoll

SECONDS = 0.0002


class Loop:
    """Takes what is due soon, and a clock that moves by a microsecond whenever it is read."""

    def __init__(self) -> None:
        self.now = 1.0
        self.soon: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turns(self) -> int:
        """Run until nothing is due: how many turns that took."""
        count = 0
        while self.soon:
            self.soon.pop(0)()
            count += 1
            assert count < 1000, "it never sleeps"
        return count


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(busypoll, "monotonic", loop.monotonic)
    return loop


def made(loop: Any, seconds: float = SECONDS) -> BusyPoll:
    return BusyPoll(loop, seconds)


def answered(loop: Loop, poll: BusyPoll, after: float, times: int = 1) -> None:
    for _ in range(times):
        poll.wrote()
        loop.now += after
        poll.heard()
        loop.turns()


def test_it_polls_once_answers_have_been_quick_and_stops_with_the_answer(loop: Loop) -> None:
    poll = made(loop)
    answered(loop, poll, SECONDS / 2, PROOF - 1)
    poll.wrote()
    assert not loop.soon
    poll.heard()
    poll.wrote()
    for _ in range(5):
        (turn,) = loop.soon
        loop.soon.clear()
        turn()
    assert loop.soon
    poll.heard()
    assert loop.turns() == 1


def test_one_time_in_vain_and_it_must_be_proven_anew_by_twice_as_many(loop: Loop) -> None:
    poll = made(loop)
    proof = PROOF
    for _ in range(10):
        answered(loop, poll, SECONDS / 2, proof)
        poll.wrote()
        assert 10 < loop.turns() <= SECONDS / 1e-6 + 1
        poll.heard()
        poll.wrote()
        assert not loop.soon
        loop.now += 1
        poll.heard()
        proof = min(2 * proof, PROOF_MAX)


def test_an_answer_found_by_polling_makes_the_proof_short_again(loop: Loop) -> None:
    poll = made(loop)
    answered(loop, poll, SECONDS / 2, PROOF)
    poll.wrote()
    loop.turns()  # in vain
    poll.heard()
    answered(loop, poll, SECONDS / 2, 2 * PROOF + 1)
    poll.wrote()
    loop.turns()  # in vain again, but there was a success between
    poll.heard()
    answered(loop, poll, SECONDS / 2, 2 * PROOF)  # not four times
    poll.wrote()
    assert loop.soon


@pytest.mark.parametrize(("seconds", "after"), [(SECONDS, 0.001), (0.0, 0.0)])
def test_slow_answers_and_zero_seconds_let_the_loop_sleep(loop: Loop, seconds: float, after: float) -> None:
    poll = made(loop, seconds)
    for _ in range(3 * PROOF):
        poll.wrote()
        assert not loop.soon
        loop.now += after
        poll.heard()


def test_many_writes_poll_once(loop: Loop) -> None:
    poll = made(loop)
    answered(loop, poll, SECONDS / 2, PROOF)
    for _ in range(5):
        poll.wrote()
    assert len(loop.soon) == 1


def test_writes_that_go_on_are_no_long_poll(loop: Loop) -> None:
    poll = made(loop)
    answered(loop, poll, SECONDS / 2, PROOF)
    began, turns = loop.now, 0
    poll.wrote()
    while loop.soon:
        loop.soon.pop(0)()
        poll.wrote()
        turns += 1
        assert turns < 1000, "it never sleeps"
    assert turns and loop.now - began < 3 * SECONDS
    loop.now += 1.0
    poll.heard()  # an answer to the first of them, late
    poll.wrote()
    assert not loop.soon


def test_a_call_that_follows_at_once_is_polled_for_too(loop: Loop) -> None:
    poll = made(loop)
    answered(loop, poll, SECONDS / 2, PROOF)
    for _ in range(10):
        poll.wrote()
        (turn,) = loop.soon
        loop.soon.clear()
        turn()
        poll.heard()  # and the next one is written before the loop turns
