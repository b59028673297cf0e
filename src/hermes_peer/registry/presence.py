"""Staying listed: one node's record, announced again and again.

Knows: when the next announcement is due. Refuses to know: clocks, tasks and threads; its caller has the
timer. Called by: the agent layer, as `delay = presence.renew(now)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from hermes_peer.registry.base import Registry
from hermes_peer.registry.record import RENEW, Record, next_seq, sign_record

if TYPE_CHECKING:
    from hermes_peer.crypto.keys import Identity


class Presence:
    """Each renewal is a whole registration, so a registry that lost everything has us back at the next one
    (HPC-070).

    `describe()` gives the present record; key, seq and issued_ms are filled in here. `.problem` says why the last
    announcement failed, or is None: it changes once at the loss and once at the recovery, which is what to log.
    """

    def __init__(self, registry: Registry, identity: Identity, describe: Callable[[], Record]) -> None:
        self._registry = registry
        self._identity = identity
        self._describe = describe
        self._seq = 0
        self.problem: str | None = None

    def renew(self, now: float) -> float:
        """Announces the record as of `now` (seconds since 1970); returns in how many seconds to do it again.

        A third of the lease, at most 20 s; after a failure (OSError) a tenth. Raises UsageError if the record is
        wrong.
        """
        self._seq = next_seq(self._seq, now)
        record = msgspec.structs.replace(
            self._describe(), key=self._identity.public.hex(), seq=self._seq, issued_ms=int(now * 1000)
        )
        blob = sign_record(self._identity, record)
        try:
            self._registry.announce(blob, self._identity.hex)
        except OSError as error:
            self.problem = f"The registry does not take our record ({error.strerror or error})."
            return min(RENEW, record.lease_s / 3) / 10
        self.problem = None
        return min(RENEW, record.lease_s / 3)

    def withdraw(self) -> None:
        """Takes the record back; a registry that cannot be reached forgets us when the lease ends."""
        try:
            self._registry.withdraw(self._identity.hex)
        except OSError as error:
            self.problem = f"The registry does not answer ({error.strerror or error})."
