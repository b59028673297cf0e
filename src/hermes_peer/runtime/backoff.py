"""When to dial again. Knows attempts and dice; refuses to know sockets and clocks. Called by: contact.

The first attempt after a loss is spread by how many links the lost side held, the later ones double (mission L9,
HPC-009): a lone link is back at once, a thousand of them do not return in the same second.
"""

from __future__ import annotations

import random

FIRST_S = 1.0
LONGEST_S = 30.0
SPREAD_S = 0.005  # per link that the other side held


class Backoff:
    """`attempts` counts failures in a row. It is reset by progress on a link, never by a bare connect (HPC-003)."""

    __slots__ = ("attempts", "crowd")

    def __init__(self) -> None:
        self.attempts = 0
        self.crowd = 1

    def delay(self) -> float:
        """Seconds to wait before the next attempt; counts it."""
        attempt, self.attempts = self.attempts, self.attempts + 1
        if attempt == 0:
            return random.uniform(0, min(FIRST_S, SPREAD_S * self.crowd))
        longest: float = min(LONGEST_S, FIRST_S * 2.0 ** min(attempt - 1, 16))
        return longest * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.attempts = 0
