"""Busy polling: the loop stays awake for the moment in which the other side is about to answer.

Knows: when something was written and when something came. Refuses to know: what. Called by: pump.

Between two processes of one machine, going to sleep and being woken takes longer than a call itself. Whoever was
answered within `seconds` many times in a row polls so long before it sleeps. One time in vain, as where both share a
CPU, and it must be proven anew, by twice as many. Where answers take longer, nothing ever begins.
"""

from __future__ import annotations

import asyncio
from time import monotonic

PROOF, PROOF_MAX = 32, 4096  # quick answers in a row


class BusyPoll:
    """One for each endpoint; with `seconds` = 0 it does nothing."""

    __slots__ = ("_loop", "_proof", "_quick", "_seconds", "_until", "_wrote_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._proof = PROOF
        self._quick = 0
        self._wrote_at = 0.0  # for the first time since something came; 0: not since
        self._until = 0.0  # the end of the poll that is under way; 0: none is

    def wrote(self) -> None:
        if self._wrote_at:
            return  # what has waited longest is what counts: else a stream of writes would be one long poll
        self._wrote_at = monotonic()  # not the loop's own time, which uvloop rounds to a millisecond
        if self._quick >= self._proof:
            if not self._until:
                self._loop.call_soon(self._turn)
            self._until = self._wrote_at + self._seconds

    def heard(self) -> None:
        if self._wrote_at:
            quick = monotonic() - self._wrote_at < self._seconds
            self._quick = self._quick + 1 if quick else 0
            self._wrote_at = 0.0
            if quick and self._until:
                self._proof = PROOF

    def _turn(self) -> None:
        if self._wrote_at and monotonic() < self._until:
            self._loop.call_soon(self._turn)
            return
        self._until = 0.0
        if self._wrote_at:
            self._quick = 0
            self._proof = min(2 * self._proof, PROOF_MAX)
