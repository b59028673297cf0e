"""What must not live on in a forked child.

Knows: the living objects that hold a one-time key or a counter. Refuses to know: what they are for.
Called by: seal and side when such an object is made; the interpreter in a forked child.

A child that goes on with its parent's key and counter would seal two texts under one nonce, which breaks
AES-GCM for good (SR attack 24). The interpreter's own fork hook costs nothing per record, a getpid() would;
and it reads nothing of the world, so the room stays pure.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Perishable(Protocol):
    """An object that can make itself useless."""

    def perish(self) -> None: ...


_living: WeakSet[Perishable] = WeakSet()


def perish_in_child(thing: Perishable) -> None:
    """Have `thing.perish()` called in every child that this process forks."""
    _living.add(thing)


def _perish_all() -> None:
    for thing in list(_living):
        thing.perish()


if hasattr(os, "register_at_fork"):  # absent on Windows, which has no fork
    os.register_at_fork(after_in_child=_perish_all)
