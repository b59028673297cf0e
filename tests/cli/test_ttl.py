"""`ttl`: the formula of mission I9."""

from __future__ import annotations

import json

import pytest

from hermes_peer.cli.ttl import ttl_seconds
from hermes_peer.errors import (
    UsageError,
)
from tests.cli.conftest import Place


def test_ttl(quick: Place) -> None:
    done = quick.hp("ttl", "--hop-ms", "300", "--chain", "5", "--task-s", "8")
    assert done.stdout == "61\n"
    assert "2 x 300 ms on the way + 5 agents x 8 s x 1.5 in reserve = 60.6 s, rounded up to 61 s" in done.stderr
    assert json.loads(quick.hp("ttl", "--hop-ms", "0", "--chain", "1", "--task-s", "0.1", "--json").stdout)["ttl"] == 1
    assert "--chain 1 or more" in quick.refusal("ttl", "--hop-ms", "1", "--chain", "0", "--task-s", "8", code=2)
    assert not quick.home.exists()


def test_ttls() -> None:
    assert ttl_seconds(300, 5, 8) == pytest.approx(60.6)
    for bad in ((-1, 1, 1), (1, 0, 1), (1, 1, 0), (float("nan"), 1, 1), (1, 1, float("inf"))):
        with pytest.raises(UsageError):
            ttl_seconds(*bad)
