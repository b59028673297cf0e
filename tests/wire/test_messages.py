"""Messages: kinds, envelopes, what is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.errors import ProtocolError
from hermes_peer.wire import messages
from hermes_peer.wire.messages import Envelope, Kind, check_envelope, encode_open, split_envelope

TEXT = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=128)


@given(TEXT, TEXT, st.floats(min_value=0, max_value=1e9), st.binary(max_size=200))
def test_an_open_comes_back(method: str, id: str, ttl: float, payload: bytes) -> None:
    went = Envelope("request", method, id, ttl, trace_id="t", attempt=3, own_id=True)
    message = encode_open(went, payload)
    assert message[0] == Kind.OPEN
    assert split_envelope(message) == (went, payload)


def test_defaults_are_left_out_and_unknown_members_ignored() -> None:
    message = encode_open(Envelope(method="m", message_id="1"), b"{}")
    assert message[5:].startswith(b'{"method":"m","message_id":"1"}')
    text = b'{"method":"m","message_id":"1","colour":"red","deadline":{"a":[1]}}'
    envelope, payload = split_envelope(b"\x01" + len(text).to_bytes(4, "big") + text + b"{}")
    assert (envelope.method, payload) == ("m", b"{}")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\x01", "ends before its envelope"),
        (b"\x01\x00\x00\x00\x09{}", "longer than its message"),
        (b"\x01\x00\x00\x00\x02[]", "cannot be read"),
        (b'\x01\x00\x00\x00\x0a{"ttl":"x"', "cannot be read"),
        (b'\x01\x00\x00\x00\x0c{"ttl":true}', "cannot be read"),
        (b'\x01\x00\x00\x00\x0b{"ttl":NaN}', "cannot be read"),
        (b'\x01\x00\x00\x00\x0f{"type":"order"}', "cannot be read"),
    ],
)
def test_a_broken_envelope_is_a_protocol_error(message: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        split_envelope(message)


@pytest.mark.parametrize(
    ("envelope", "says"),
    [
        (Envelope(method="m"), "message_id is missing"),
        (Envelope(message_id="x" * 129), "message_id must have at most 128"),
        (Envelope(message_id="a\nb"), "message_id must be printable"),
        (Envelope(message_id="é"), "message_id must be printable"),
        (Envelope(message_id="1", trace_id="t" * 129), "trace_id must have at most"),
        (Envelope(message_id="1", span_id="é"), "span_id must be printable"),
        (Envelope(message_id="1", parent_id="é"), "parent_id must be printable"),
        (Envelope(message_id="1", parent_id="p" * 129), "parent_id must have at most"),
        (Envelope(message_id="1", parent_id="p" * 128), ""),
        (Envelope("response", message_id="1"), "opened by a request"),
        (Envelope(message_id="1", attempt=0), "attempt counts from 1"),
        (Envelope(message_id="1", trace_id="日本", method="m"), ""),
        (Envelope("event", message_id="1"), ""),
    ],
)
def test_what_is_wrong_with_an_envelope(envelope: Envelope, says: str) -> None:
    found = check_envelope(envelope)
    assert says in found if says else not found


def test_the_heads_of_answers_are_constant_and_readable() -> None:
    envelope, payload = split_envelope(messages.RESPONSE_HEAD + b"7")
    assert (envelope.type, payload) == ("response", b"7")
    envelope, _ = split_envelope(messages.ERROR_HEAD)
    assert envelope.type == "error"
    assert messages.NOMORE_MESSAGE == b"\x05"
    assert messages.unpack_item(messages.pack_item(messages.ITEM, 2**40)) == (2, 2**40)
