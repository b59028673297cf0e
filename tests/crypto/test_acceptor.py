"""The dialled side: the order of its work, and every refusal alone."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.exceptions import InvalidTag

from hermes_peer.crypto.handshake import Acceptor, HandshakeError, Offer, Outcome, Refuse
from hermes_peer.errors import UsageError

from .other import SPKI, Other, retag
from .rig import (
    A_SEED,
    B_SEED,
    BOTH,
    C_SEED,
    ONE,
    SESSION,
    TWO,
    A,
    B,
    C,
    acceptor,
    dialler,
    dice,
    flips,
    keeps,
    nothing,
    refused,
    run_of,
)
from .test_dialler import LOW
from .test_keys import FORGED, WEAK


def answered(offer: Offer, them: Other, hello: dict[str, Any], **more: Any) -> tuple[Acceptor, bytes]:
    a = acceptor(offer, **more)
    return a, a.hello(them.hello(B.fingerprint, **hello), nothing)


def lied_to(reason: str, seed: bytes = A_SEED, **lies: Any) -> HandshakeError:
    """The holder of `seed` dials B well and sends a READY with `lies`."""
    them = Other(seed)
    a, welcome = answered(TWO, them, {})
    message = them.ready(welcome, **lies)
    error = refused(lambda: a.ready(message), reason)
    with pytest.raises(UsageError, match="dead"):
        a.ready(message)
    return error


def test_an_honest_stranger_of_another_make_is_understood() -> None:
    for suites, suite in (((2,), 2), ((1,), 1), ((2, 1), 1), ((77, 2), 2)):
        them = Other(A_SEED)
        a, welcome = answered(Offer(suites=(1, 2)), them, {"suites": suites, "versions": (9, 1)})
        mine = a.ready(them.ready(welcome, caps=b"mine", time=3))
        assert (mine.send_secret, mine.receive_secret) == (them.r_ap, them.i_ap)
        assert (mine.psk, mine.exporter) == (them.next_psk, them.exporter)
        assert (mine.peer_public, mine.peer_fingerprint) == (A.public, A.fingerprint)
        assert (mine.session, mine.peer_time_ms, mine.resumed) == (SESSION, 3, False)
        assert (mine.version, mine.suite, mine.peer_caps) == (1, suite, b"mine")


def test_welcome_carries_no_caps() -> None:
    them = Other(A_SEED)
    _, welcome = answered(ONE, them, {"suites": (1,)})
    n = int.from_bytes(welcome[72:74], "big")
    them.read_welcome(welcome)
    again = Other(A_SEED)
    again.th, again.kem_private = them.th1, them.kem_private
    plain = again.open(them.r_hs, welcome[74 + n :])
    assert plain[:49] == b"\0\0\x2c" + B.spki + b"\0\0"


# Before all else: is it for me?


class Untouchable:
    """Offer, dice and session store that must not be asked."""

    def __call__(self, *_: object) -> bytes:
        raise AssertionError("work was done for a stranger")


@pytest.mark.attack(13)
def test_attack_13_to_is_first_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    good = Other(A_SEED).hello(B.fingerprint)
    monkeypatch.setattr("hermes_peer.crypto.acceptor.decode_hello", Untouchable())
    strangers = [
        b"",
        bytes(19),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\3\1" + bytes(200),
        Other(A_SEED).hello(C.fingerprint),
        Other(A_SEED, realm=run_of(1)).hello(B.fingerprint),
        good[:-1] + bytes([good[-1] ^ 1]),
        good[:-1],
        good + b"\0",
    ]
    for message in strangers:
        a = acceptor(entropy=Untouchable())
        refused(lambda a=a, m=message: a.hello(m, Untouchable()), "to")
    with pytest.raises(AssertionError, match="stranger"):  # the trap works
        acceptor().hello(good, nothing)


def test_the_message_header_is_checked_though_to_does_not_cover_it() -> None:
    good = Other(A_SEED).hello(B.fingerprint)
    for head in (b"\2", b"\0", b"\x81"):
        refused(lambda head=head: acceptor().hello(head + good[1:], nothing), "parse")
    refused(lambda: acceptor().hello(good[:3] + b"\0" + good[4:], nothing), "parse")


# Refused before any key work (protocol.md section 3).


@pytest.mark.attack(6)
def test_attack_6_no_common_version_or_suite_may_be_said_in_clear() -> None:
    a, hello = acceptor(), Other(A_SEED).hello(B.fingerprint, versions=(2, 3))
    refused(lambda: a.hello(hello, nothing), "version", refuse=Refuse.VERSION)
    a, hello = acceptor(), Other(A_SEED).hello(B.fingerprint, suites=(1,))
    refused(lambda: a.hello(hello, nothing), "suite", refuse=Refuse.SUITE)
    a, hello = acceptor(), Other(A_SEED).hello(B.fingerprint, suites=(3, 9))
    refused(lambda: a.hello(hello, nothing), "suite", refuse=Refuse.SUITE)


def test_no_clear_word_before_to_matched() -> None:
    a, hello = acceptor(), Other(A_SEED).hello(C.fingerprint, versions=(2, 3))
    refused(lambda: a.hello(hello, nothing), "to", refuse=None)


@pytest.mark.parametrize(("suites", "size"), [((2,), 1184), ((1,), 0), ((1, 2), 0), ((1,), 1185)])
def test_mlkem_key_without_suite_1_or_missing_with_it(suites: tuple[int, ...], size: int) -> None:
    a, hello = acceptor(BOTH), Other(A_SEED).hello(B.fingerprint, suites=suites, ek=bytes(size))
    refused(lambda: a.hello(hello, nothing), "mlkem")


@pytest.mark.attack(3)
def test_attack_3_my_own_random() -> None:
    draw = dice("a")
    draw(32)
    a, hello = acceptor(), Other(A_SEED, random=draw(32)).hello(B.fingerprint)
    refused(lambda: a.hello(hello, nothing), "random")


def test_no_key_work_before_the_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_peer.crypto.acceptor.exchange", Untouchable())
    monkeypatch.setattr("hermes_peer.crypto.acceptor.X25519PrivateKey", Untouchable())
    test_attack_6_no_common_version_or_suite_may_be_said_in_clear()
    test_mlkem_key_without_suite_1_or_missing_with_it((2,), 1184)
    test_attack_3_my_own_random()


def test_tail_after_hello_is_refused_though_to_covers_it() -> None:
    a, hello = acceptor(), Other(A_SEED).hello(B.fingerprint, tail=b"\0")
    refused(lambda: a.hello(hello, nothing), "parse")


@pytest.mark.attack(9)
@pytest.mark.parametrize("share", LOW, ids=bytes.hex)
def test_attack_9_low_order_share(share: bytes) -> None:
    for suites in ((1,), (2,)):
        a, hello = acceptor(Offer(suites=suites)), Other(A_SEED).hello(B.fingerprint, suites=suites, share=share)
        refused(lambda a=a, hello=hello: a.hello(hello, nothing), "share")


@pytest.mark.attack(9)
def test_attack_9_bad_mlkem_key() -> None:
    a, hello = acceptor(ONE), Other(A_SEED).hello(B.fingerprint, suites=(1,), ek=b"\xff" * 1184)
    refused(lambda: a.hello(hello, nothing), "mlkem")


# READY.


@pytest.mark.attack(6)
@pytest.mark.parametrize(
    "lie",
    [
        {"versions": (2,)},
        {"versions": (1, 2)},
        {"suites": (1, 2)},
        {"suites": (1,)},
        {"suites": (2, 2)},
    ],
    ids=repr,
)
def test_attack_6_repeated_offer_must_equal_hello(lie: dict[str, Any]) -> None:
    lied_to("offer", **lie)


@pytest.mark.attack(6)
def test_attack_6_repeated_offer_in_another_order_is_another() -> None:
    them = Other(A_SEED)
    a, welcome = answered(BOTH, them, {"suites": (1, 2)})
    message = them.ready(welcome, suites=(2, 1))
    refused(lambda: a.ready(message), "offer")


def test_session_must_be_mine() -> None:
    lied_to("session", session=bytes(16))


def test_signature_fin_and_certificate_are_asked_for() -> None:
    lied_to("signature", sign=lambda *_: bytes(64))
    lied_to("fin", fin=lambda *_: bytes(32))
    lied_to("certificate", cert=bytes(44))
    lied_to("certificate type", cert_type=1)
    lied_to("parse", tail=bytes(256))


@pytest.mark.attack(8)
@pytest.mark.parametrize("weak", WEAK, ids=bytes.hex)
def test_attack_8_weak_identity(weak: bytes) -> None:
    lied_to("weak_key", cert=SPKI + weak, sign=lambda *_: FORGED)


def test_role_of_the_block_is_the_diallers() -> None:
    key = Other(A_SEED).key
    lied_to("signature", sign=lambda _, th: key.sign(b"hermes-link/1 responder sig\0" + th))


@pytest.mark.attack(10)
def test_attack_10_a_thief_of_my_own_key_is_nobody_else() -> None:
    lied_to("signature", seed=B_SEED, cert=C.spki)


@pytest.mark.attack(3)
def test_attack_3_own_key_is_proven_and_unwanted() -> None:
    them = Other(B_SEED)
    a, welcome = answered(TWO, them, {})
    message = them.ready(welcome)
    error = refused(lambda: a.ready(message), "self", proven=True)
    assert isinstance(error.outcome, Outcome)
    assert (error.outcome.send_secret, error.outcome.peer_fingerprint) == (them.r_ap, B.fingerprint)


def test_own_key_with_a_bad_proof_is_silence() -> None:
    lied_to("signature", seed=B_SEED, sign=lambda *_: bytes(64))
    lied_to("fin", seed=B_SEED, fin=lambda *_: bytes(32))
    lied_to("offer", seed=B_SEED, versions=(7,))
    lied_to("session", seed=B_SEED, session=bytes(16))


# Resume.

RID = run_of(0x70, 16)
PSK = run_of(0x50)
OLD = run_of(0xD0, 16)


def resumed_by(them: Other, *kept: bytes) -> tuple[Acceptor, bytes]:
    a = acceptor()
    return a, a.hello(them.hello(B.fingerprint, rid=RID), keeps(RID, *kept))


def test_a_known_id_resumes_its_session() -> None:
    for kept in ((PSK, OLD), (PSK, OLD, A.fingerprint)):
        them = Other(A_SEED, psk=PSK)
        a, welcome = resumed_by(them, *kept)
        assert welcome[7] == 1
        mine = a.ready(them.ready(welcome))
        assert (mine.resumed, mine.session, mine.psk) == (True, OLD, them.next_psk)


def test_a_plain_pair_from_the_store_will_do() -> None:
    a, them = acceptor(), Other(A_SEED, psk=PSK)
    mine = a.ready(them.ready(a.hello(them.hello(B.fingerprint, rid=RID), lambda _: (PSK, OLD))))
    assert (mine.resumed, mine.session) == (True, OLD)


def test_an_unknown_id_is_a_new_session_under_no_psk() -> None:
    a, them = acceptor(), Other(A_SEED)
    welcome = a.hello(them.hello(B.fingerprint, rid=bytes(16)), keeps(RID, PSK, OLD))
    assert welcome[7] == 0
    mine = a.ready(them.ready(welcome))
    assert (mine.resumed, mine.session, mine.psk) == (False, SESSION, them.next_psk)


def test_the_store_is_asked_only_for_an_id() -> None:
    a = acceptor()
    a.hello(Other(A_SEED).hello(B.fingerprint), Untouchable())


@pytest.mark.attack(18)
def test_attack_18_a_seen_resume_id_without_its_psk() -> None:
    for seed in (A_SEED, C_SEED):
        them = Other(seed, psk=run_of(0x51))
        a, welcome = resumed_by(them, PSK, OLD, A.fingerprint)
        with pytest.raises(InvalidTag):  # cannot even open WELCOME
            them.ready(welcome)
        blind = them.block(them.i_hs, b" initiator sig", versions=(1,), suites=(2,), session=OLD)
        refused(lambda a=a, blind=blind: a.ready(b"\3\0\1\x70" + blind), "seal")


@pytest.mark.attack(19)
def test_attack_19_a_stolen_psk_in_another_nodes_hands() -> None:
    them = Other(C_SEED, psk=PSK)
    a, welcome = resumed_by(them, PSK, OLD, A.fingerprint)
    message = them.ready(welcome)
    error = refused(lambda: a.ready(message), "fingerprint")
    assert error.outcome is None


@pytest.mark.attack(20)
def test_attack_20_a_stolen_key_without_the_psk_gets_a_new_session_only() -> None:
    them = Other(A_SEED)
    a, welcome = answered(TWO, them, {})
    mine = a.ready(them.ready(welcome))
    assert not mine.resumed and mine.session == SESSION != OLD


# Order, misuse, bits.


@pytest.mark.attack(14)
def test_attack_14_steps_out_of_order() -> None:
    a, them = acceptor(), Other(A_SEED)
    with pytest.raises(UsageError, match="new"):
        a.ready(b"")
    hello = them.hello(B.fingerprint)
    welcome = a.hello(hello, nothing)
    with pytest.raises(UsageError, match="waiting"):
        a.hello(hello, nothing)
    ready = them.ready(welcome)
    a.ready(ready)
    for again in (lambda: a.hello(hello, nothing), lambda: a.ready(ready)):
        with pytest.raises(UsageError, match="done"):
            again()


@pytest.mark.attack(14)
def test_attack_14_a_failed_hello_leaves_nothing_to_go_on_with() -> None:
    a, them = acceptor(), Other(A_SEED)
    good = them.hello(B.fingerprint)
    refused(lambda: a.hello(good[:-1], nothing), "to")
    for again in (lambda: a.hello(good, nothing), lambda: a.ready(good)):
        with pytest.raises(UsageError, match="dead"):
            again()


@pytest.mark.parametrize(
    "wrong",
    [{"session": bytes(15)}, {"session": bytes(17)}, {"realm": b""}, {"now_ms": 2**64}, {"caps": bytes(4097)}],
    ids=repr,
)
def test_misuse_raises_before_anything(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        acceptor(**wrong)


@pytest.mark.parametrize("kept", [(PSK[:-1], OLD), (PSK, OLD[:-1])])
def test_a_store_that_gives_nonsense_is_misuse(kept: tuple[bytes, bytes]) -> None:
    a, hello = acceptor(), Other(A_SEED).hello(B.fingerprint, rid=RID)
    with pytest.raises(UsageError, match="psk"):
        a.hello(hello, lambda _: kept)


def test_every_bit_of_hello_is_refused_by_to() -> None:
    good = Other(A_SEED).hello(B.fingerprint)
    assert len(good) == 92
    for bit, wrong in flips(good):
        refused(lambda wrong=wrong: acceptor().hello(wrong, nothing), "parse" if bit < 32 else "to")


def test_every_bit_of_ready() -> None:
    a, them = acceptor(), Other(A_SEED)
    hello = them.hello(B.fingerprint)
    welcome = a.hello(hello, nothing)
    ready = them.ready(welcome)
    assert len(ready) == 372
    for _, wrong in flips(ready):
        one = acceptor()  # the dice are loaded: every run is the same
        assert one.hello(hello, nothing) == welcome
        refused(lambda one=one, wrong=wrong: one.ready(wrong), "parse", "seal")
    a.ready(ready)


@pytest.mark.attack(1)
def test_attack_1_every_bit_of_hello_changed_by_one_who_knows_the_fingerprint() -> None:
    """`to` is made right again, so B answers what it can read; then A must refuse the answer."""
    good = dialler().hello()
    kept = 0
    for bit, wrong in flips(good):
        if bit < 32 or bit >= (len(good) - 16) * 8:
            continue
        a, d = acceptor(), dialler()
        d.hello()
        try:
            welcome = a.hello(retag(wrong, B.fingerprint), nothing)
        except HandshakeError:
            continue
        kept += 1
        refused(lambda d=d, welcome=welcome: d.welcome(welcome), "seal")
    assert kept >= 512  # random and share, at least
