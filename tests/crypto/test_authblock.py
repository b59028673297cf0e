"""The sealed proof: each wall alone, so that no other can stand in for it."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.exceptions import InvalidTag

from hermes_peer.crypto.authblock import open_block, seal_block
from hermes_peer.crypto.keys import SPKI_PREFIX, Context
from hermes_peer.crypto.messages import Body, Offer
from hermes_peer.crypto.outcome import HandshakeError
from hermes_peer.crypto.schedule import Transcript

from .other import ACCEPTOR, DIALLER, HM, Other, X
from .rig import A_SEED, B_SEED, A, B, flips, refused, run_of
from .test_keys import FORGED, LARGE, WEAK

SECRET = run_of(0x11)
FIELDS = {"versions": (1,), "suites": (2,), "session": bytes(16), "time": 7}


def forged(role: bytes = DIALLER, seed: bytes = A_SEED, **lies: Any) -> bytes:
    return Other(seed).block(SECRET, role, **(FIELDS | lies))


def opened(sealed: bytes, context: Context = Context.DIALLER_LINK, secret: bytes = SECRET) -> tuple[Body, bytes]:
    return open_block(Transcript(b""), secret, sealed, context)


def test_both_implementations_agree() -> None:
    ours, theirs = Transcript(b""), Other(A_SEED)
    body = Body(A.spki, b"caps", Offer((1,), (2,)), bytes(16), 7)
    sealed = seal_block(ours, SECRET, body, A, Context.DIALLER_LINK)
    assert sealed == theirs.block(SECRET, DIALLER, caps=b"caps", **FIELDS)
    reader = Transcript(b"")
    assert open_block(reader, SECRET, sealed, Context.DIALLER_LINK) == (body, A.public)
    assert reader.value == ours.value == theirs.th != Transcript(b"").value


def test_every_flipped_bit_is_refused() -> None:
    for _, wrong in flips(forged()):
        refused(lambda wrong=wrong: opened(wrong), "seal")


def test_wall_seal_needs_the_secret_and_the_transcript() -> None:
    refused(lambda: opened(forged(), secret=run_of(0x12)), "seal")
    refused(lambda: open_block(Transcript(b"x"), SECRET, forged(), Context.DIALLER_LINK), "seal")
    refused(lambda: opened(b""), "seal")


@pytest.mark.parametrize("plain", [b"", bytes(95), bytes(96), bytes(97), bytes(352)])
def test_wall_parse_of_a_well_sealed_block(plain: bytes) -> None:
    refused(lambda: opened(forged(short=plain)), "parse")


@pytest.mark.parametrize(
    "cert",
    [b"", A.public, SPKI_PREFIX, SPKI_PREFIX + bytes(31), A.spki + b"\0", b"\x31" + A.spki[1:], bytes(44)],
    ids=["empty", "raw", "prefix", "short", "long", "other tag", "zeros"],
)
def test_wall_certificate_is_one_bare_spki(cert: bytes) -> None:
    refused(lambda: opened(forged(cert=cert)), "certificate")


@pytest.mark.attack(8)
@pytest.mark.parametrize("weak", WEAK + LARGE, ids=bytes.hex)
def test_attack_8_wall_weak_key(weak: bytes) -> None:
    refused(lambda: opened(forged(cert=SPKI_PREFIX + weak, sign=lambda *_: FORGED)), "weak_key")


def test_wall_signature_is_by_the_certified_key() -> None:
    refused(lambda: opened(forged(cert=B.spki)), "signature")
    refused(lambda: opened(forged(sign=lambda *_: bytes(64))), "signature")


@pytest.mark.attack(3)
def test_attack_3_wall_signature_names_the_role() -> None:
    refused(lambda: opened(forged(ACCEPTOR)), "signature")
    refused(lambda: opened(forged(DIALLER), Context.ACCEPTOR_LINK), "signature")


@pytest.mark.parametrize("context", [Context.MESSAGE, Context.RECORD, Context.KEY_CHANGE])
def test_wall_signature_of_another_kind_proves_no_link(context: Context) -> None:
    refused(lambda: opened(forged(sign=lambda _, th: A.sign(context, th))), "signature")


@pytest.mark.attack(5)
def test_attack_5_wall_signature_covers_transcript_and_body() -> None:
    key = Other(A_SEED).key
    elsewhere = Other(A_SEED, binding=b"another run").th
    refused(lambda: opened(forged(sign=lambda c, _: key.sign(c + elsewhere))), "signature")
    before_body = Transcript(b"").value
    refused(lambda: opened(forged(sign=lambda c, _: key.sign(c + before_body))), "signature")


@pytest.mark.attack(2)
def test_attack_2_wall_fin_needs_the_key_exchange() -> None:
    refused(lambda: opened(forged(fin=lambda _: bytes(32))), "fin")
    refused(lambda: opened(forged(fin=lambda th: HM(X(run_of(0x12), b"fin"), th))), "fin")
    refused(lambda: opened(forged(fin=lambda _: HM(X(SECRET, b"fin"), Transcript(b"").value))), "fin")


def test_an_insider_block_is_his_own() -> None:
    _, public = opened(forged(seed=B_SEED))
    assert public == B.public


def test_the_error_does_not_carry_the_plaintext() -> None:
    with pytest.raises(HandshakeError) as caught:
        opened(forged()[:-1])
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert isinstance(caught.value.__context__, InvalidTag)
