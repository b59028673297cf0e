"""runtime/backoff: when to dial again."""

from __future__ import annotations

import random

import pytest

from hermes_peer.runtime.backoff import FIRST_S, LONGEST_S, Backoff


@pytest.mark.case("HPC-009")
def test_a_crowd_spreads_and_a_lone_link_is_back_at_once() -> None:
    random.seed(7)
    lone = [Backoff().delay() for _ in range(1000)]
    assert max(lone) <= 0.005
    times = []
    for _ in range(200):
        each = Backoff()
        each.crowd = 200
        times.append(each.delay())
    windows = [sum(start <= t < start + 0.1 for t in times) for start in (n / 50 for n in range(50))]
    assert max(windows) <= 40  # a fifth of a random crowd at the worst; a tenth on average
    assert sum(windows) / len(windows) < 24
    assert 0.7 < max(times) <= FIRST_S


def test_delays_grow_with_jitter_up_to_a_cap() -> None:
    backoff = Backoff()
    delays = [backoff.delay() for _ in range(1100)]
    for attempt, delay in enumerate(delays[1:8]):
        longest = min(LONGEST_S, 2.0**attempt)
        assert longest / 2 <= delay <= longest
    assert all(LONGEST_S / 2 <= delay <= LONGEST_S for delay in delays[6:])
    assert len(set(delays[6:])) > 900
    backoff.reset()
    assert backoff.attempts == 0 and backoff.delay() <= 0.005
