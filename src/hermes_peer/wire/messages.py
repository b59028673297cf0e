"""Messages: what travels inside a stream.

Knows: the kinds, the envelope, where the payload begins (spec: messages). Refuses to know: streams, methods.
Called by: the agent's two sides, the demo's second implementation tests. A message is `u8 kind` and a body; OPEN
and END carry an envelope (JSON) and then the payload's own bytes, so that neither is ever nested as text.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Literal

import msgspec

from hermes_peer.errors import ProtocolError

ID_MAX = 128
OPENING = ("request", "event")


class Kind(IntEnum):
    """First byte of every message."""

    OPEN = 1  # u32 n, envelope of n bytes, payload
    ITEM = 2  # u64 index from 0 per direction, then JSON
    ACCEPTED = 3  # durable work is on disk
    END = 4  # u32 n, envelope, payload: the answer or the error
    NOMORE = 5  # ends the opener's items
    PROGRESS = 6  # JSON: state, tokens_used, partial; beside the items, not one of them
    RAW = 7  # an item of plain bytes: u64 index, then the bytes


class Envelope(msgspec.Struct, omit_defaults=True, gc=False):
    """Envelope of OPEN and END. On a link, what equals the handshake's (hermes_peer, version, from, to) is left out.

    `ttl` is in seconds left, absent = the receiver's default, 0 = spent. `timestamp` is Unix time in ms, for
    people; nothing is decided by it. Unknown members are ignored (mission M16).
    """

    type: Literal["request", "response", "event", "error"] = "request"
    method: str = ""
    message_id: str = ""
    ttl: float | None = None
    trace_id: str = ""
    span_id: str = ""
    timestamp: int = 0
    attempt: int = 1
    own_id: bool = False  # the application chose message_id: keep the outcome for the ttl
    detach: bool = False  # the handler goes on without its caller
    delivery: Literal["volatile", "durable"] = "volatile"
    idempotency_key: str = ""
    round: int = 0  # rises when an operator sends a dead letter again: run what had failed
    items: int = 0  # on END of durable work: how many stream items there are
    contract: str = ""  # on END of durable work: what its method promises about being run again
    again: bool = False  # durable work that was sent before under this id: the receiver may know it
    parent_id: str = ""  # the span_id of the request whose handler makes this call; empty at the root of a trace


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Envelope).decode
_U32 = struct.Struct(">BI")
_ITEM = struct.Struct(">BQ")
_unpack_head = _U32.unpack_from
pack_item = _ITEM.pack
unpack_item = _ITEM.unpack_from
ITEM_HEAD = _ITEM.size
ITEM, RAW, END = int(Kind.ITEM), int(Kind.RAW), int(Kind.END)
PROGRESS_HEAD = bytes([Kind.PROGRESS])
RESPONSE_HEAD = (lambda e: _U32.pack(Kind.END, len(e)) + e)(_encode(Envelope(type="response")))
ERROR_HEAD = (lambda e: _U32.pack(Kind.END, len(e)) + e)(_encode(Envelope(type="error")))
NOMORE_MESSAGE = bytes([Kind.NOMORE])


def encode_open(envelope: Envelope, payload: bytes) -> bytes:
    """OPEN: the first message of a stream."""
    head = _encode(envelope)
    return _U32.pack(1, len(head)) + head + payload


def encode_end(envelope: Envelope, payload: bytes) -> bytes:
    """END: the last message of the called side."""
    head = _encode(envelope)
    return _U32.pack(4, len(head)) + head + payload


def split_envelope(message: bytes) -> tuple[Envelope, bytes]:
    """Envelope and payload of an OPEN or END. Raises ProtocolError naming what is wrong."""
    if len(message) < 5:
        raise ProtocolError("a message ends before its envelope")
    end = 5 + _unpack_head(message)[1]
    if end > len(message):
        raise ProtocolError("an envelope is longer than its message")
    try:
        return _decode(message[5:end]), message[end:]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"the envelope cannot be read: {error}") from None


def check_envelope(envelope: Envelope) -> str:
    """What is wrong with a received OPEN's envelope, in one sentence; empty if nothing is."""
    ids = envelope.message_id + envelope.span_id
    if (
        envelope.message_id
        and len(ids) <= ID_MAX
        and ids.isascii()
        and ids.isprintable()
        and len(envelope.trace_id) <= ID_MAX
        and envelope.attempt >= 1
        and envelope.type in OPENING
        and not (envelope.idempotency_key or envelope.parent_id)
    ):
        return ""
    for name, value in (
        ("message_id", envelope.message_id),
        ("trace_id", envelope.trace_id),
        ("span_id", envelope.span_id),
        ("parent_id", envelope.parent_id),
        ("idempotency_key", envelope.idempotency_key),
    ):
        if len(value) > ID_MAX:
            return f"{name} must have at most {ID_MAX} characters, it has {len(value)}"
        if value and not (value.isascii() and value.isprintable()) and name != "trace_id":
            return f"{name} must be printable ASCII"
    if not envelope.message_id:
        return "message_id is missing"
    if envelope.type not in OPENING:
        return f"a stream is opened by a request or an event, not by {envelope.type!r}"
    return "" if envelope.attempt >= 1 else "attempt counts from 1"
