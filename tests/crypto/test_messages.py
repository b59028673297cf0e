"""Layouts of the handshake messages: round trips, and every strictness alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.crypto.keys import SPKI_PREFIX
from hermes_peer.crypto.messages import (
    MAX_BODY,
    Body,
    Hello,
    Kind,
    Offer,
    Welcome,
    choose,
    decode_body,
    decode_hello,
    decode_welcome,
    encode_body,
    encode_hello,
    encode_welcome,
    frame,
    unframe,
)
from hermes_peer.errors import UsageError

from . import other
from .rig import refused, run_of

TAG = bytes(16)
numbers = st.lists(st.integers(0, 255), min_size=1, max_size=9).map(tuple)


def tag(_: bytes) -> bytes:
    return TAG


def hello_of(**lies: object) -> Hello:
    honest = {
        "offer": Offer(suites=(2,)),
        "random": run_of(1),
        "share": run_of(2),
        "mlkem_ek": b"",
        "resume_id": b"",
    }
    return Hello(**(honest | lies))  # type: ignore[arg-type]


@given(numbers, numbers, st.sampled_from([b"", run_of(5, 16)]))
def test_hello_goes_round(versions: tuple[int, ...], suites: tuple[int, ...], rid: bytes) -> None:
    hello = hello_of(offer=Offer(versions, suites), mlkem_ek=bytes(1184 if 1 in suites else 0), resume_id=rid)
    assert decode_hello(encode_hello(hello, tag)) == hello


@pytest.mark.parametrize(
    ("suites", "size", "reason"),
    [((2,), 1184, "mlkem"), ((1,), 0, "mlkem"), ((1, 2), 0, "mlkem"), ((1,), 1183, "mlkem"), ((2,), 1, "mlkem")],
)
def test_hello_has_an_mlkem_key_exactly_if_suite_1_is_offered(suites: tuple[int, ...], size: int, reason: str) -> None:
    refused(lambda: decode_hello(encode_hello(hello_of(offer=Offer((1,), suites), mlkem_ek=bytes(size)), tag)), reason)


@pytest.mark.parametrize("rid", [b"x", bytes(15), bytes(17), bytes(32)])
def test_hello_resume_id_has_16_bytes_or_none(rid: bytes) -> None:
    refused(lambda: decode_hello(encode_hello(hello_of(resume_id=rid), tag)), "parse")


@pytest.mark.parametrize(
    "offer", [b"\0\1\2", b"\2\0\1\0", b"\1\1\1\2", b"\3\0\1\0\1\2"], ids=["no version", "no suite", "odd", "odd 3"]
)
def test_hello_offer_is_whole(offer: bytes) -> None:
    body = offer + run_of(1) + run_of(2) + b"\0\0" + b"\0" + TAG
    refused(lambda: decode_hello(frame(Kind.HELLO, body)), "parse")


HELLO = encode_hello(hello_of(), tag)
WELCOME = frame(Kind.WELCOME, encode_welcome(Welcome(1, 2, False, run_of(1), run_of(2), b"")))
BODY = encode_body(Body(SPKI_PREFIX + run_of(1), b"{}", Offer(), bytes(16), 5))


@pytest.mark.parametrize(("whole", "decode"), [(HELLO, decode_hello), (WELCOME, decode_welcome), (BODY, decode_body)])
def test_every_cut_is_refused(whole: bytes, decode: Callable[[bytes], object]) -> None:
    decode(whole)
    for n in range(len(whole)):
        refused(lambda n=n: decode(whole[:n]), "parse")


@pytest.mark.parametrize(("whole", "decode"), [(HELLO, decode_hello), (WELCOME, decode_welcome)])
def test_every_cut_with_the_length_made_right_again_is_refused(whole: bytes, decode: Callable[[bytes], object]) -> None:
    for n in range(4, len(whole)):
        refused(lambda n=n: decode(frame(Kind(whole[0]), whole[4:n])), "parse")
    refused(lambda: decode(whole + b"\0"), "parse")


def test_every_tail_is_refused() -> None:
    refused(lambda: decode_hello(frame(Kind.HELLO, HELLO[4:] + b"\0")), "parse")
    refused(lambda: decode_body(BODY + b"\0"), "parse")
    refused(lambda: decode_body(BODY + bytes(256)), "parse")


def test_frames_are_exact() -> None:
    assert unframe(Kind.READY, frame(Kind.READY, b"x")) == b"x"
    assert frame(Kind.READY, b"x") == b"\3\0\0\1x"
    for kind in (Kind.HELLO, Kind.WELCOME):
        refused(lambda kind=kind: unframe(kind, frame(Kind.READY, b"x")), "parse")
    unframe(Kind.READY, frame(Kind.READY, bytes(MAX_BODY)))
    refused(lambda: unframe(Kind.READY, frame(Kind.READY, bytes(MAX_BODY + 1))), "parse")
    refused(lambda: unframe(Kind.READY, b""), "parse")


def test_welcome_goes_round() -> None:
    for suite, ct in ((1, bytes(1088)), (2, b"")):
        for resumed in (False, True):
            clear = encode_welcome(Welcome(7, suite, resumed, run_of(1), run_of(2), ct))
            seen = decode_welcome(frame(Kind.WELCOME, clear + b"sealed"))
            assert seen == Welcome(7, suite, resumed, run_of(1), run_of(2), ct, clear, b"sealed")


@pytest.mark.parametrize(("suite", "size"), [(1, 0), (1, 1087), (2, 1088), (2, 1), (3, 1088)])
def test_welcome_has_a_ciphertext_exactly_if_the_suite_is_1(suite: int, size: int) -> None:
    clear = encode_welcome(Welcome(1, suite, False, run_of(1), run_of(2), bytes(size)))
    refused(lambda: decode_welcome(frame(Kind.WELCOME, clear + b"sealed")), "mlkem")


def test_welcome_resumed_is_0_or_1() -> None:
    clear = bytearray(encode_welcome(Welcome(1, 2, False, run_of(1), run_of(2), b"")))
    clear[3] = 2
    refused(lambda: decode_welcome(frame(Kind.WELCOME, bytes(clear))), "parse")


@given(st.binary(max_size=4096), numbers, numbers, st.integers(0, 2**64 - 1))
def test_body_goes_round_in_blocks(caps: bytes, versions: tuple[int, ...], suites: tuple[int, ...], time: int) -> None:
    body = Body(SPKI_PREFIX + run_of(1), caps, Offer(versions, suites), run_of(2, 16), time)
    data = encode_body(body)
    assert len(data) % 256 == 0
    assert decode_body(data) == body


def body_bytes(cert_type: int = 0, caps: bytes = b"", zeros: bytes | None = None) -> bytes:
    data = bytes([cert_type]) + other.v16(SPKI_PREFIX + run_of(1)) + other.v16(caps)
    data += other.offer((1,), (2,)) + bytes(24)
    return data + other.v16(bytes(-(len(data) + 2) % 256) if zeros is None else zeros)


def test_body_padding_is_zeros_up_to_a_block() -> None:
    decode_body(body_bytes())
    size = 256 - len(body_bytes(zeros=b""))
    decode_body(body_bytes(zeros=bytes(size + 256)))
    refused(lambda: decode_body(body_bytes(zeros=bytes(size - 1))), "parse")
    refused(lambda: decode_body(body_bytes(zeros=bytes(size - 1) + b"\1")), "parse")
    refused(lambda: decode_body(body_bytes(zeros=b"\1" + bytes(size - 1))), "parse")


def test_body_caps_are_limited() -> None:
    decode_body(body_bytes(caps=bytes(4096)))
    refused(lambda: decode_body(body_bytes(caps=bytes(4097))), "parse")


@pytest.mark.attack(11)
@pytest.mark.parametrize("cert_type", [1, 2, 255])
def test_attack_11_other_certificate_types_are_refused_by_name(cert_type: int) -> None:
    refused(lambda: decode_body(body_bytes(cert_type)), "certificate type")


@pytest.mark.attack(6)
@pytest.mark.parametrize(
    ("mine", "theirs", "chosen"),
    [
        (((1,), (1, 2)), ((1,), (2, 1)), (1, 1)),
        (((1,), (2, 1)), ((1,), (2,)), (1, 2)),
        (((1, 2, 5), (1,)), ((5, 1, 9), (1,)), (5, 1)),
        (((1,), (1,)), ((2,), (1,)), (None, 1)),
        (((1,), (1,)), ((1,), (2,)), (1, None)),
        (((1,), (2, 3)), ((1,), (3, 9)), (1, None)),  # 3 is in both, but we do not speak it
    ],
)
def test_attack_6_both_sides_choose_the_same_best(mine: tuple, theirs: tuple, chosen: tuple) -> None:  # type: ignore[type-arg]
    assert choose(Offer(*mine), Offer(*theirs)) == choose(Offer(*theirs), Offer(*mine)) == chosen


@pytest.mark.parametrize(
    "offer",
    [
        Offer(()),
        Offer((65536,)),
        Offer((-1,)),
        Offer((1,) * 128),
        Offer((1,), ()),
        Offer((1,), (3,)),
        Offer((1,), (1, 256)),
        Offer((1,), (1,) * 256),
    ],
)
def test_an_offer_that_cannot_be_made_is_misuse(offer: Offer) -> None:
    with pytest.raises(UsageError, match="offer"):
        offer.check()
    Offer((1,) * 127, (1,) * 255).check()
