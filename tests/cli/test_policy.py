"""`policy check`: allowed or not, by which rule."""

from __future__ import annotations

import json

from tests.cli.conftest import Place


def test_policy_check(place: Place, quick: Place) -> None:
    place.hp("call", "rich", "echo")  # cli has a key here
    quick.home = place.home
    assert quick.hp("policy", "check", "cli", "rich", "echo").stdout == (
        "allowed: policy.toml rule 1 allows cli to call echo of rich.\n"
    )
    done = quick.hp("policy", "check", "planner", "rich", "echo", code=4).stdout
    assert done.startswith("refused: No rule of policy.toml allows planner") and "not trusted here" in done
    found = json.loads(quick.hp("policy", "check", "door:http", "rich", "echo", "--json", code=4).stdout)
    assert found == {"allowed": False, "trusted": True, "rule": None, "reason": found["reason"]}
    key = quick.hp("trust", "show", "cli").stdout.split()[3]
    assert json.loads(quick.hp("policy", "check", key, "rich", "hermes.tap", "--json").stdout)["allowed"] is True
