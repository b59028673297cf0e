"""What moves nothing is paid for, and forgiven with time."""

from __future__ import annotations

import pytest

from hermes_peer.core.budget import BUDGET, REFILL, STREAM_DONE, Abuse, Budget


def test_the_budget_is_spent_exactly() -> None:
    budget = Budget()
    for _ in range(int(BUDGET)):
        budget.charge(1.0, 5.0)
    with pytest.raises(Abuse):
        budget.charge(1.0, 5.0)


def test_it_comes_back_with_time_and_never_more_than_it_was() -> None:
    budget = Budget()
    budget.charge(BUDGET, 0.0)
    with pytest.raises(Abuse):
        budget.charge(2 * REFILL + 1.0, 2.0)
    budget = Budget()
    budget.charge(BUDGET, 0.0)
    budget.charge(2 * REFILL, 2.0)
    budget.charge(BUDGET, 1e6)
    with pytest.raises(Abuse):
        budget.charge(1.0, 1e6)


def test_an_honest_heartbeat_is_free() -> None:
    budget = Budget()
    for second in range(100_000):
        budget.charge(10.0, float(second))


def test_what_honest_streams_earn_pays_for_what_crosses_their_end() -> None:
    budget = Budget()
    for _ in range(50_000):
        budget.earn(STREAM_DONE)
        for _ in range(int(STREAM_DONE)):
            budget.charge(1.0, 5.0)
    budget.earn(100 * STREAM_DONE)  # and it saves nothing up
    budget.charge(BUDGET, 5.0)
    with pytest.raises(Abuse):
        budget.charge(1.0, 5.0)
