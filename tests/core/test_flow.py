"""Credit: absolute limits that never fall, against a naive model; permits in order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.flow import Permits, ReceiveWindow, SendWindow

FAR = 2**62 - 1


@pytest.mark.attack(37)
@given(st.integers(0, FAR), st.lists(st.integers(0, FAR)))
def test_attack_37_a_send_limit_is_the_largest_ever_heard(first: int, limits: list[int]) -> None:
    window, best = SendWindow(first), first
    for limit in limits:
        assert window.raise_to(limit) is (limit > best)
        best = max(best, limit)
        assert window.limit == best
        assert window.room == best - window.sent


@pytest.mark.attack(37)
@given(st.integers(64, 1 << 20), st.lists(st.tuples(st.booleans(), st.integers(1, 1 << 20)), max_size=60))
def test_attack_37_what_is_given_equals_what_was_read_plus_one_window(size: int, steps: list) -> None:
    window = ReceiveWindow(size)
    received = consumed = 0
    limit = size
    for arrives, amount in steps:
        if arrives:
            amount = min(amount, limit - received)
            window.received += amount
            received += amount
        else:
            amount = min(amount, received - consumed)
            consumed += amount
            if window.consume(amount):
                window.renew()
                limit = consumed + size
            assert limit - consumed > size // 2 or limit == consumed + size
        assert (window.received, window.consumed, window.limit) == (received, consumed, limit)
        assert window.consumed <= window.received <= window.limit
        assert window.unread == received - consumed


def test_credit_returns_at_half_a_window_not_before() -> None:
    window = ReceiveWindow(1000)
    window.received = 1000
    assert not window.consume(499)
    assert window.consume(1)
    window.renew()
    assert window.limit == 1500
    assert not window.consume(499)


def test_a_smaller_window_takes_nothing_back() -> None:
    window = ReceiveWindow(1000)
    window.size = 100
    window.renew()
    assert window.limit == 1000


def test_permits_go_round_in_order_of_asking() -> None:
    permits = Permits(2, 5000)
    windows = {n: ReceiveWindow(100) for n in range(1, 6)}
    assert [permits.ask(n, windows[n]) for n in windows] == [True, True, False, False, False]
    assert windows[1].limit == 5100 and windows[3].limit == 100
    assert not permits.ask(1, windows[1])  # it has one
    assert not permits.ask(4, windows[4])  # asking twice is no better place
    assert permits.give_back(4, windows[4]) is None  # it gave up waiting
    assert permits.give_back(1, windows[1]) == 3
    assert windows[3].extra == 5000 and windows[1].extra == 0
    assert permits.give_back(2, windows[2]) == 5
    assert permits.give_back(3, windows[3]) is None
    assert permits.give_back(3, windows[3]) is None  # twice is once
    assert permits.give_back(5, windows[5]) is None
    assert permits.free == 2
