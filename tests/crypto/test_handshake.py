"""Both sides together: the known vector, honest runs of every kind, and what they leave."""

from __future__ import annotations

import hashlib

import pytest

from hermes_peer.crypto.handshake import HandshakeError, Offer, Outcome, resume_id
from hermes_peer.crypto.kem import MlKem768
from hermes_peer.crypto.schedule import expand

from .other import Other, X
from .rig import (
    A_SEED,
    BOTH,
    ONE,
    SESSION,
    TWO,
    A,
    B,
    acceptor,
    dialler,
    dice,
    keeps,
    nothing,
    refused,
    run_of,
    script,
    shake,
)

PSK, OLD, RID = run_of(0x50), run_of(0xD0, 16), run_of(0x70, 16)
NONE = bytes(32)


def mirrored(one: Outcome, two: Outcome) -> None:
    """Two views of one handshake."""
    assert (one.send_secret, one.receive_secret) == (two.receive_secret, two.send_secret)
    for name in ("session", "resumed", "version", "suite", "psk", "exporter"):
        assert getattr(one, name) == getattr(two, name)
    assert len({one.send_secret, one.receive_secret, one.psk, one.exporter}) == 4


# Known answers.


def test_vector_of_the_security_note() -> None:
    """SR 3.9: WELCOME's clear part is mixed without the message header, and both caps are `{}`."""
    d = dialler(entropy=script(run_of(0x40), run_of(0x60)), now_ms=1_700_000_000_000)
    a = acceptor(entropy=script(run_of(0x80), run_of(0xA0)), now_ms=1_700_000_000_001, caps=b"{}")
    assert B.hex == "824c89aa8efb95ef93629b4519599129cace4adac9a6180daba31ceed41ecee6"
    hello = d.hello()
    assert d._transcript.value != NONE and hello[-16:].hex() == "5ec8f3e791d6777b068d3bbb52bd7581"
    welcome = a.hello(hello, nothing)
    keys = a._keys
    assert keys.acceptor.hex() == "747739e7b71b8b9cebc9400a3fb9fc386d27d9413315b7a67b423dc4782ebbda"
    assert keys.master.hex() == "4dd5dda0ab281ba0dbebda60c975ad99813b61430e73bf7e518651e7ddd12cd4"
    assert len(welcome) == 442
    known = "52005d383dd352144f5c793081aa34242e7dae2c72a814205245dd32014f7192"
    assert hashlib.sha256(welcome).hexdigest() == known
    ready = d.welcome(welcome)
    assert len(ready) == 372
    assert hashlib.sha256(ready).hexdigest() == "151ca3d2c69d625c45889f0c7b46cadd715d0c3b21900eccf3a39f202941df95"
    final = "7f57aba32f7aa25037c6911b97d267df372ea9693d3d4bf8e1a14ef4b97e024e"
    assert d._transcript.value.hex() == final
    theirs = a.ready(ready)
    assert a._transcript.value.hex() == final
    assert d.outcome is not None
    mirrored(d.outcome, theirs)
    i_ap = "65098ff3fe50e6ffab6274d1b6588ffcd254833cc317f6957c4702bccdc1dfe0"
    assert d.outcome.send_secret.hex() == i_ap
    psk = d.outcome.psk
    assert psk.hex() == "d30a47a30e98a249abfc63ca45648ff590db9634c05379f2c0fecf661b8b2938"
    # The note's resume id is of the older formula, without side and attempt.
    assert expand(psk, b"resume id", b"", 16).hex() == "b62702793f4b1903cdf1dd32a423d0a9"
    assert resume_id(psk, True, 0).hex() != "b62702793f4b1903cdf1dd32a423d0a9"


# Honest runs.


@pytest.mark.parametrize("realm", [NONE, run_of(9)], ids=["public", "realm"])
@pytest.mark.parametrize("binding", [b"", b"quic"])
@pytest.mark.parametrize(
    ("mine", "theirs", "chosen"),
    [
        (ONE, ONE, (1, 1)),
        (TWO, TWO, (1, 2)),
        (BOTH, BOTH, (2, 1)),
        (BOTH, TWO, (1, 2)),
        (ONE, BOTH, (1, 1)),
        (Offer((2, 1), (2, 1)), BOTH, (2, 1)),
        (Offer((1,), (2, 77)), Offer((1, 9), (77, 2)), (1, 2)),
    ],
)
def test_honest_runs(mine: Offer, theirs: Offer, chosen: tuple[int, int], binding: bytes, realm: bytes) -> None:
    both = {"binding": binding, "realm": realm}
    one, two = shake(dialler(mine, **both), acceptor(theirs, **both))
    mirrored(one, two)
    assert (one.version, one.suite) == chosen
    assert (one.peer_fingerprint, two.peer_fingerprint) == (B.fingerprint, A.fingerprint)
    assert (one.peer_public, two.peer_public) == (B.public, A.public)
    assert (one.peer_caps, two.peer_caps) == (b"", b"{}")
    assert (one.peer_time_ms, two.peer_time_ms) == (2, 1)
    assert one.session == SESSION and not one.resumed


def test_with_the_real_kem() -> None:
    one, two = shake(dialler(ONE, kem=MlKem768()), acceptor(ONE, kem=MlKem768()))
    mirrored(one, two)


@pytest.mark.parametrize("offer", [ONE, TWO])
def test_a_chain_of_resumes(offer: Offer) -> None:
    one, two = shake(dialler(offer), acceptor(offer))
    for n in range(4):
        rid = resume_id(one.psk, n % 2 == 0, n)
        d = dialler(offer, label=f"d{n}", psk=one.psk, resume_id=rid)
        a = acceptor(offer, label=f"a{n}", session=bytes(16))
        before = one
        one, two = shake(d, a, keeps(rid, two.psk, two.session, A.fingerprint))
        mirrored(one, two)
        assert one.resumed and one.session == SESSION
        assert not {one.psk, one.send_secret} & {before.psk, before.send_secret}


def test_a_refused_resume_is_a_new_session_under_zeros() -> None:
    one, two = shake(dialler(psk=PSK, resume_id=RID), acceptor())
    mirrored(one, two)
    assert not one.resumed and one.session == SESSION
    fresh, _ = shake(dialler(), acceptor())
    assert fresh.psk != one.psk  # the offered id is part of the transcript


def test_realm_and_binding_must_be_the_same() -> None:
    hello = dialler(realm=run_of(9)).hello()
    refused(lambda: acceptor().hello(hello, nothing), "to")
    d, a = dialler(binding=b"quic one"), acceptor(binding=b"quic two")
    welcome = a.hello(d.hello(), nothing)
    refused(lambda: d.welcome(welcome), "seal")


def test_nothing_repeats_between_runs() -> None:
    seen: set[bytes] = set()
    for n in range(20):
        one, _ = shake(dialler(label=f"d{n}"), acceptor(label=f"a{n}"))
        seen |= {one.send_secret, one.receive_secret, one.psk, one.exporter}
    assert len(seen) == 80


def test_one_loaded_die_is_not_enough_to_repeat_keys() -> None:
    one, _ = shake(dialler(label="same"), acceptor(label="a1"))
    two, _ = shake(dialler(label="same"), acceptor(label="a2"))
    assert one.send_secret != two.send_secret


@pytest.mark.attack(52)
def test_attack_52_secrets_are_not_shown() -> None:
    one, _ = shake(dialler(), acceptor())
    shown = repr(one)
    for secret in (one.send_secret, one.receive_secret, one.psk, one.exporter):
        assert repr(secret) not in shown and secret.hex() not in shown


def test_what_an_error_says() -> None:
    error = HandshakeError("to")
    assert str(error) == "handshake failed: to"
    assert (error.reason, error.refuse, error.proven, error.outcome) == ("to", None, False, None)


def test_exporter_and_psk_are_of_the_master_secret() -> None:
    them = Other(A_SEED)
    a = acceptor(label="x", entropy=dice("x"))
    mine = a.ready(them.ready(a.hello(them.hello(B.fingerprint), nothing)))
    assert mine.exporter == X(them.master, b"exp", them.th_final)
    assert mine.psk == X(them.master, b"res", them.th_final)
