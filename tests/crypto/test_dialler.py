"""The dialling side: misuse, every refusal alone, and what it shows to whom."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_peer.crypto.handshake import Dialler, Offer
from hermes_peer.errors import UsageError

from .other import Other, read_hello
from .rig import A_SEED, B_SEED, BOTH, C_SEED, KEM, ONE, TWO, A, B, dialler, flips, refused, run_of

# All encodings of X25519 points of low order.
LOW = [
    bytes(32),
    b"\1" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    *((2**255 - 19 + d).to_bytes(32, "little") for d in (-1, 0, 1)),
]


def lied_to(offer: Offer, reason: str, seed: bytes = B_SEED, **lies: Any) -> None:
    """A holder of `seed`, asked by A, answers with `lies`; A must refuse for `reason` and keep silent."""
    d = dialler(offer)
    message = Other(seed).welcome(d.hello(), **lies)
    refused(lambda: d.welcome(message), reason)
    assert d.outcome is None
    with pytest.raises(UsageError, match="dead"):
        d.welcome(message)


def test_an_honest_stranger_of_another_make_is_understood() -> None:
    for offer, suite in ((Offer(suites=(2,)), 2), (ONE, 1), (Offer(suites=(2, 1)), 1)):
        d, them = dialler(offer), Other(B_SEED)
        ready = d.welcome(them.welcome(d.hello(), suite=suite, session=run_of(1, 16), time=9, caps=b"ignored"))
        them.read_ready(ready)
        mine = d.outcome
        assert mine is not None
        assert (mine.send_secret, mine.receive_secret) == (them.i_ap, them.r_ap)
        assert (mine.psk, mine.exporter) == (them.next_psk, them.exporter)
        assert (mine.peer_public, mine.peer_fingerprint) == (B.public, B.fingerprint)
        assert (mine.session, mine.peer_time_ms, mine.resumed) == (run_of(1, 16), 9, False)
        assert (mine.version, mine.suite, mine.peer_caps) == (1, suite, b"")


# Refused before any key work (protocol.md section 3); the AuthBlock is in order every time.


def test_version_that_was_not_offered() -> None:
    lied_to(Offer((1, 2), (2,)), "version", version=3)


def test_suite_that_was_not_offered() -> None:
    lied_to(Offer((1,), (2,)), "suite", suite=1, ct=bytes(1088), kem_shared=bytes(32))
    lied_to(Offer((1,), (1,)), "suite", suite=2)


def test_suite_that_was_offered_but_is_not_spoken() -> None:
    lied_to(Offer((1,), (2, 3)), "suite", suite=3)


@pytest.mark.parametrize(("suite", "size"), [(1, 0), (1, 1087), (2, 1088)])
def test_mlkem_ciphertext_without_suite_1_or_missing_with_it(suite: int, size: int) -> None:
    lied_to(BOTH, "mlkem", suite=suite, ct=bytes(size))


@pytest.mark.attack(18)
def test_attack_18_resumed_without_my_resume_id() -> None:
    lied_to(TWO, "resume", resumed=1)


@pytest.mark.attack(3)
def test_attack_3_my_own_random() -> None:
    d = dialler()
    hello = d.hello()
    message = Other(B_SEED).welcome(hello, random=read_hello(hello).random)
    refused(lambda: d.welcome(message), "random")


def test_no_key_work_before_the_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def worked(*_: object) -> None:
        raise AssertionError("key work")

    monkeypatch.setattr("hermes_peer.crypto.dialler.exchange", worked)
    monkeypatch.setattr("hermes_peer.crypto.dialler.handshake_keys", worked)
    test_version_that_was_not_offered()
    test_suite_that_was_not_offered()
    test_attack_18_resumed_without_my_resume_id()
    test_attack_3_my_own_random()
    test_mlkem_ciphertext_without_suite_1_or_missing_with_it(1, 0)


# Refused with keys.


@pytest.mark.attack(9)
@pytest.mark.parametrize("share", LOW, ids=bytes.hex)
def test_attack_9_low_order_share(share: bytes) -> None:
    lied_to(TWO, "share", share=share)
    lied_to(ONE, "share", share=share, suite=1)


@pytest.mark.attack(9)
def test_attack_9_bad_ciphertext_is_a_wrong_key_and_nothing_more() -> None:
    lied_to(ONE, "seal", suite=1, ct=bytes(1088), kem_shared=bytes(32))
    lied_to(ONE, "seal", suite=1, ct=b"\xff" * 1088, kem_shared=bytes(32))


@pytest.mark.attack(9)
def test_attack_9_a_kem_that_refuses_is_a_handshake_error() -> None:
    class Refuses:
        generate, encapsulate = KEM.generate, KEM.encapsulate

        def decapsulate(self, *_: object) -> bytes:
            raise ValueError

    d = dialler(ONE, kem=Refuses())
    message = Other(B_SEED).welcome(d.hello(), suite=1)
    refused(lambda: d.welcome(message), "mlkem")


def test_another_key_than_the_wanted_one() -> None:
    lied_to(TWO, "fingerprint", seed=C_SEED)


@pytest.mark.attack(10)
def test_attack_10_a_thief_of_my_own_key_answers() -> None:
    lied_to(TWO, "self", seed=A_SEED)
    lied_to(TWO, "signature", seed=A_SEED, cert=B.spki)


@pytest.mark.attack(6)
@pytest.mark.parametrize(
    ("version", "suite", "versions", "suites"),
    [
        (1, 2, (1,), (1, 2)),  # the better suite was open to both
        (1, 1, (1, 2), (1,)),  # the higher version was
        (2, 1, (1,), (1,)),  # chosen, but not in its own offer
        (1, 2, (1,), (1,)),
        (1, 2, (3,), (2,)),
        (1, 2, (1,), (3,)),
    ],
)
def test_attack_6_a_choice_that_the_signed_offers_do_not_lead_to(
    version: int, suite: int, versions: tuple[int, ...], suites: tuple[int, ...]
) -> None:
    lied_to(BOTH, "downgrade", version=version, suite=suite, versions=versions, suites=suites)


def test_signature_and_fin_are_asked_for() -> None:
    lied_to(TWO, "signature", sign=lambda *_: bytes(64))
    lied_to(TWO, "fin", fin=lambda *_: bytes(32))
    lied_to(TWO, "certificate type", cert_type=1)


def test_role_of_the_block_is_the_acceptors() -> None:
    key = Other(B_SEED).key
    wrong = b"hermes-link/1 initiator sig\0"
    lied_to(TWO, "signature", sign=lambda _, th: key.sign(wrong + th))


def test_hello_shows_nothing_of_the_dialler() -> None:
    hello = dialler(BOTH).hello()
    for secret in (A.public, A.fingerprint, B.public, B.fingerprint, b"{}"):
        assert secret not in hello
    assert hello[:4] == b"\1" + (len(hello) - 4).to_bytes(3, "big")


def test_to_is_right_whatever_the_realm() -> None:
    one, two = dialler().hello(), dialler(realm=run_of(7)).hello()
    assert one[:-16] == two[:-16] and one[-16:] != two[-16:]


@pytest.mark.attack(14)
def test_attack_14_steps_out_of_order() -> None:
    d = dialler()
    with pytest.raises(UsageError, match="new"):
        d.welcome(b"")
    them = Other(B_SEED)
    message = them.welcome(d.hello())
    with pytest.raises(UsageError):
        d.hello()
    assert d.outcome is None
    d.welcome(message)
    done = d.outcome
    assert d._private is d._kem_private is None  # one-time keys do not outlive their use
    for again in (d.hello, lambda: d.welcome(message)):
        with pytest.raises(UsageError, match="done"):
            again()
    assert d.outcome is done is not None


@pytest.mark.attack(3)
def test_attack_3_self_dial_is_refused_before_dialling() -> None:
    refused(lambda: dialler(peer=A), "self")


@pytest.mark.parametrize(
    "wrong",
    [
        {"realm": bytes(31)},
        {"realm": bytes(33)},
        {"psk": bytes(31), "resume_id": bytes(16)},
        {"psk": bytes(32), "resume_id": b""},
        {"psk": bytes(32), "resume_id": bytes(15)},
        {"resume_id": bytes(16)},
        {"now_ms": -1},
        {"now_ms": 2**64},
        {"caps": bytes(4097)},
    ],
    ids=repr,
)
def test_misuse_raises_before_anything(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        dialler(**wrong)


def test_other_misuse() -> None:
    for fp in (b"", bytes(31), bytes(33)):
        with pytest.raises(UsageError, match="fingerprint"):
            Dialler(A, fp, Offer(), b"", entropy=bytes, kem=KEM, now_ms=0)
    with pytest.raises(UsageError, match="offer"):
        dialler(Offer(suites=(3,)))
    d = dialler(entropy=lambda n: bytes(n - 1))
    with pytest.raises(UsageError, match="entropy"):
        d.hello()


def test_every_bit_of_welcome() -> None:
    d = dialler()
    message = Other(B_SEED).welcome(d.hello())
    assert len(message) == 442
    reasons = set()
    for _, wrong in flips(message):
        d = dialler()
        d.hello()
        reasons.add(refused(lambda d=d, wrong=wrong: d.welcome(wrong)).reason)
        assert d.outcome is None
    assert reasons == {"parse", "version", "suite", "mlkem", "resume", "seal"}
