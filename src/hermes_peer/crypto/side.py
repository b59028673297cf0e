"""What the two sides of a handshake share: one straight path of states, dice, one Diffie-Hellman.

Knows: what every step needs before it may begin. Refuses to know: what the steps are.
Called by: dialler and acceptor.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from hermes_peer.crypto.fork import perish_in_child
from hermes_peer.crypto.kem import Kem
from hermes_peer.crypto.keys import Identity
from hermes_peer.crypto.messages import MAX_CAPS, Body, Offer
from hermes_peer.crypto.outcome import HandshakeError
from hermes_peer.crypto.schedule import Transcript
from hermes_peer.errors import UsageError

Entropy = Callable[[int], bytes]


class State(Enum):
    """START, SENT, DONE in this order and no other; DEAD from any."""

    START = "new"
    SENT = "waiting for the peer"
    DONE = "done"
    DEAD = "dead"


class Side:
    """One side of one handshake. It holds one-time keys, so a forked child must not go on with it."""

    def __init__(
        self,
        identity: Identity,
        offer: Offer,
        caps: bytes | Callable[[bytes], bytes],
        *,
        entropy: Entropy,
        kem: Kem,
        realm: bytes,
        now_ms: int,
        binding: bytes,
    ) -> None:
        offer.check()
        if isinstance(caps, bytes):
            need(len(caps) <= MAX_CAPS, f"caps have at most {MAX_CAPS} bytes")
        need(len(realm) == 32, "a realm has 32 bytes")
        need(0 <= now_ms < 2**64, "the time does not fit 64 bits of milliseconds")
        self.identity = identity
        self.offer = offer
        self._caps = caps
        self._entropy = entropy
        self._kem = kem
        self._realm = realm
        self._now_ms = now_ms
        self._transcript = Transcript(binding)
        self._state = State.START
        perish_in_child(self)

    def perish(self) -> None:
        """Refuse to go on (a forked child)."""
        self._state = State.DEAD

    def _enter(self, state: State) -> None:
        need(self._state is state, f"this handshake is {self._state.value}; the step needs it {state.value}")
        # Dead until the step has ended well: an exception anywhere leaves nothing to go on with.
        self._state = State.DEAD

    def _draw(self) -> bytes:
        data = self._entropy(32)
        need(len(data) == 32, "the entropy source gave the wrong number of bytes")
        return data

    def _body(self, session: bytes) -> Body:
        caps = self._caps if isinstance(self._caps, bytes) else self._caps(session)
        return Body(self.identity.spki, caps, self.offer, session, self._now_ms)


def need(held: bool, otherwise: str) -> None:
    """UsageError(otherwise) unless `held`."""
    if not held:
        raise UsageError(otherwise)


def exchange(private: X25519PrivateKey, share: bytes) -> bytes:
    """X25519. HandshakeError("share") for a point of low order (SR attack 9)."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(share))
    except ValueError:
        raise HandshakeError("share") from None
