"""When to ping, when to give up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.heartbeat import BUSY_MISSES, IDLE_MISSES, Heartbeat


@given(st.floats(0, 1, exclude_max=True), st.booleans())
def test_jitter_stays_within_a_fifth(jitter: float, busy: bool) -> None:
    beat = Heartbeat(15.0, 5.0, 100.0)
    beat.busy = busy
    beat.ping(100.0, jitter)
    period = 5.0 if busy else 15.0
    assert 0.8 * period <= beat.next_ping - 100.0 <= 1.2 * period + 1e-9


@pytest.mark.attack(17)
@pytest.mark.parametrize(("busy", "patience"), [(False, 15.0 * IDLE_MISSES), (True, 5.0 * BUSY_MISSES)])
def test_attack_17_silence_is_death_after_the_patience(busy: bool, patience: float) -> None:
    beat = Heartbeat(15.0, 5.0, 0.0)
    beat.set_busy(busy, 0.0)
    assert beat.dead_at == patience
    beat.last_in = 10.0
    assert beat.dead_at == 10.0 + patience


def test_one_way_loss_shows_in_pings_that_nobody_answers() -> None:
    beat = Heartbeat(15.0, 5.0, 0.0)
    beat.set_busy(True, 0.0)
    for now in range(0, 200, 5):
        beat.ping(float(now), 0.5)
        beat.last_in = float(now)  # their bytes do arrive
    assert beat.dead_at == 50.0
    beat.pong(1, 195.0)  # any answer will do
    assert beat.dead_at == 195.0 + 25.0


def test_time_in_which_we_were_stopped_does_not_count() -> None:
    beat = Heartbeat(15.0, 5.0, 0.0)
    beat.ping(0.0, 0.5)
    beat.forgive(100.0)
    assert beat.dead_at == 145.0
    beat.last_in = 1000.0
    assert beat.dead_at == 100.0 + 90.0


def test_work_brings_the_next_ping_nearer() -> None:
    beat = Heartbeat(15.0, 5.0, 0.0)
    beat.ping(0.0, 0.5)
    assert beat.next_ping == 15.0
    beat.set_busy(True, 1.0)
    assert beat.next_ping == 6.0
    assert beat.idle_since == 1.0
    beat.set_busy(True, 3.0)  # nothing new
    assert beat.next_ping == 6.0 and beat.idle_since == 1.0
    beat.set_busy(False, 4.0)
    assert beat.idle_since == 4.0


def test_only_the_newest_answer_measures_the_way() -> None:
    beat = Heartbeat(15.0, 5.0, 0.0)
    one = beat.ping(0.0, 0.5)
    two = beat.ping(5.0, 0.5)
    beat.pong(one, 5.1)
    assert beat.rtt == 0.0 and beat.waiting is None
    beat.pong(two, 5.2)
    assert beat.rtt == pytest.approx(0.2)
    beat.ping(10.0, 0.5)
    beat.pong(3, 10.6)
    assert beat.rtt == pytest.approx(0.75 * 0.2 + 0.25 * 0.6)
    beat.pong(77, 11.0)  # a number that we never sent
    assert beat.rtt == pytest.approx(0.3)
