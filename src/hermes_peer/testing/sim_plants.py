"""Known bugs, to be planted in the core: each one must be found, or the simulator is blind.

Knows: one small method of the core per bug. Refuses to know: how it is found.
Called by: the simulator's command line and its test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PLANTS: dict[str, Callable[[], list[tuple[Any, str, Any]]]] = {}


@contextmanager
def plant(name: str) -> Iterator[None]:
    """The core with this bug in it; with an empty name the core as it is."""
    patches = PLANTS[name]() if name else []
    kept = [(place, what, getattr(place, what)) for place, what, _ in patches]
    try:
        for place, what, bad in patches:
            setattr(place, what, bad)
        yield
    finally:
        for place, what, good in kept:
            setattr(place, what, good)
