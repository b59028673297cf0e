"""How many HELLOs that are for us one address may spend our key work on (attack 16).

Knows: tokens and time, which is an argument. Refuses to know: links, what an address is, clocks.
Called by: node, once the `to` of a HELLO has matched and before any Diffie-Hellman.
"""

from __future__ import annotations

RATE = 50.0  # a second
BURST = 500.0
ADDRESSES = 4096  # of which is known what they have spent: the longest quiet is forgotten first


class Bucket:
    """One bucket of tokens for each address; one that nobody asked about is full."""

    __slots__ = ("_burst", "_left", "_most", "_rate")

    def __init__(self, rate: float = RATE, burst: float = BURST, most: int = ADDRESSES) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._left: dict[str, tuple[float, float]] = {}  # address: (tokens, as of when); the longest quiet first

    def take(self, address: str, now: float) -> bool:
        """Whether there was a token left for `address`."""
        left, then = self._left.pop(address, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - then) * self._rate)
        taken = left >= 1.0
        self._left[address] = left - 1.0 if taken else left, now
        if len(self._left) > self._most:
            del self._left[next(iter(self._left))]
        return taken
