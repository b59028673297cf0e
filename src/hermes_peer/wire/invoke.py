"""Invoke v1.2: the message of the plain door, as 64 bytes and a JSON object, or as one JSON object.

Knows: both forms, the 16 types, what is wrong with a meta (spec: invoke). Refuses to know: methods, transports.
Called by: the doors, their client, `hermes-peer id`. Everything received here is read strictly: what arrives at a
door was written by anybody.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from enum import IntEnum
from typing import Any

import msgspec

from hermes_peer.errors import CallError, Code, DeadlineExceeded
from hermes_peer.wire import jsons

VERSION = "1.2"
VERSION_BYTE = 0x12
HEADER = struct.Struct(">BBH16s16sI16sII")
HEADER_SIZE = HEADER.size
TTL_MAX = 0xFFFFFFFF
TEXT_MAX = 128  # characters of an id or a trace id
HOP_S = 1  # what forwarding takes of the ttl, however long it took
NONE = bytes(16)


class Type(IntEnum):
    """msg_type. A caller sends 1, 4, 7, 8, 10, 12, 13, 14, 16; a door answers with the rest."""

    TASK_REQUEST = 1  # do this: `tool`, `task_id`, and the tool's own fields
    TASK_RESULT = 2  # how a task ended; exactly one for each request
    TASK_PROGRESS = 3  # how far it is
    TASK_CANCEL = 4  # give a running task up: `task_id`
    TASK_ACK = 5  # a task was taken, an event handled, a cancel heard
    INFO_REQUEST = 6  # the running task asks back: `info_id`, `tool`, `payload`
    INFO_RESULT = 7  # the answer to that: `info_id`, `result`
    HEARTBEAT = 8  # are you there
    HEARTBEAT_ACK = 9  # yes
    CAPABILITY_QUERY = 10  # what may I call
    CAPABILITY_RESULT = 11  # these methods, with their schemas
    STREAM_ITEM = 12  # one item of a stream: `task_id`, `index`, `item`
    STREAM_END = 13  # there are no more items: `task_id`, `items`
    EVENT = 14  # this has happened: `tool` names it
    ERROR = 15  # a message could not be read; no task is meant
    GOODBYE = 16  # nothing follows


class Meta(msgspec.Struct, frozen=True, gc=False, tag_field="version", tag=VERSION):
    """Who, what, how long. `receiver_id` None: nobody by name (a door's own agent).

    `ttl` in seconds left. Ids and trace are texts; only canonical UUIDs and 32 hex digits have a binary form.
    """

    msg_type: int
    sender_id: str = ""
    receiver_id: str | None = None
    ttl: float = 0
    trace_id: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message; `payload` is a JSON object as a dict."""

    meta: Meta
    payload: dict[str, Any]


class BadMessage(CallError):
    """A message that cannot be taken (code 2). Its sender and trace, as far as they were read, are for the answer."""

    code_default = Code.ERROR_INVALID_REQUEST

    def __init__(self, reason: str, message: str, *, details: Any = None) -> None:
        super().__init__(reason, message, details=details)
        self.sender_id = ""


FIELDS = ("version", "msg_type", "sender_id", "receiver_id", "ttl", "trace_id")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HEX32 = re.compile(r"[0-9a-f]{32}")
_encode = msgspec.json.Encoder().encode
_EXAMPLE = '{"meta": {"version": "1.2", "msg_type": 1, …}, "payload": {"tool": …}}'


# ---------------------------------------------------------------- the JSON form


def decode_json(data: bytes) -> Message:
    """One message in its JSON form. Raises BadMessage with a plain sentence."""
    try:
        whole = jsons.strict_decode(data)
    except ValueError as error:
        raise BadMessage("invalid_json", _sentence(error)) from None
    if not isinstance(whole, dict):
        raise BadMessage("not_an_object", f"the message must be a JSON object, not {_kind(whole)}: {_EXAMPLE}")
    if whole.keys() != _PARTS:
        for part in ("meta", "payload"):
            if part not in whole:
                lacking = BadMessage("missing_field", f"`{part}` is missing: {_EXAMPLE}", details={"field": part})
                raise _signed(lacking, whole.get("meta"))
        extra = sorted(whole.keys() - _PARTS)[0]
        raise _signed(_unknown(extra, "the message", sorted(_PARTS)), whole["meta"])
    raw = whole["meta"]
    try:
        meta = check_meta(raw)
        return Message(meta, payload_object(whole["payload"]))
    except BadMessage as error:
        raise _signed(error, raw) from None


_PARTS = frozenset({"meta", "payload"})


def encode_json(meta: Meta, payload: Any) -> bytes:
    """A message in its JSON form. `payload` is an object, or msgspec.Raw of one. Raises ValueError, TypeError."""
    return _encode({"meta": meta, "payload": payload})


def payload_object(value: Any) -> dict[str, Any]:
    """The payload as it must be: an object. Raises BadMessage that says what came instead."""
    if type(value) is dict:
        return value
    raise BadMessage(
        "payload_not_object",
        f'the payload must be a JSON object, not {_kind(value)}; wrap it: {{"tool": "…", "value": …}}',
        details={"expected": "object", "got": _kind(value)},
    )


def check_meta(raw: Any) -> Meta:
    """The meta of a received JSON form. Raises BadMessage naming the field and what it should be."""
    if type(raw) is not dict:
        raise BadMessage("meta_not_object", f"`meta` must be a JSON object, not {_kind(raw)}")
    if len(raw) != 6 or not all(name in raw for name in FIELDS):
        for name in FIELDS:
            if name not in raw:
                raise _field("missing_field", name, f"missing; a meta has {', '.join(FIELDS)}")
        extra = sorted(raw.keys() - set(FIELDS))[0]
        raise _unknown(extra, "meta, which cannot be extended", list(FIELDS))
    version, kind, sender, receiver, ttl, trace = [raw[name] for name in FIELDS]
    if version != VERSION or type(version) is not str:
        shown = str(version)[:TEXT_MAX]
        raise _field("unsupported_version", "version", f'unsupported version {shown}; write "1.2"', expected=[VERSION])
    if type(kind) is not int or kind not in _KINDS:
        known = {int(each): each.name for each in Type}
        raise _field("unknown_type", "msg_type", f"no type {str(kind)[:TEXT_MAX]}; known are 1 to 16", expected=known)
    if type(ttl) not in (int, float) or not 0 <= ttl <= TTL_MAX:
        raise _field("invalid_ttl", "ttl", "must be a number of seconds from 0 to 4294967295", expected="number")
    return Meta(kind, _text("sender_id", sender), _text("receiver_id", receiver) or None, ttl, _text("trace_id", trace))


_KINDS = frozenset(int(each) for each in Type)


def _text(name: str, value: Any) -> str:
    if value is None and name == "receiver_id":
        return ""
    if type(value) is not str:
        null = ", or null for nobody by name" if name == "receiver_id" else ""
        raise _field("invalid_id", name, f"must be a text{null}, not {_kind(value)}", expected="string")
    if len(value) > TEXT_MAX or not value.isprintable():
        raise _field("invalid_id", name, f"must have at most {TEXT_MAX} printable characters", expected="string")
    return value


# ---------------------------------------------------------------- the binary form


def read_header(data: bytes, *, payload_max: int) -> tuple[Meta, int]:
    """Meta and length of the payload behind it, from 64 bytes. Raises BadMessage: what follows cannot be read."""
    if len(data) < HEADER_SIZE:
        raise BadMessage("short_header", f"the meta has {HEADER_SIZE} bytes, {len(data)} came")
    version, kind, zero, sender, receiver, ttl, trace, length, nought = HEADER.unpack_from(data)
    meta = Meta(kind, id_text(sender), id_text(receiver) or None, ttl, "" if trace == NONE else trace.hex())
    try:
        if version != VERSION_BYTE:
            said = f"unsupported version byte 0x{version:02x}; it is 0x{VERSION_BYTE:02x} for version {VERSION}"
            raise _field("unsupported_version", "version", said, expected=[VERSION])
        if kind not in _KINDS:
            known = {int(each): each.name for each in Type}
            raise _field("unknown_type", "msg_type", f"no type {kind}; known are 1 to 16", expected=known)
        if zero or nought:
            raise _field("reserved", "reserved", "the reserved bytes must be zero", expected=0)
        if length > payload_max:
            said = f"announces {length} bytes; at most {payload_max} are taken"
            raise _field("payload_too_large", "payload_length", said, expected=payload_max)
    except BadMessage as error:
        error.sender_id, error.trace_id = meta.sender_id, meta.trace_id
        raise
    return meta, length


def decode_payload(data: bytes, meta: Meta) -> dict[str, Any]:
    """The payload behind a binary meta. Raises BadMessage."""
    try:
        try:
            return payload_object(jsons.strict_decode(data))
        except ValueError as bad:
            raise BadMessage("invalid_json", f"the payload: {_sentence(bad)}") from None
    except BadMessage as error:
        error.sender_id, error.trace_id = meta.sender_id, meta.trace_id
        raise


def decode_binary(data: bytes, *, payload_max: int = 5 * 1024 * 1024) -> Message:
    """One whole message in its binary form, no byte more. Raises BadMessage."""
    meta, length = read_header(data, payload_max=payload_max)
    if len(data) != HEADER_SIZE + length:
        have = len(data) - HEADER_SIZE
        error = BadMessage("length", f"the meta announces a payload of {length} bytes, {have} came")
        error.sender_id, error.trace_id = meta.sender_id, meta.trace_id
        raise error
    return Message(meta, decode_payload(data[HEADER_SIZE:], meta))


def encode_binary(meta: Meta, payload: Any) -> bytes:
    """A message in its binary form; a fraction of a second of ttl is dropped.

    Raises ValueError for an id that is no canonical UUID, or a trace id that is not 32 hex digits: send those in the
    JSON form.
    """
    body = _encode(payload)
    return (
        HEADER.pack(
            VERSION_BYTE,
            meta.msg_type,
            0,
            id_bytes(meta.sender_id),
            id_bytes(meta.receiver_id or ""),
            min(int(meta.ttl), TTL_MAX),
            trace_bytes(meta.trace_id),
            len(body),
            0,
        )
        + body
    )


def id_text(raw: bytes) -> str:
    """16 bytes as a canonical UUID; zeros are nobody."""
    if raw == NONE:
        return ""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_bytes(text: str) -> bytes:
    """The other way. Raises ValueError."""
    if not text:
        return NONE
    if _UUID.fullmatch(text) is None:
        raise ValueError(f"{text[:TEXT_MAX]!a} is no canonical UUID, so it has no binary form: use the JSON form")
    return bytes.fromhex(text.replace("-", ""))


def trace_bytes(text: str) -> bytes:
    """A trace id as 16 bytes. Raises ValueError."""
    if not text:
        return NONE
    if _HEX32.fullmatch(text) is None:
        raise ValueError(f"{text[:TEXT_MAX]!a} is not 32 hex digits, so it has no binary form: use the JSON form")
    return bytes.fromhex(text)


def is_uuid(text: str) -> bool:
    """Whether an id names one instance exactly, and not only in words."""
    return _UUID.fullmatch(text) is not None


# ---------------------------------------------------------------- on the way


def forwarded(meta: Meta, sender_id: str, receiver_id: str | None) -> Meta:
    """The meta for the next hop: trace and type untouched, ids replaced, one second of ttl less (mission I10).

    Raises DeadlineExceeded where nothing would be left: a message that circles must end.
    """
    if meta.ttl <= HOP_S:
        raise DeadlineExceeded(
            "ttl",
            f"a ttl of {meta.ttl:g} s leaves nothing after one more hop, which costs {HOP_S} s; send it with more",
            details={"ttl": meta.ttl, "hop_s": HOP_S},
            origin="local",
            trace_id=meta.trace_id,
        )
    return Meta(meta.msg_type, sender_id, receiver_id, meta.ttl - HOP_S, meta.trace_id)


def stable_agent_id(service: str, env: str, host: str) -> str:
    """The first 16 bytes of SHA-256 of "service-env-host", written as a UUID of version 4 (mission I8)."""
    digest = bytearray(hashlib.sha256(f"{service}-{env}-{host}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return id_text(bytes(digest))


def whole_seconds(left: float) -> int:
    """What stands in the ttl of an answer: never 0, which would mean spent."""
    return min(max(1, math.ceil(left)), TTL_MAX)


# ---------------------------------------------------------------- words


def _field(reason: str, name: str, said: str, **details: Any) -> BadMessage:
    return BadMessage(reason, f"meta.{name}: {said}", details={"field": f"meta.{name}", **details})


def _unknown(name: str, where: str, allowed: list[str]) -> BadMessage:
    shown = name[:64]
    said = f"unknown field {shown!a} in {where}; allowed: {', '.join(allowed)}"
    return BadMessage("unknown_field", said, details={"field": shown, "allowed": allowed})


def _signed(error: BadMessage, raw: Any) -> BadMessage:
    """With the sender and trace of a meta that may be wrong in another place."""
    if type(raw) is dict:
        for name in ("sender_id", "trace_id"):
            text = raw.get(name)
            if type(text) is str and len(text) <= TEXT_MAX and text.isprintable():
                setattr(error, name, text)
    return error


def _sentence(error: Exception) -> str:
    said = str(error)
    return "the body is empty; send one JSON object" if said == "the JSON text is empty" else said


_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), "a number")
