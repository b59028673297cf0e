"""What is called, and what must come of it. Known to both programs and to the check."""

from __future__ import annotations

import hashlib

ITEM = 64  # bytes of a stream item
METHODS = ("add", "effect", "once")


def method_of(call: int) -> str:
    return METHODS[call % len(METHODS)]


def call_id(call: int) -> str:
    return f"call-{call:05}"


def stream_id(stream: int) -> str:
    return f"stream-{stream:03}"


def stream_method(stream: int) -> str:
    """Every second one begins at request.emitted, the others yield from the start and are compared."""
    return ("words", "again")[stream % 2]


def item(stream: str, index: int) -> bytes:
    return hashlib.sha512(f"{stream} {index}".encode()).digest()


def whole(stream: str, items: int) -> bytes:
    return b"".join(item(stream, index) for index in range(items))
