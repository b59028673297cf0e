"""Invoke v1.2: both forms of every type, what is refused, ids, a hop."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.errors import Code, DeadlineExceeded
from hermes_peer.wire import invoke
from hermes_peer.wire.invoke import (
    HEADER_SIZE,
    BadMessage,
    Meta,
    Type,
    check_meta,
    decode_binary,
    decode_json,
    encode_binary,
    encode_json,
    forwarded,
    stable_agent_id,
)
from tests.wire import vectors_invoke as made
from tests.wire.vectors_invoke import ME, TRACE, YOU, meta_json

VECTORS = json.loads(made.FILE.read_text())


def test_the_vectors_are_fresh() -> None:
    assert made.FILE.read_text() == made.text(), "run: python -m tests.wire.vectors_invoke"


def test_sixteen_types_and_sixty_four_bytes() -> None:
    assert [int(each) for each in Type] == list(range(1, 17))
    assert HEADER_SIZE == 64 and VECTORS["types"]["GOODBYE"] == 16


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda v: v["name"])
def test_both_forms_of_every_type(vector: dict[str, Any]) -> None:
    by_json, by_binary = decode_json(vector["json"].encode()), decode_binary(bytes.fromhex(vector["binary"]))
    assert by_json == by_binary and by_json.payload == vector["payload"]
    assert by_json.meta.msg_type == Type[vector["name"]] and by_json.meta.trace_id == TRACE
    assert encode_json(by_binary.meta, by_binary.payload).decode() == vector["json"]
    assert encode_binary(by_json.meta, by_json.payload).hex() == vector["binary"]


@pytest.mark.parametrize("vector", VECTORS["refused_meta"], ids=lambda v: v["name"])
def test_refused_metas(vector: dict[str, Any]) -> None:
    with pytest.raises(BadMessage) as refused:
        decode_json(json.dumps({"meta": vector["meta"], "payload": {}}).encode())
    error = refused.value
    assert error.reason == vector["reason"] and error.code is Code.ERROR_INVALID_REQUEST
    assert error.details["field"] and len(error.message) > 10
    if vector["meta"].get("sender_id") == "me":
        assert error.sender_id == "me"  # whom to answer is known, whatever else is wrong
    if vector["meta"].get("trace_id") == "t":
        assert error.trace_id == "t"


@pytest.mark.parametrize("payload", VECTORS["refused_payloads"], ids=json.dumps)
def test_refused_payloads(payload: Any) -> None:
    with pytest.raises(BadMessage, match=r"must be a JSON object, not (an? |null)") as refused:
        decode_json(json.dumps({"meta": meta_json(), "payload": payload}).encode())
    assert refused.value.reason == "payload_not_object" and refused.value.sender_id == "me"


@pytest.mark.parametrize("vector", VECTORS["refused_bodies"], ids=lambda v: v["name"])
def test_refused_bodies(vector: dict[str, Any]) -> None:
    with pytest.raises(BadMessage) as refused:
        decode_json(vector["body"].encode())
    assert refused.value.reason == vector["reason"]


@pytest.mark.parametrize("vector", VECTORS["refused_binary"], ids=lambda v: v["name"])
def test_refused_binary(vector: dict[str, Any]) -> None:
    with pytest.raises(BadMessage) as refused:
        decode_binary(bytes.fromhex(vector["binary"]))
    assert refused.value.reason == vector["reason"]


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=128)
IDS = st.uuids().map(str) | st.just("")
TRACES = st.binary(min_size=16, max_size=16).map(lambda raw: "" if raw == bytes(16) else raw.hex())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
PAYLOAD = st.dictionaries(TEXT, JSON, max_size=5)


@given(st.sampled_from(Type), TEXT, TEXT, st.integers(0, 2**32 - 1) | st.floats(0, 1e9), TEXT, PAYLOAD)
def test_the_json_form_comes_back(kind: Type, sender: str, receiver: str, ttl: float, trace: str, payload: Any) -> None:
    meta = Meta(kind, sender, receiver or None, ttl, trace)
    found = decode_json(encode_json(meta, payload))
    assert found.meta == meta and found.payload == payload


@given(st.sampled_from(Type), IDS, IDS, st.integers(0, 2**32 - 1), TRACES, PAYLOAD)
def test_the_binary_form_comes_back(kind: Type, sender: str, receiver: str, ttl: int, trace: str, payload: Any) -> None:
    meta = Meta(kind, "" if sender == str(invoke.id_text(bytes(16))) else sender, receiver or None, ttl, trace)
    data = encode_binary(meta, payload)
    assert data[:2] == bytes([0x12, kind]) and decode_binary(data) == invoke.Message(meta, payload)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for read in (decode_json, decode_binary):
        with contextlib.suppress(BadMessage):
            read(data)


@given(JSON)
def test_no_value_in_the_place_of_a_meta_raises_anything_else(value: Any) -> None:
    for raw in (value, meta_json(sender_id=value), meta_json(ttl=value), meta_json(version=value)):
        with contextlib.suppress(BadMessage):
            check_meta(raw)


def test_escapes_and_raw_text_are_one(  # mission I16
) -> None:
    raw = json.dumps({"meta": meta_json(), "payload": {"x": "四é"}}, ensure_ascii=False).encode()
    escaped = json.dumps({"meta": meta_json(), "payload": {"x": "四é"}}).encode()
    assert raw != escaped and decode_json(raw) == decode_json(escaped)
    assert "四".encode() in encode_json(Meta(1), {"x": "四"})


def test_what_has_no_binary_form() -> None:
    for meta in (Meta(1, "a name"), Meta(1, ME, "calc-001"), Meta(1, ME.upper()), Meta(1, ME, None, 1, "my-trace-123")):
        with pytest.raises(ValueError, match="use the JSON form"):
            encode_binary(meta, {})
    assert decode_binary(encode_binary(Meta(1, ttl=1.9), {})).meta.ttl == 1


def test_one_hop() -> None:
    hop = VECTORS["hop"]
    before = check_meta(hop["before"])
    after = forwarded(before, hop["sender_id"], hop["receiver_id"])
    assert after == check_meta(hop["after"])
    assert after.trace_id == before.trace_id and after.msg_type == before.msg_type
    for ttl in hop["refused_at_ttl"]:
        with pytest.raises(DeadlineExceeded, match="leaves nothing") as spent:
            forwarded(Meta(1, ME, YOU, ttl, "t"), YOU, ME)
        assert spent.value.trace_id == "t"


def test_a_circle_ends() -> None:
    meta = Meta(1, ME, YOU, 65, "t")
    for _ in range(64):
        meta = forwarded(meta, YOU, ME)
    with pytest.raises(DeadlineExceeded):  # the seed's max(1, ttl - 1) would never end
        forwarded(meta, YOU, ME)


@pytest.mark.parametrize("vector", VECTORS["stable_ids"], ids=lambda v: v["service"])
def test_stable_ids(vector: dict[str, str]) -> None:
    id = stable_agent_id(vector["service"], vector["env"], vector["host"])
    assert id == vector["id"] and id[14] == "4" and id[19] in "89ab" and invoke.is_uuid(id)


def test_the_ttl_of_an_answer_is_never_spent() -> None:
    assert [invoke.whole_seconds(left) for left in (0, 0.1, 1, 1.1, 1e12)] == [1, 1, 1, 2, 2**32 - 1]
