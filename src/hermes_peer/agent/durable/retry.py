"""When durable work is tried again, and what its end was, as values.

Knows: classes of errors, spacing, ids that sort by time. Refuses to know: journals, links, clocks.
Called by: outbox, inbox, work.
"""

from __future__ import annotations

import os
import random
import uuid
from hashlib import sha256
from typing import Any, NamedTuple

from hermes_peer.errors import CallError, ProtocolError, call_error, error_body
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import Envelope, split_envelope

TRIES = 5
FIRST_S = 1.0
LONGEST_S = 30.0


class End(NamedTuple):
    """An END message, read: the result, or the error."""

    value: Any
    error: CallError | None
    items: int = 0  # how many stream items the work has
    contract: str = ""  # of the method that ran


def read_end(message: bytes, trace_id: str = "") -> End:
    """What a stored or received END says. Never raises: what cannot be read is an error of its own."""
    try:
        envelope, payload = split_envelope(message)
        value = jsons.decode(payload) if payload else None
    except (ProtocolError, ValueError) as bad:
        return End(None, CallError("bad_answer", f"the outcome cannot be read: {bad}", code=7))
    if envelope.type == "error":
        error = call_error(value if isinstance(value, dict) else {}, trace_id)
        return End(None, error, envelope.items, envelope.contract)
    return End(value, None, envelope.items, envelope.contract)


def pause(attempts: int, asked: float | None = None) -> float:
    """Seconds before the next try after so many: 1, 2, 4 … 30 s and up to half of it more; or what the error asked."""
    wait: float = min(LONGEST_S, FIRST_S * 2.0 ** min(20, max(0, attempts - 1))) * random.uniform(1.0, 1.5)
    return max(wait, asked or 0.0)


def digest(method: str, payload: bytes) -> bytes:
    """What tells two works with one id apart: 16 bytes."""
    return sha256(method.encode() + b"\0" + payload).digest()[:16]


def supersedes(new: Envelope, old: Envelope) -> bool:
    """Whether a repeated submission asks for another run rather than for the outcome that is there."""
    return (new.round, new.attempt) > (old.round, old.attempt)


def new_work_id(now_ms: int) -> str:
    """A UUID of version 7: sorts by time, unique over restarts (RFC 9562)."""
    number = (now_ms & 0xFFFFFFFFFFFF) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


def key_id(target: str, method: str, key: str) -> str:
    """The message id of work that has an idempotency key and none of its own: the same for the same step, so that
    both journals know it again."""
    return f"key-{sha256(chr(0).join((target, method, key)).encode()).hexdigest()[:40]}"


def error_answer(error: CallError) -> bytes:
    """The END message of an error."""
    return messages.ERROR_HEAD + jsons.encode(error_body(error), "error")


def item_bytes(value: Any) -> bytes:
    """A stream item as the log keeps it: its kind, then JSON or the bytes themselves. Raises TypeError, ValueError."""
    if type(value) is bytes:
        return bytes([messages.RAW]) + value
    return bytes([messages.ITEM]) + jsons.encode(value, "item")


def item_value(data: bytes) -> Any:
    """The item that `item_bytes` wrote."""
    return data[1:] if data[0] == messages.RAW else jsons.decode(data[1:])


_PROGRESS = bytes([messages.ITEM]) + b'{"progress":'


def is_progress(data: bytes) -> bool:
    """Whether a logged item is a report of progress: a second run makes reports of its own."""
    return data.startswith(_PROGRESS)
