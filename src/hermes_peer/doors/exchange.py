"""One exchange with a plain door: how a request is written, how answers and events are read, what an error becomes.

Knows: the messages of docs/spec/invoke.md, both ways. Refuses to know: HTTP clients, sockets, loops. Called by: client.
"""

from __future__ import annotations

import base64
import os
from typing import Any

import msgspec

from hermes_peer import CallError, Code, DeadlineExceeded, LinkError, UsageError
from hermes_peer.agent.local import inherited
from hermes_peer.errors import call_error
from hermes_peer.wire import jsons
from hermes_peer.wire.invoke import Message, Meta, Type

TTL_DEFAULT = 30.0
PATH = "/hermes/v1/invoke"


class Caller:
    """What both clients share: how a request is written, and how an answer is read."""

    def __init__(self, url: str, *, token: str = "", sender: str = "hermes-http", receiver: str | None = None) -> None:
        base = url.rstrip("/").removesuffix(PATH)
        if not base.startswith(("http://", "https://")):
            raise UsageError(f"a door's URL begins with http:// or https://, not {url[:64]!r}")
        self.url = base
        self.sender = sender
        self.receiver = receiver
        self.headers = {"content-type": "application/hermes+json"}
        if token:
            self.headers["authorization"] = f"Bearer {token}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"  # the token is nobody's business

    def order(self, tool: str, payload: Any, ttl: float | None, trace_id: str, task_id: str, **hermes: bool) -> Message:
        """The TASK_REQUEST. Inside a handler it inherits the trace, and no more time than is left (mission M8)."""
        around = inherited()
        if around is not None:
            trace_id = trace_id or around[0]
            ttl = around[1] if ttl is None else min(ttl, around[1])
        ttl = TTL_DEFAULT if ttl is None else ttl
        if ttl <= 0:
            raise DeadlineExceeded("ttl", "no time is left for this call", origin="local", trace_id=trace_id)
        fields = jsons.decode(jsons.encode(payload)) if payload is not None else {}
        if not isinstance(fields, dict):
            raise UsageError("the payload must become a JSON object")
        if taken := fields.keys() & {"tool", "task_id", "hermes"}:
            raise UsageError(f"payload.{min(taken)} is the door's own: this method cannot be called by a door")
        body = {"tool": tool, "task_id": task_id or os.urandom(16).hex(), **fields}
        if orders := {name: True for name, wanted in hermes.items() if wanted}:
            body["hermes"] = orders
        meta = Meta(Type.TASK_REQUEST, self.sender, self.receiver, round(ttl, 3), trace_id or os.urandom(16).hex())
        return Message(meta, body if tool else {key: value for key, value in body.items() if key != "tool"})


def read_answer(data: bytes, status: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Meta and payload of an answer. Raises CallError for what no door would say."""
    try:
        whole = msgspec.json.decode(data)
        meta, payload = whole["meta"], whole["payload"]
        if isinstance(meta, dict) and isinstance(payload, dict):
            return meta, payload
    except (msgspec.MsgspecError, TypeError, KeyError):
        pass
    said = f"no Hermes door answers there: HTTP {status}, {data[:80]!a}"
    raise CallError("not_a_door", said, code=Code.ERROR_AGENT_UNAVAILABLE)


def outcome(meta: dict[str, Any], payload: dict[str, Any]) -> Any:
    """The result that a payload tells of. Raises the CallError that it tells of."""
    if payload.get("status") == "error":
        raise call_error(
            {
                "code": payload.get("error_code"),
                "reason": payload.get("reason"),
                "message": payload.get("detail"),
                "details": payload.get("details"),
                "retryable": payload.get("retryable"),
                "retry_after": payload.get("retry_after"),
            },
            str(meta.get("trace_id") or ""),
        )
    result = payload.get("result")
    return payload["items"] if result is None and "items" in payload else result


class Events:
    """Server-sent events out of bytes, cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Meta and payload of each message that is whole now."""
        *events, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        lines = [[line[5:].strip() for line in each.split(b"\n") if line.startswith(b"data:")] for each in events]
        return [read_answer(b"\n".join(each), 200) for each in lines if each]


def unpacked(said: dict[str, Any]) -> bytes:
    return base64.b64decode(said.get("base64", ""))


def link_error(url: str, error: Exception) -> LinkError:
    why = str(error).rpartition("] ")[2].lower() or type(error).__name__
    return LinkError(f"no answer from the door {url}: {why}; is the agent running, and is this its address?")
