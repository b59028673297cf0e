"""A wall clock that is set never makes what is kept go too soon."""

from __future__ import annotations

import pytest

from hermes_peer.agent.durable.clock import Clock
from hermes_peer.agent.durable.rows import now_ms
from tests.agent.durable.rig import Clocks


@pytest.mark.parametrize("jump", [-1e6, -1.0, 0.0, 1.0, 1e6])
def test_jumps(clocks: Clocks, jump: float) -> None:
    steady = [100.0]
    clock = Clock(lambda: steady[0])
    began = now_ms()
    before = clock.keep(1000)
    clocks.wall(jump)
    assert clock.over() < before
    assert clock.keep(1000) - clock.over() >= 1_000_000 - 100
    steady[0] += 2000
    clocks.wall(2000)
    assert (clock.over() >= before) == (jump >= 0) or jump == -1.0
    assert clock.keep(0) >= began + 2_000_000 - 100
