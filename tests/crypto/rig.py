"""Two honest sides with loaded dice.

Knows: how tests make and run a handshake. Refuses to know: attacks.
Called by: the tests of this room.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from hermes_peer.crypto.handshake import Acceptor, Dialler, HandshakeError, Offer, Outcome, Resumable
from hermes_peer.crypto.kem import MlKem768
from hermes_peer.crypto.keys import Identity

TWO = Offer(suites=(2,))
ONE = Offer(suites=(1,))
BOTH = Offer(versions=(1, 2), suites=(1, 2))


def run_of(first: int, n: int = 32) -> bytes:
    return bytes(range(first, first + n))


A_SEED, B_SEED, C_SEED = run_of(0x00), run_of(0x20), run_of(0x33)
A, B, C = (Identity.from_seed(seed) for seed in (A_SEED, B_SEED, C_SEED))
SESSION = run_of(0xC0, 16)


def dice(label: str) -> Callable[[int], bytes]:
    """Endless bytes that depend on `label` alone."""
    count = 0

    def draw(n: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_256(f"{label} {count}".encode()).digest(n)

    return draw


def script(*pieces: bytes) -> Callable[[int], bytes]:
    """Exactly these bytes, in this order."""
    rest: Iterable[bytes] = iter(pieces)
    return lambda n: next(iter(rest))


class SeededKem:
    """ML-KEM with a fixed key and, as its sender, a fixed ciphertext."""

    def __init__(self, seed: bytes = bytes(range(64)), ct: bytes | None = None) -> None:
        self.private = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.ek = self.private.public_key().public_bytes_raw()
        self.shared, self.ct = (b"", ct) if ct else self.private.public_key().encapsulate()
        if ct:
            self.shared = self.private.decapsulate(ct)

    def generate(self) -> tuple[bytes, object]:
        return self.ek, self.private

    def encapsulate(self, ek: bytes) -> tuple[bytes, bytes]:
        return (self.shared, self.ct) if ek == self.ek else MlKem768().encapsulate(ek)

    def decapsulate(self, private: object, ct: bytes) -> bytes:
        return MlKem768().decapsulate(private, ct)


KEM = SeededKem()


def dialler(offer: Offer = TWO, who: Identity = A, peer: Identity = B, label: str = "d", **more: Any) -> Dialler:
    more = {"entropy": dice(label), "kem": KEM, "now_ms": 1, "caps": b"{}"} | more
    return Dialler(who, peer.fingerprint, offer, more.pop("caps"), **more)


def acceptor(offer: Offer = TWO, who: Identity = B, label: str = "a", **more: Any) -> Acceptor:
    more = {"entropy": dice(label), "kem": KEM, "now_ms": 2, "session": SESSION} | more
    return Acceptor(who, offer, **more)


def nothing(_: bytes) -> None:
    return None


def keeps(rid: bytes, *kept: bytes) -> Callable[[bytes], Resumable | None]:
    """A `find_psk` that knows one resume id."""
    return lambda seen: Resumable(*kept) if seen == rid else None


def shake(d: Dialler, a: Acceptor, find: Any = nothing) -> tuple[Outcome, Outcome]:
    """Runs both to the end: (the dialler's outcome, the acceptor's)."""
    theirs = a.ready(d.welcome(a.hello(d.hello(), find)))
    assert d.outcome is not None
    return d.outcome, theirs


def refused(step: Callable[[], object], *reasons: str, refuse: object = None, proven: bool = False) -> HandshakeError:
    """`step` must raise HandshakeError for one of `reasons` (any, if none are given)."""
    with pytest.raises(HandshakeError) as caught:
        step()
    error = caught.value
    assert not reasons or error.reason in reasons, error.reason
    assert error.refuse == refuse
    assert error.proven is proven
    return error


def flips(data: bytes, step: int = 1) -> Iterable[tuple[int, bytes]]:
    """Every `step`-th bit of `data` flipped, one at a time."""
    for bit in range(0, len(data) * 8, step):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(wrong)
