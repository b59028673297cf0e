"""The simulator: seeds pass, a seed is a whole world, and every planted bug is found.

Knows: how many seeds are enough. Refuses to know: how bugs are found.
Called by: pytest. `HERMES_PEER_SIM=all` plants every known bug, not only the three that must never be lost.
"""

from __future__ import annotations

import os

import pytest

from hermes_peer.core.node import Node
from hermes_peer.errors import UsageError
from hermes_peer.testing import sim_plants
from hermes_peer.testing.sim_main import main
from hermes_peer.testing.sim_plants import PLANTS, plant
from hermes_peer.testing.simulator import simulate

MUST = ("replay mark off by one", "credit returned twice", "missing fence")
ALL = tuple(PLANTS) if os.environ.get("HERMES_PEER_SIM") == "all" else MUST


def test_five_hundred_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--seeds", "500", "--jobs", "2"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "500 seeds" in told and "no violation" in told


def test_a_seed_is_a_whole_world() -> None:
    one, two, other = simulate(3), simulate(3), simulate(4)
    assert one == two
    assert one.digest != other.digest
    assert one.plan != other.plan


def test_single_decisions_of_a_plan_can_be_changed() -> None:
    report = simulate(5, faults=(), strikes=0, calls=3)
    assert not report.violation and not report.faults
    assert sum(report.outcomes.values()) >= 3


@pytest.mark.parametrize("name", ALL)
def test_a_planted_bug_is_found_within_two_thousand_seeds(name: str) -> None:
    with plant(name):
        assert any(simulate(seed).violation for seed in range(2000))


def test_a_planted_bug_leaves_no_trace() -> None:
    before = Node._fence
    with plant("missing fence"):
        assert Node._fence is not before
    assert Node._fence is before


def test_every_planted_bug_fits_the_core() -> None:
    for name in PLANTS:
        with plant(name):
            pass


def test_a_plant_that_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sim_plants.PLANTS, "stale", [(Node, "_fence", "no such line", "")])
    with pytest.raises(UsageError, match="must follow the core"), plant("stale"):
        pass


def test_a_violation_is_reported_with_its_plan_and_ends_in_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--seeds", "300", "--fault", "counter not raised"])
    told = capsys.readouterr().out
    assert code == 1
    assert "a nonce twice" in told and "Plan(nodes=" in told and "--start" in told
