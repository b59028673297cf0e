"""How a handshake ends: with four secrets, or with one word for the log.

Knows: what each side may know and do afterwards. Refuses to know: how it came to that.
Called by: every file of the handshake, and the link that acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from hermes_peer.errors import HermesError


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished handshake, seen from one side. The link is up once the peer's first record has opened."""

    peer_public: bytes
    peer_fingerprint: bytes
    peer_caps: bytes
    session: bytes
    resumed: bool
    version: int
    suite: int
    peer_time_ms: int
    send_secret: bytes = field(repr=False)
    receive_secret: bytes = field(repr=False)
    psk: bytes = field(repr=False)
    exporter: bytes = field(repr=False)


class Refuse(IntEnum):
    """Why an acceptor may answer in clear, to a dialler whose `to` matched."""

    VERSION = 1
    SUITE = 2


class HandshakeError(HermesError):
    """The handshake ends here: the link closes without a byte, unless `refuse` or `proven` says otherwise.

    `reason` is a short word for the log. `refuse` is set if a clear REFUSE may be sent. `proven` is true if
    the peer proved its key all the same; then a sealed CLOSE may be sent under `outcome`.
    """

    def __init__(
        self,
        reason: str,
        *,
        refuse: Refuse | None = None,
        proven: bool = False,
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(f"handshake failed: {reason}")
        self.reason = reason
        self.refuse = refuse
        self.proven = proven
        self.outcome = outcome
