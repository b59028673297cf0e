"""How many rows there are, by state and by peer, kept beside the rows so that no bound costs a scan.

Knows: additions and how to take them back. Refuses to know: rows beyond their state and peer.
Called by: both stores, with each change that they make; the gauges.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hermes_peer.journal.rules import OPEN_SENT, OPEN_TAKEN, counts_sent
from hermes_peer.journal.values import Sent, SentState, Taken, TakenState


class Counts:
    """Counters with an undo log: `mark()` before a unit, `back(mark)` if it fails, `forget()` after the commit."""

    def __init__(self) -> None:
        self.sent: Counter[SentState] = Counter()
        self.taken: Counter[TakenState] = Counter()
        self.peers: Counter[bytes] = Counter()
        self.principals: Counter[bytes] = Counter()
        self._undo: list[tuple[Counter[Any], Any, int]] = []

    @property
    def unfinished(self) -> int:
        """Rows of both sides whose outcome is still to be written."""
        return sum(self.sent[s] for s in OPEN_SENT) + sum(self.taken[s] for s in OPEN_TAKEN)

    def move_sent(self, before: Sent | None, after: Sent | None) -> None:
        """A row of the submitter's side came (before is None), changed, or went (after is None)."""
        for row, by in ((before, -1), (after, 1)):
            if row is not None:
                self.add(self.sent, row.state, by)
                if counts_sent(row):
                    self.add(self.peers, row.peer, by)

    def move_taken(self, before: Taken | None, after: Taken | None) -> None:
        """The same for the receiver's side."""
        for row, by in ((before, -1), (after, 1)):
            if row is not None:
                self.add(self.taken, row.state, by)
                self.add(self.principals, row.principal, by)

    def add(self, counter: Counter[Any], key: Any, by: int) -> None:
        counter[key] += by
        if not counter[key]:
            del counter[key]
        self._undo.append((counter, key, by))

    def mark(self) -> int:
        return len(self._undo)

    def back(self, mark: int = 0) -> None:
        """Take back what was added since `mark`."""
        while len(self._undo) > mark:
            counter, key, by = self._undo.pop()
            counter[key] -= by
            if not counter[key]:
                del counter[key]

    def forget(self) -> None:
        self._undo.clear()
