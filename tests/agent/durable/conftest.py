"""Clocks that can be set, and a second between two tries that is 0.05."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.durable.rig import Clocks, quick_retries


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """A test of the spacing itself sets its own."""
    with quick_retries(0.05):
        yield


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)
