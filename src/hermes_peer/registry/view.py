"""What may be believed of a registry's answer.

Knows: signatures, leases, the highest number seen of each key. Refuses to know: where records are kept, and
how to dial. Called by: the agent layer for every look-up. A registry never gives authority: names come from
trust alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hermes_peer.registry.base import Registry
from hermes_peer.registry.record import Record, check_lease, open_record

CACHE_MAX = 4096


class Granted(Protocol):
    """The part of `access.trust.Grant` that counts here."""

    @property
    def allowed(self) -> bool:
        """Whether the key is trusted at all."""
        ...

    @property
    def names(self) -> frozenset[str]:
        """What it may be called."""
        ...


class Judge(Protocol):
    """`access.trust.Trust`, seen from this room."""

    def grant(self, fingerprint_hex: str, now: float) -> Granted:
        """The answer for one key at `now`."""
        ...


class View:
    """A registry as one home may see it. `now` is always seconds since 1970; a registry's own OSError passes
    through.

    `.refused` lists why records of the last look were left out, for `hermes-peer list` and `doctor`.
    """

    def __init__(self, registry: Registry, trust: Judge) -> None:
        self._registry = registry
        self._trust = trust
        self._opened: dict[bytes, tuple[Record, str]] = {}
        self._highest: dict[str, tuple[int, int]] = {}
        self.refused: list[str] = []

    def lookup(self, name: str, now: float) -> list[Record]:
        """The living instances of this agent, least loaded first."""
        return [each for each in self._judge(self._registry.find(name=name), now) if each.agent_id == name]

    def capability(self, tag: str, now: float) -> list[Record]:
        """The living instances that have this capability, least loaded first."""
        found = self._judge(self._registry.find(capability=tag), now)
        return [each for each in found if tag in each.capabilities]

    def all(self, now: float) -> list[Record]:
        """Every living instance that is trusted, least loaded first."""
        return self._judge(self._registry.find(), now)

    def _judge(self, blobs: Iterable[bytes], now: float) -> list[Record]:
        self.refused = []
        newest: dict[str, Record] = {}
        for blob in blobs:
            try:
                record, fingerprint = self._open(blob)
            except ValueError as error:
                self.refused.append(f"A record was left out: {error}.")
                continue
            grant = self._trust.grant(fingerprint, now)
            if not grant.allowed or record.agent_id not in grant.names:
                as_whom = "is not trusted" if not grant.allowed else "is not granted that name"
                self.refused.append(self._why(record, fingerprint, f"its key {as_whom}"))
                continue
            number = (record.seq, record.issued_ms)
            if number < self._highest.get(fingerprint, (-1, -1)):
                # A registry that serves an older record would send us to an address that is no longer theirs.
                self.refused.append(self._why(record, fingerprint, "a newer one was seen (rolled back?)"))
                continue
            self._highest[fingerprint] = number
            newest[fingerprint] = record
        living = []
        for fingerprint, record in newest.items():
            try:
                check_lease(record, now)
            except ValueError as error:
                self.refused.append(self._why(record, fingerprint, str(error)))
            else:
                living.append((record.load, fingerprint, record))
        return [record for _, _, record in sorted(living, key=lambda each: each[:2])]

    def _open(self, blob: bytes) -> tuple[Record, str]:
        """Verifying costs about 100 µs, a known record nothing."""
        known = self._opened.get(blob)
        if known is None:
            record = open_record(blob)
            known = (record, record.fingerprint)
            if len(self._opened) >= CACHE_MAX:
                self._opened.clear()
            self._opened[blob] = known
        return known

    @staticmethod
    def _why(record: Record, fingerprint: str, why: str) -> str:
        return f"The record of {record.agent_id!a} ({fingerprint[:16]}…) was left out: {why}."
