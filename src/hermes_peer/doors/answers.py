"""What a door says back: payloads of results, items, errors, and what to do about each.

Knows: the shapes of docs/spec/invoke.md, one hint per code. Refuses to know: how anything travels.
Called by: posting, talk. Results and items stay the bytes that the handler's side encoded.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from hermes_peer import CallError, Code
from hermes_peer.agent.local import QUESTION, LocalCall
from hermes_peer.errors import error_body
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.invoke import Type
from hermes_peer.wire.messages import Kind

# What whoever called can do, by code (mission I7) and, where that is not enough, by reason.
HINTS = {
    Code.ERROR_UNKNOWN: "nobody can say how far it came: look at its effect before you send it anew",
    Code.ERROR_INVALID_REQUEST: "correct what `detail` names and send it again",
    Code.ERROR_TASK_TIMEOUT: "send it again with a higher ttl; `hermes-peer ttl` works one out",
    Code.ERROR_TOOL_NOT_FOUND: "call one of `available_tools`; GET /hermes/v1/describe has their schemas",
    Code.ERROR_AUTH_FAILED: "send the header `Authorization: Bearer TOKEN`; `hermes-peer token add NAME` makes a token",
    Code.ERROR_RESOURCE_EXHAUSTED: "ask for less at once, or for a stream: `Accept: text/event-stream`",
    Code.ERROR_INTERNAL: "tell the agent's operator: its log has the reference that `detail` names",
    Code.ERROR_PERMISSION_DENIED: "ask the agent's operator for a rule in policy.toml; there, "
    "`hermes-peer policy check CALLER AGENT METHOD` says what holds",
    Code.ERROR_AGENT_UNAVAILABLE: "send it again in a moment, or to another instance of this agent",
    Code.ERROR_APPLICATION: "the application says so itself: act on its `reason` and `details`",
    Code.ERROR_RATE_LIMIT_EXCEEDED: "wait `retry_after` seconds, then send it again",
}
BY_REASON = {
    "cancelled": "it was given up by its caller; if it is wanted after all, send it with a new task_id",
    "conflict": "take a new task_id: this one stands for another tool or payload",
    "unknown_task": "a task can be cancelled while it runs, by whoever sent it, under the same task_id",
    "wrong_agent": "send it to the agent that you mean, or leave receiver_id null for whoever answers",
    "no_answer": "use the WebSocket, or Accept: text/event-stream, where the agent can ask back",
}


def result_payload(call: LocalCall, ttl: float, items: list[Any] | None = None) -> dict[str, Any]:
    """The payload of a TASK_RESULT. `items`: those of a stream whose caller wanted one answer."""
    ok, body = call.answer()
    if not ok:
        return error_payload(jsons.decode(body), call.message_id, ttl)
    payload: dict[str, Any] = {"task_id": call.message_id, "status": "success", "result": msgspec.Raw(body)}
    if items:
        payload["items"] = items
    return payload


def error_payload(error: CallError | dict[str, Any], task_id: str = "", ttl: float = 0) -> dict[str, Any]:
    """The payload of an error; `error` is an exception or the error object of a call (spec: messages, section 4)."""
    body = error_body(error) if isinstance(error, CallError) else error
    code, reason = Code(body["code"]), body["reason"]
    payload: dict[str, Any] = {
        "status": "error",
        "error_code": int(code),
        "name": code.name,
        "reason": reason,
        "detail": body["message"],
        "hint": BY_REASON.get(reason) or HINTS.get(code, HINTS[Code.ERROR_UNKNOWN]),
        "retryable": body.get("retryable", False),
    }
    if task_id:
        payload["task_id"] = task_id
    details = body.get("details")
    if details is None and code is Code.ERROR_TASK_TIMEOUT:
        details = {"timer": body.get("timer", "ttl"), "timeout_ms": int(ttl * 1000)}
    if details is not None:
        payload["details"] = details
    if code is Code.ERROR_TOOL_NOT_FOUND and isinstance(details, dict):
        payload["requested_tool"] = details.get("method", "")
        payload["available_tools"] = details.get("allowed", [])
    if body.get("retry_after") is not None:
        payload["retry_after"] = body["retry_after"]
    return payload


def item_of(message: bytes) -> dict[str, Any]:
    """The member that holds an item: `item`, or `base64` where the handler yielded bytes."""
    body = message[messages.ITEM_HEAD :]
    if message[0] == messages.RAW:
        return {"base64": base64.b64encode(body).decode()}
    return {"item": msgspec.Raw(body)}


def step(call: LocalCall, message: bytes) -> tuple[Type, dict[str, Any]]:
    """Type and payload of what a running call says before its end."""
    kind, task_id = message[0], call.message_id
    if kind in (messages.ITEM, messages.RAW):
        index = int.from_bytes(message[1 : messages.ITEM_HEAD], "big")
        return Type.STREAM_ITEM, {"task_id": task_id, "index": index, **item_of(message)}
    if kind == Kind.PROGRESS:
        return Type.TASK_PROGRESS, {"task_id": task_id, **jsons.decode(message[1:])}
    if kind == QUESTION:
        return Type.INFO_REQUEST, jsons.decode(message[1:])
    return Type.TASK_ACK, {"task_id": task_id, "status": "accepted"}
