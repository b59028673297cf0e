"""The post-quantum half of suite 1, a port: encapsulation cannot be seeded, so the simulator fakes it.

Knows: sizes, and the library's ML-KEM. Refuses to know: what the shared secret is for.
Called by: the handshake; made by whoever makes links.
"""

from __future__ import annotations

from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

EK_SIZE = 1184
CT_SIZE = 1088
SHARED_SIZE = 32


class Kem(Protocol):
    """A key encapsulation with ML-KEM-768's sizes: key 1,184 bytes, ciphertext 1,088, shared secret 32."""

    def generate(self) -> tuple[bytes, object]:
        """A fresh (encapsulation key, private key); the private key is opaque to the caller."""
        ...

    def encapsulate(self, ek: bytes) -> tuple[bytes, bytes]:
        """(shared, ciphertext) for `ek`. ValueError if `ek` is not a sound key."""
        ...

    def decapsulate(self, private: object, ct: bytes) -> bytes:
        """The shared secret; a forged ciphertext gives a useless one. ValueError on a bad length."""
        ...


class MlKem768:
    """ML-KEM-768 (FIPS 203) of `cryptography`, with its own randomness."""

    __slots__ = ()

    def generate(self) -> tuple[bytes, object]:
        private = MLKEM768PrivateKey.generate()
        return private.public_key().public_bytes_raw(), private

    def encapsulate(self, ek: bytes) -> tuple[bytes, bytes]:
        return MLKEM768PublicKey.from_public_bytes(ek).encapsulate()

    def decapsulate(self, private: object, ct: bytes) -> bytes:
        if not isinstance(private, MLKEM768PrivateKey):
            raise TypeError("not a private key of this KEM")
        return private.decapsulate(ct)
