"""`ping` by name and by address."""

from __future__ import annotations

import json

from tests.cli.conftest import Place


def test_ping(place: Place) -> None:
    assert place.agent is not None
    lines = place.hp("ping", "rich", "-n", "2", "-i", "0").stdout.splitlines()
    assert len(lines) == 4 and lines[1].startswith("ping 1: ") and "2 of 2 answered" in lines[-1]
    done = place.hp("ping", place.agent.address, "-n", "1", "--json").stdout.splitlines()
    assert json.loads(done[-1])["answered"] == 1 and json.loads(done[0])["rtt_ms"] > 0
