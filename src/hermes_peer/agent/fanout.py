"""The guard against calling everybody in a loop (mission M15).

Knows: which payload went to which agents lately. Refuses to know: links. Called by: agent, for each call.
"""

from __future__ import annotations

from hermes_peer.errors import UsageError
from hermes_peer.runtime.contact import Contact

MOST = 7
WITHIN_S = 10.0
KEPT = 16_384  # calls remembered at the most, in each of two halves

_Target = frozenset[str] | bytes
_Name = tuple[str, int]  # the method and the payload's hash: the payload itself is not kept


class Guard:
    """Two generations of notes, so that forgetting costs nothing; and no more than the last call while there is one
    target, as for most agents there is."""

    __slots__ = ("_last", "_new", "_old", "_only", "_since")

    def __init__(self) -> None:
        self._only: _Target | None = b""  # the one agent called so far; None: there were several
        self._last: tuple[str, bytes, float] | None = None
        self._since = 0.0
        self._new: dict[_Name, dict[_Target, float]] = {}
        self._old: dict[_Name, dict[_Target, float]] = {}

    def check(self, method: str, payload: bytes, contact: Contact, now: float) -> None:
        """Count one call. Raises UsageError for the eighth distinct agent that gets the same within 10 s."""
        # By the name that was granted: instances of one name share its load, and are one agent.
        peer = contact.peer
        key = peer.names or peer.fingerprint
        if self._only == key:
            self._last = method, payload, now
            return
        if self._only == b"":
            self._only, self._last = key, (method, payload, now)
            return
        if self._only is not None:
            first, self._only = self._only, None
            if self._last is not None:
                self._count(self._last[0], self._last[1], first, self._last[2])
        self._count(method, payload, key, now)

    def _count(self, method: str, payload: bytes, key: _Target, now: float) -> None:
        if method.startswith("hermes."):
            return
        if now - self._since > WITHIN_S or len(self._new) >= KEPT:
            self._old, self._new, self._since = self._new, {}, now
        name = method, hash(payload)
        targets = self._new.get(name)
        if targets is None:
            targets = self._new[name] = self._old.get(name) or {}
        if key not in targets and len(targets) >= MOST:
            for other in [other for other, at in targets.items() if now - at > WITHIN_S]:
                del targets[other]
            if len(targets) >= MOST:
                raise UsageError(
                    f"{method} with the same payload went to {MOST} agents within {WITHIN_S:g} s: calling everybody "
                    "in a loop is refused; publish it once on an event bus instead"
                )
        targets[key] = now
