"""The header, and every body of fixed layout: there and back, too short, too long."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import (
    HEADER_SIZE,
    UNKNOWN_MARK,
    Close,
    CloseMode,
    Credit,
    Flag,
    Frame,
    Link,
    Ping,
    Refuse,
    Type,
    encode,
    encode_ack,
    split,
)

U8, U32, U64 = st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
FRAMES = st.builds(Frame, U8, U8, U32, U32, st.binary(max_size=40))


def bytes_of(frame: Frame) -> bytes:
    return encode(frame.type, frame.body, flags=frame.flags, stream=frame.stream, sequence=frame.sequence)


def body_of(frame: bytes) -> bytes:
    (one,) = split(frame)
    return one.body


def test_the_header_is_these_nineteen_bytes() -> None:
    frame = encode(Type.DATA, b"abc", flags=Flag.SYN | Flag.FIN, stream=0x01020304, sequence=0x05060708)
    assert frame.hex() == "48524d50011003010203040506070800000003616263"
    assert HEADER_SIZE == 19


def test_sequences_are_cut_to_their_low_half() -> None:
    assert split(encode(Type.DATA, sequence=2**32 + 5))[0].sequence == 5


@given(st.lists(FRAMES, max_size=5))
def test_frames_come_back_as_they_went(sent: list[Frame]) -> None:
    assert split(b"".join(map(bytes_of, sent))) == sent


@given(st.lists(FRAMES, min_size=1, max_size=3), st.data())
def test_a_cut_frame_is_refused(sent: list[Frame], draw: st.DataObject) -> None:
    whole = b"".join(map(bytes_of, sent))
    ends = {sum(len(bytes_of(f)) for f in sent[:n]) for n in range(len(sent) + 1)}
    cut = draw.draw(st.integers(0, len(whole)).filter(lambda n: n not in ends))
    with pytest.raises(ProtocolError):
        split(whole[:cut])


@pytest.mark.parametrize("at", range(5))
def test_another_magic_or_version_is_refused(at: int) -> None:
    wrong = bytearray(encode(Type.DATA))
    wrong[at] ^= 1
    with pytest.raises(ProtocolError):
        split(bytes(wrong))


@given(st.binary(max_size=60))
def test_any_bytes_are_frames_or_a_protocol_error(data: bytes) -> None:
    try:
        split(data)
    except ProtocolError:
        pass


BODIES = {
    "link": (Link(b"s" * 16, True, 2**63, 7).encode(), 33, Link.decode),
    "credit 0": (Credit(2**40, 9).encode(0), 16, lambda body: Credit.decode(body, 0)),
    "credit n": (Credit(2**40).encode(5), 8, lambda body: Credit.decode(body, 5)),
    "ack": (encode_ack(2**63), 8, frames.decode_ack),
    "ping": (Ping(2**63, 3, 4, False, 5, 6).encode(Type.PING), 29, Ping.decode),
    "close": (Close(CloseMode.END, 6, 5, 1000).encode(), 10, Close.decode),
    "refuse": (Refuse(2, (1, 9), (1, 2), 30).encode(), 3 + 4 + 2 + 4, Refuse.decode),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_too_short_by_any_number_of_bytes_is_refused(name: str) -> None:
    frame, size, decode = BODIES[name]
    body = body_of(frame)
    assert len(body) == size
    decode(body)
    for n in range(size):
        with pytest.raises(ProtocolError):
            decode(body[:n])


@pytest.mark.parametrize("name", [n for n in BODIES if n not in ("link", "close", "refuse")])
def test_the_tail_of_a_longer_body_is_a_later_versions_business(name: str) -> None:
    frame, _, decode = BODIES[name]
    assert decode(body_of(frame) + b"tail") == decode(body_of(frame))


@given(st.binary(min_size=16, max_size=16), st.booleans(), U64, U64, st.binary(max_size=50))
def test_link_there_and_back(session: bytes, resumed: bool, recv: int, send: int, caps: bytes) -> None:
    link = Link(session, resumed, recv, send, caps)
    assert Link.decode(body_of(link.encode())) == link


def test_link_says_new_or_resumed_and_nothing_else() -> None:
    body = bytearray(body_of(Link(b"s" * 16, False, UNKNOWN_MARK, 0).encode()))
    body[16] = 2
    with pytest.raises(ProtocolError):
        Link.decode(bytes(body))


@given(U64, U64, st.integers(1, 2**32 - 1))
def test_credit_there_and_back(limit: int, streams: int, stream: int) -> None:
    (on_session,) = split(Credit(limit, streams).encode(0))
    assert (on_session.type, on_session.stream) == (Type.CREDIT, 0)
    assert Credit.decode(on_session.body, 0) == Credit(limit, streams)
    (on_stream,) = split(Credit(limit).encode(stream))
    assert on_stream.stream == stream
    assert Credit.decode(on_stream.body, stream) == Credit(limit)


@given(U64)
def test_ack_there_and_back(number: int) -> None:
    assert frames.decode_ack(body_of(encode_ack(number))) == number


@given(U64, U32, U32, st.booleans(), U64, U32, st.sampled_from([Type.PING, Type.PONG]))
def test_ping_there_and_back(n: int, running: int, ms: int, accepting: bool, ack: int, links: int, type: Type) -> None:
    (frame,) = split(Ping(n, running, ms, accepting, ack, links).encode(type))
    assert frame.type == type
    assert Ping.decode(frame.body) == Ping(n, running, ms, accepting, ack, links)


@given(st.sampled_from(CloseMode), U8, U32, U32, st.text(max_size=700))
def test_close_there_and_back_with_its_text_cut(mode: CloseMode, code: int, last: int, ms: int, text: str) -> None:
    close = Close.decode(body_of(Close(mode, code, last, ms, text).encode()))
    assert close[:4] == (mode, code, last, ms)
    cut = text.encode("utf-8", "replace")[: frames.CLOSE_TEXT_MAX]
    assert close.text == cut.decode("utf-8", "replace")


def test_a_text_that_goes_on_and_on_is_not_read_to_its_end() -> None:
    body = struct.pack(">BBII", 1, 1, 0, 0) + b"a" * 100_000
    assert len(Close.decode(body).text) == frames.CLOSE_TEXT_MAX


@given(U8, st.lists(st.integers(0, 2**16 - 1), max_size=9), st.lists(U8, max_size=9), U32, st.text(max_size=40))
def test_refuse_there_and_back(code: int, versions: list, suites: list, after: int, text: str) -> None:
    refuse = Refuse(code, tuple(versions), tuple(suites), after, text)
    again = Refuse.decode(body_of(refuse.encode()))
    assert again[:4] == refuse[:4]
    assert again.text == text.encode("utf-8", "replace").decode()


@given(st.sampled_from(sorted(BODIES)), st.binary(max_size=60))
def test_any_bytes_are_a_body_or_a_protocol_error(name: str, body: bytes) -> None:
    try:
        BODIES[name][2](body)
    except ProtocolError:
        pass
