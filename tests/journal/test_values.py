"""The values: frozen, and their defaults are those of the protocol."""

from __future__ import annotations

import pytest

from hermes_peer.journal.values import Limits, SentState, TakenState

from .rig import a_sent


def test_rows_are_frozen() -> None:
    with pytest.raises(AttributeError):
        a_sent().attempts = 2  # type: ignore[misc]


def test_the_bounds_of_the_protocol() -> None:
    limits = Limits()
    assert (limits.size, limits.rows_per_peer, limits.body) == (1 << 30, 10_000, 1 << 20)


def test_states_are_stored_as_these_numbers() -> None:
    """They are on disks: a new state gets a new number."""
    assert [*map(int, SentState)] == [1, 2, 3, 4] and [*map(int, TakenState)] == [1, 2, 3]
