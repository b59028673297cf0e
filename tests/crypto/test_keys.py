"""Keys: names, weak keys, contexts, and a private key that does not get out."""

from __future__ import annotations

import copy
import hashlib
import pickle
from itertools import product

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from hermes_peer.crypto.keys import SPKI_PREFIX, Context, Identity, check_public, fingerprint, verify

from .rig import A_SEED, A, B, dice

PRIME = 2**255 - 19
ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
OTHER_8 = int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little")
SMALL = (0, 1, PRIME - 1, ORDER_8, OTHER_8)
SIGNS = (0, 1 << 255)
WEAK = [(y | sign).to_bytes(32, "little") for y, sign in product(SMALL, SIGNS)]
LARGE = [(y | sign).to_bytes(32, "little") for y, sign in product(range(PRIME, 2**255), SIGNS)]
# Under the neutral element every signature of this form verifies, for every message.
FORGED = b"\1" + bytes(63)


def test_fingerprint_is_the_hash_of_the_spki_that_openssl_prints() -> None:
    der = Ed25519PublicKey.from_public_bytes(A.public).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert der == A.spki == SPKI_PREFIX + A.public
    assert A.fingerprint == fingerprint(A.public) == hashlib.sha256(der).digest()
    assert A.hex == "a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5"
    for n in (0, 31, 33):
        with pytest.raises(ValueError, match="32 bytes"):
            fingerprint(bytes(n))


@pytest.mark.attack(8)
@pytest.mark.parametrize("raw", WEAK, ids=bytes.hex)
def test_attack_8_small_order_keys_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="weak"):
        check_public(raw)


@pytest.mark.attack(8)
@pytest.mark.parametrize("raw", LARGE, ids=bytes.hex)
def test_attack_8_non_canonical_keys_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="canonical"):
        check_public(raw)


@pytest.mark.attack(8)
def test_attack_8_a_forgery_that_the_library_accepts_is_refused_here() -> None:
    weak = b"\1" + bytes(31)
    Ed25519PublicKey.from_public_bytes(weak).verify(FORGED, Context.MESSAGE.value + b"anything")  # the trap
    assert not verify(Context.MESSAGE, weak, b"anything", FORGED)


def test_sound_keys_pass() -> None:
    draw = dice("keys")
    for _ in range(50):
        check_public(Identity.generate(draw).public)
    for n in (0, 31, 33):
        with pytest.raises(ValueError, match="32 bytes"):
            check_public(bytes(n))


def test_no_context_is_a_prefix_of_another() -> None:
    values = [c.value for c in Context]
    assert not [(x, y) for x in values for y in values if x is not y and y.startswith(x)]
    assert values == [
        b"hermes-link/1 initiator sig\0",
        b"hermes-link/1 responder sig\0",
        b"hermes-msg/1\0",
        b"hermes-record/1\0",
        b"hermes-key/1\0",
    ]


@pytest.mark.parametrize(("signed", "read"), list(product(Context, Context)))
def test_a_signature_holds_under_its_own_context_only(signed: Context, read: Context) -> None:
    assert verify(read, A.public, b"x", A.sign(signed, b"x")) is (signed is read)


def test_only_registered_contexts_sign() -> None:
    for wrong in (b"", b"hermes-msg/1\0", "MESSAGE", None):
        with pytest.raises(TypeError):
            A.sign(wrong, b"x")  # type: ignore[arg-type]


def test_verify_never_raises() -> None:
    good = A.sign(Context.RECORD, b"x")
    assert verify(Context.RECORD, A.public, b"x", good)
    assert not verify(Context.RECORD, B.public, b"x", good)
    assert not verify(Context.RECORD, A.public, b"y", good)
    for wrong in (b"", good[:-1], good + b"\0", bytes(64), b"\xff" * 64):
        assert not verify(Context.RECORD, A.public, b"x", wrong)
    for key in (b"", bytes(31), bytes(33), b"\2" + bytes(31), b"\xff" * 32):
        assert not verify(Context.RECORD, key, b"x", good)
    assert not verify(Context.RECORD, None, b"x", good)  # type: ignore[arg-type]
    assert not verify(Context.RECORD, A.public, None, good)  # type: ignore[arg-type]
    assert not verify(Context.RECORD, A.public, b"x", None)  # type: ignore[arg-type]


def test_pem_goes_round() -> None:
    again = Identity.from_pem(A.pem())
    assert again.public == A.public and again.pem() == A.pem()
    assert A.pem().startswith(b"-----BEGIN PRIVATE KEY-----\n")


def test_other_pem_is_refused_in_a_sentence() -> None:
    pkcs8 = (Encoding.PEM, PrivateFormat.PKCS8)
    locked = Ed25519PrivateKey.generate().private_bytes(*pkcs8, BestAvailableEncryption(b"x"))
    wrong_kind = X25519PrivateKey.generate().private_bytes(*pkcs8, NoEncryption())
    for pem, words in ((locked, "encrypted"), (wrong_kind, "not an Ed25519"), (b"", "PEM"), (b"x" * 99, "PEM")):
        with pytest.raises(ValueError, match=words):
            Identity.from_pem(pem)
    for n in (0, 31, 33):
        with pytest.raises(ValueError, match="32 bytes"):
            Identity.from_seed(bytes(n))


@pytest.mark.attack(52)
def test_attack_52_the_private_key_does_not_get_out() -> None:
    for shown in (repr(A), str(A), f"{A}"):
        assert shown == f"Identity({A.hex})"
        assert A_SEED.hex() not in shown
    for leak in (copy.copy, copy.deepcopy, pickle.dumps, lambda x: x.__getstate__(), lambda x: x.__reduce__()):
        with pytest.raises(TypeError, match="private key"):
            leak(A)
