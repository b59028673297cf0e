"""The port that every registry back end implements.

Knows: three verbs. Refuses to know: trust, signatures, time: a registry introduces, it never gives
authority and never relays (mission M5). Called by: the agent layer (announce), views (find).
"""

from __future__ import annotations

from typing import Protocol


class Registry(Protocol):
    """A place for signed records, one per key. What it answers proves nothing until a `View` has judged it.

    The contract is `hermes_peer.testing.contracts.check_registry`. A back end that cannot be reached raises OSError.
    """

    def announce(self, blob: bytes, fingerprint: str) -> None:
        """Keeps this record in place of an older one of the same key (64 hex digits). Announcing again is renewing:
        there is no lease to lose (case HPC-070). UsageError on a malformed fingerprint or more than 64 KiB.
        """

    def withdraw(self, fingerprint: str) -> None:
        """Forgets the record of this key; nothing happens if there is none."""

    def find(self, name: str | None = None, capability: str | None = None) -> list[bytes]:
        """The records whose agent_id is `name` and whose capabilities hold `capability` (None: any), unverified."""
        ...
