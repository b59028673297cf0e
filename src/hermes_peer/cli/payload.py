"""The payload of a call, from the words of a command line.

Knows: key=value, JSON, `-`. Refuses to know: methods. Called by: call, stream.
"""

from __future__ import annotations

import sys
from typing import Any

from hermes_peer.cli import out
from hermes_peer.errors import UsageError
from hermes_peer.wire.jsons import strict_decode

LARGEST = 64 * 1024 * 1024  # what is read from stdin at most: `yes | hermes-peer call …` must end


def payload_of(words: list[str]) -> dict[str, Any]:
    """The JSON object that the words mean. Raises UsageError."""
    if words == ["-"]:
        return _object(_stdin(), "what came in on stdin")
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[")):
        return _object(words[0].encode("utf-8", "surrogateescape"), "the payload")
    payload: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise UsageError(
                f"{out.shown(word[:80])!r} is not key=value; write the payload as key=value …, as one JSON object, "
                "or '-' to read it from stdin"
            )
        if key in payload:
            raise UsageError(f"the key {out.shown(key[:80])!r} is given twice")
        payload[key] = value_of(text)
    return payload


def value_of(text: str) -> Any:
    """JSON if it parses, else the text itself."""
    try:
        return strict_decode(text.encode("utf-8", "surrogateescape"))
    except ValueError:
        return text


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = strict_decode(data, max_values=10_000_000)
    except ValueError as error:
        raise UsageError(f'{what} cannot be read: {error}; write one JSON object such as {{"text": "hi"}}') from None
    if not isinstance(value, dict):
        raise UsageError(f'{what} must be one JSON object such as {{"text": "hi"}}')
    return value


def _stdin() -> bytes:
    if sys.stdin.isatty():
        out.note("reading the payload from the terminal; Ctrl-D ends it")
    data = sys.stdin.buffer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsageError(f"more than {LARGEST >> 20} MiB came in on stdin; send large things as a stream of items")
    return data
