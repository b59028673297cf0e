"""Clocks that can be set."""

from __future__ import annotations

import pytest

from tests.agent.durable.rig import Clocks


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)
