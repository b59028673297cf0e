"""A message as one JSON object: for logs, files and queues, where no link says who speaks (spec: messages, section 6).

Knows: the members that a link leaves out, and where the payload stands. Refuses to know: links, trust, what a
signature says. Called by: whoever keeps or shows a whole message; never on the way of a call.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hermes_peer.errors import ProtocolError
from hermes_peer.wire import jsons
from hermes_peer.wire.frames import VERSION
from hermes_peer.wire.messages import OPENING, Envelope, check_envelope

ALWAYS = ("message_id", "type", "method", "ttl", "timestamp", "trace_id")  # shown even if they say nothing


class Party(msgspec.Struct, frozen=True):
    """Who speaks, or who is meant. Nothing here is proven."""

    agent_id: str
    instance_id: str = ""
    address: str = ""


class _Object(Envelope, kw_only=True, rename={"from_": "from"}):
    hermes_peer: int
    message_id: str
    type: Any
    from_: Party
    to: Party
    payload: msgspec.Raw
    version: str = ""
    signature: Any = None


_decode = msgspec.json.Decoder(_Object).decode
_MORE = [f for f in msgspec.structs.fields(Envelope) if f.name not in ALWAYS]


def encode_object(
    envelope: Envelope, payload: bytes, *, from_: Party, to: Party, version: str = "", signature: Any = None
) -> bytes:
    """The object of one message. `payload` is JSON and stands in it as it is; `signature` is handed on unread.

    Raises ValueError for what is not strict JSON.
    """
    jsons.strict_decode(payload)
    told: dict[str, Any] = {"hermes_peer": VERSION, "version": version}
    told |= {name: getattr(envelope, name) for name in ALWAYS}
    told |= {f.name: value for f in _MORE if (value := getattr(envelope, f.name)) != f.default}
    told |= {"from": from_, "to": to}
    if signature is not None:
        told["signature"] = signature
    return jsons.encode(told, "object")[:-1] + b',"payload":' + payload + b"}"


def decode_object(data: bytes) -> tuple[Envelope, bytes, Party, Party]:
    """Envelope, payload, from, to. Members that are not known, and the signature, are passed over.

    Raises ProtocolError naming what is wrong.
    """
    try:
        jsons.strict_decode(data)
        found = _decode(data)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"this is no message: {error}") from None
    if found.hermes_peer != VERSION:
        raise ProtocolError(f"a message of version {found.hermes_peer}, this side reads {VERSION}")
    if not (found.from_.agent_id and found.to.agent_id):
        raise ProtocolError("from and to must each name an agent_id")
    try:
        values = {f.name: getattr(found, f.name) for f in msgspec.structs.fields(Envelope)}
        envelope = msgspec.convert(values, Envelope)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"this is no message: {error}") from None
    wrong = check_envelope(msgspec.structs.replace(envelope, type="request"))
    payload = bytes(found.payload)
    if not wrong and envelope.type in OPENING and not payload.startswith(b"{"):
        wrong = "the payload of a request or an event is a JSON object"
    if wrong:
        raise ProtocolError(f"this is no message: {wrong}")
    return envelope, payload, found.from_, found.to
