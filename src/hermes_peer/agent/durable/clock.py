"""Unix time for what outlives the process, safe against a wall clock that is set while it runs.

Knows: two clocks. Refuses to know: what is kept. Called by: inbox, store.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes_peer.agent.durable.rows import now_ms


class Clock:
    """Where the two disagree, what is kept is kept for longer: an outcome that is gone too soon would run again."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._began = now_ms() - int(time() * 1000)

    def _steady(self) -> int:
        return self._began + int(self._time() * 1000)

    def keep(self, seconds: float) -> int:
        """Unix ms until which something is kept."""
        return max(now_ms(), self._steady()) + int(seconds * 1000)

    def over(self) -> int:
        """Unix ms; what was kept until then has been kept long enough."""
        return min(now_ms(), self._steady())
