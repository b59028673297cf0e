"""Whether a call that failed is made again (mission M9).

Knows: which failures say that nothing ran, the pauses. Refuses to know: streams, links. Called by: agent, once a call
has failed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_peer.errors import HermesError, SessionLost, Unavailable

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life
    from hermes_peer.runtime.contact import Contact
    from hermes_peer.wire.messages import Envelope

RETRY_S = (1.0, 2.0, 4.0)


class Again:
    """What became of one call so far. `harmless`: its owner said that it may run twice."""

    __slots__ = ("envelope", "harmless", "life", "lost", "refused", "target", "until")

    def __init__(self, life: Life, target: str, envelope: Envelope, until: float, harmless: bool = False) -> None:
        self.life = life
        self.target = target
        self.envelope = envelope
        self.until = until
        self.harmless = harmless
        self.lost = 0  # sessions
        self.refused: set[Contact] = set()  # instances that drain

    async def wait(self, error: HermesError, contact: Contact) -> bool:
        """Until the call may be made again, with one attempt more and the ttl that is left; False: it may not."""
        pause = self._pause(error, contact)
        life = self.life
        if pause is None or life.loop.time() + pause >= self.until:
            return False
        if pause:
            await asyncio.sleep(pause)
        if life.agent._life is not life:
            return False
        self.envelope.attempt += 1
        self.envelope.ttl = max(0.001, self.until - life.loop.time())
        return True

    def _pause(self, error: HermesError, contact: Contact) -> float | None:
        if isinstance(error, Unavailable):
            # It refused because it drains: another instance may take it, at once. Each is asked but once.
            self.refused.add(contact)
            life = self.life
            return (
                0.0 if error.reason == "draining" and life.directory.other(self.target, contact, self.refused) else None
            )
        if not isinstance(error, SessionLost) or not (error.ran == "no" or self.harmless):
            return None
        self.lost += 1
        return RETRY_S[self.lost - 1] if self.lost <= len(RETRY_S) else None
