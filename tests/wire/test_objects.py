"""One JSON object a message: there and back, strict, and every fault named."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hermes_peer.errors import ProtocolError
from hermes_peer.wire.messages import Envelope
from hermes_peer.wire.objects import Party, decode_object, encode_object

ME, YOU = Party("planner", "planner-1", "hermes://10.0.0.1:7891"), Party("worker")
FULL = Envelope("event", "order.paid", "n-2", 2.5, "trace", "span", 1_700_000_000_000, 2, True, True)
FULL.parent_id, FULL.idempotency_key, FULL.delivery = "above", "order-7", "durable"


@pytest.mark.parametrize(
    ("envelope", "payload"),
    [
        (Envelope(method="m", message_id="1"), b"{}"),
        (FULL, b'{"n": [1, 2.50, null, "\xc3\xa9"]}'),
        (Envelope("response", message_id="1"), b"null"),
        (Envelope("error", message_id="1"), b'{"code":4}'),
    ],
)
@pytest.mark.parametrize("signature", [None, "abc", {"key": "k", "value": None}])
def test_there_and_back(envelope: Envelope, payload: bytes, signature: Any) -> None:
    data = encode_object(envelope, payload, from_=ME, to=YOU, version="2.1", signature=signature)
    assert decode_object(data) == (envelope, payload, ME, YOU)  # the payload's own bytes
    plain = json.loads(data)
    assert (plain["hermes_peer"], plain["version"], plain["payload"]) == (1, "2.1", json.loads(payload))
    assert plain["from"] == {"agent_id": "planner", "instance_id": "planner-1", "address": "hermes://10.0.0.1:7891"}
    assert plain["to"] == {"agent_id": "worker", "instance_id": "", "address": ""}
    assert {"message_id", "type", "method", "ttl", "timestamp", "trace_id"} <= set(plain)
    assert plain.get("signature") == signature and ("signature" in plain) is (signature is not None)


def test_what_is_not_known_is_passed_over_and_what_is_not_there_has_its_default() -> None:
    data = b'{"later":[1],"hermes_peer":1,"message_id":"1","type":"request","from":{"agent_id":"a","x":1},"to":{"agent_id":"b"},"payload":{}}'  # noqa: E501
    assert decode_object(data) == (Envelope(message_id="1"), b"{}", Party("a"), Party("b"))


@pytest.mark.parametrize("payload", [b"", b"{", b"nan", b'{"a":1,"a":2}', b"{} {}", b'"\\ud800"', b"1e999"])
def test_a_payload_that_is_not_strict_json_is_not_written(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        encode_object(FULL, payload, from_=ME, to=YOU)


def test_a_number_that_json_has_no_form_for_is_not_written() -> None:
    for envelope, signature in ((Envelope(ttl=float("nan"), message_id="1"), None), (FULL, float("inf"))):
        with pytest.raises(ValueError, match="finite"):
            encode_object(envelope, b"{}", from_=ME, to=YOU, signature=signature)


GOOD = json.loads(encode_object(FULL, b"{}", from_=ME, to=YOU))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hermes_peer": 2}, "version 2"),
        ({"hermes_peer": None}, "hermes_peer"),
        ({"type": "order"}, "type"),
        ({"type": None}, "type"),
        ({"message_id": ""}, "message_id is missing"),
        ({"message_id": "é"}, "message_id must be printable"),
        ({"message_id": 7}, "message_id"),
        ({"attempt": 0}, "attempt"),
        ({"ttl": "soon"}, "ttl"),
        ({"from": {}}, "agent_id"),
        ({"to": {"agent_id": ""}}, "agent_id"),
        ({"to": "worker"}, "to"),
        ({"payload": [1]}, "JSON object"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        decode_object(msgspec.json.encode(GOOD | change))


@pytest.mark.parametrize("missing", ["hermes_peer", "message_id", "type", "from", "to", "payload"])
def test_what_must_be_there(missing: str) -> None:
    with pytest.raises(ProtocolError, match=missing):
        decode_object(json.dumps({k: v for k, v in GOOD.items() if k != missing}).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"\xff", json.dumps(GOOD).encode() + b"x", b'{"hermes_peer":1,' + json.dumps(GOOD).encode()[1:],
     json.dumps(GOOD).replace('"ttl": 2.5', '"ttl": NaN').encode(), b"[" * 5000],
)  # fmt: skip
def test_what_is_not_strict_json_is_no_message(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="no message"):
        decode_object(data)
