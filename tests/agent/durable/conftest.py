"""Clocks that can be set."""

from __future__ import annotations

import pytest

from collections.abc import Iterator

from tests.agent.durable.rig import Clocks, quick_retries


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """A second between two tries is 0.05 here; a test of the spacing itself sets its own."""
    with quick_retries(0.05):
        yield


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)
