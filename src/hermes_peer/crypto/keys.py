"""Node keys: one Ed25519 key is one node, its SHA-256 is the node's name to the protocol.

Knows: fingerprints, PEM, which public keys are traps, which contexts a node key may sign under.
Refuses to know: files, passphrases, trust. Called by: the handshake, access, registry, agent, cli.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum
from typing import NoReturn, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")
SIGNATURE_SIZE = 64

_P = 2**255 - 19
_Y_OF_ORDER_8 = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
# The y of every point whose order divides 8. Under such a key anybody can make signatures that verify.
_SMALL_ORDER = frozenset({0, 1, _P - 1, _Y_OF_ORDER_8, _P - _Y_OF_ORDER_8})


class Context(Enum):
    """Everything a node key ever signs begins with one of these (spec: handshake, signature contexts).

    No value is a prefix of another, so no signature can pass for another kind. Raw bytes are never signed.
    """

    DIALLER_LINK = b"hermes-link/1 initiator sig\0"
    ACCEPTOR_LINK = b"hermes-link/1 responder sig\0"
    MESSAGE = b"hermes-msg/1\0"
    RECORD = b"hermes-record/1\0"
    KEY_CHANGE = b"hermes-key/1\0"


def check_public(raw: bytes) -> None:
    """Raise ValueError, in a sentence for people, unless `raw` (32 bytes) is a sound Ed25519 public key.

    Refused: wrong length, y not below p, small order, with either sign bit (SR section 1, attack 8).
    """
    if len(raw) != 32:
        raise ValueError(f"an Ed25519 public key has 32 bytes, this has {len(raw)}")
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= _P:
        raise ValueError("this Ed25519 public key is not in its one canonical form")
    if y in _SMALL_ORDER:
        raise ValueError("this Ed25519 public key is weak: anybody can sign for it")


def fingerprint(public: bytes) -> bytes:
    """The 32-byte SHA-256 of the key's SubjectPublicKeyInfo. ValueError unless `public` has 32 bytes."""
    if len(public) != 32:
        raise ValueError(f"an Ed25519 public key has 32 bytes, this has {len(public)}")
    return hashlib.sha256(SPKI_PREFIX + public).digest()


def verify(context: Context, public: bytes, data: bytes, signature: bytes) -> bool:
    """True if the holder of `public` signed `data` under `context`. Never raises; weak keys prove nothing."""
    try:
        check_public(public)
        Ed25519PublicKey.from_public_bytes(public).verify(signature, context.value + data)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


class Identity:
    """A node's private key. It shows only its fingerprint and can be neither copied nor pickled."""

    __slots__ = ("_key", "fingerprint", "hex", "public", "spki")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public: bytes = key.public_key().public_bytes_raw()
        self.spki: bytes = SPKI_PREFIX + self.public
        self.fingerprint: bytes = fingerprint(self.public)
        self.hex: str = self.fingerprint.hex()

    @classmethod
    def generate(cls, entropy: Callable[[int], bytes]) -> Self:
        """A new key from 32 bytes of `entropy`."""
        return cls.from_seed(entropy(32))

    @classmethod
    def from_seed(cls, seed: bytes) -> Self:
        """The key that RFC 8032 makes of a 32-byte seed. ValueError on another length."""
        if len(seed) != 32:
            raise ValueError(f"an Ed25519 seed has 32 bytes, this has {len(seed)}")
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """The key in an unencrypted PKCS#8 PEM. ValueError, in a sentence for people, on anything else."""
        try:
            key = load_pem_private_key(pem, password=None)
        except TypeError:
            raise ValueError("this PEM key is encrypted; Hermes reads unencrypted Ed25519 keys") from None
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError("this is not a PEM private key that can be read") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("this PEM key is not an Ed25519 key")
        return cls(key)

    def pem(self) -> bytes:
        """The private key as unencrypted PKCS#8 PEM: for a file of mode 0600, nothing else."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, context: Context, data: bytes) -> bytes:
        """The 64-byte signature of `data` under `context`. TypeError if `context` is not of the registry."""
        if not isinstance(context, Context):
            raise TypeError("a node key signs only under a Context")
        return self._key.sign(context.value + data)

    def __repr__(self) -> str:
        return f"Identity({self.hex})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a private key is neither copied nor pickled")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse  # copy and pickle both come this way
