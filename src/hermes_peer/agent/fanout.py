"""The guard against calling everybody in a loop (mission M15).

Knows: which payload went to which agents lately. Refuses to know: links. Called by: agent, for each call.
"""

from __future__ import annotations

from hermes_peer.errors import UsageError
from hermes_peer.runtime.contact import Contact

MOST = 7
WITHIN_S = 10.0


class Guard:
    """Nothing is counted before so many agents were called at all: most agents never pay for it."""

    __slots__ = ("_targets", "_whom")

    def __init__(self) -> None:
        self._whom: set[bytes] = set()
        self._targets: dict[tuple[str, bytes], dict[bytes, float]] = {}

    def check(self, method: str, payload: bytes, contact: Contact, now: float) -> None:
        """Count one call. Raises UsageError for the eighth distinct agent that gets the same within 10 s."""
        key = contact.peer.fingerprint
        whom = self._whom
        if len(whom) <= 1 and key in whom:
            return
        whom.add(key)
        if method.startswith("hermes."):
            return
        targets = self._targets.setdefault((method, payload), {})
        for other in [other for other, at in targets.items() if now - at > WITHIN_S]:
            del targets[other]
        if key not in targets and len(targets) >= MOST:
            raise UsageError(
                f"{method} with the same payload went to {MOST} agents within {WITHIN_S:g} s: calling everybody in a "
                "loop is refused; publish it once on an event bus instead"
            )
        targets[key] = now
        if len(self._targets) > 4096:
            self._targets = {k: t for k, t in self._targets.items() if now - max(t.values()) <= WITHIN_S}
