"""The KEM port and its real implementation."""

from __future__ import annotations

import hashlib

import pytest

from hermes_peer.crypto.kem import CT_SIZE, EK_SIZE, SHARED_SIZE, Kem, MlKem768

from .rig import SeededKem


def test_both_ends_share_a_secret() -> None:
    kem: Kem = MlKem768()
    ek, private = kem.generate()
    shared, ct = kem.encapsulate(ek)
    assert (len(ek), len(ct), len(shared)) == (EK_SIZE, CT_SIZE, SHARED_SIZE)
    assert kem.decapsulate(private, ct) == shared
    assert kem.decapsulate(private, bytes(CT_SIZE)) != shared


def test_key_from_a_seed_is_the_known_one() -> None:
    known = "0b7934c83125c788995e2ba6bd761e33046b3e40571be53e023309a29f398cc9"
    assert hashlib.sha256(SeededKem().ek).hexdigest() == known


@pytest.mark.attack(9)
def test_attack_9_bad_keys_and_ciphertexts_are_value_errors() -> None:
    kem = MlKem768()
    ek, private = kem.generate()
    for bad in (b"", ek[:-1], ek + b"\0", b"\xff" * EK_SIZE):
        with pytest.raises(ValueError):
            kem.encapsulate(bad)
    for bad in (b"", bytes(CT_SIZE - 1), bytes(CT_SIZE + 1)):
        with pytest.raises(ValueError):
            kem.decapsulate(private, bad)
    with pytest.raises(TypeError):
        kem.decapsulate(b"not a key", bytes(CT_SIZE))
