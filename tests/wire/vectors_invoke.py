"""conformance/vectors/invoke.json: `python -m tests.wire.vectors_invoke` writes it; a test sees that it is fresh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_peer.wire.invoke import HEADER, Meta, Type, encode_binary, encode_json, stable_agent_id

FILE = Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "invoke.json"
ME, YOU = "a1b2c3d4-e5f6-4789-a0b1-c2d3e4f5a6b7", "03bab520-f34b-415c-a7b1-93f6c4c57476"
TRACE = "0123456789abcdef0123456789abcdef"

PAYLOADS: dict[Type, dict[str, Any]] = {
    Type.TASK_REQUEST: {"tool": "calculator", "task_id": "x1y2z3", "expression": "2+2"},
    Type.TASK_RESULT: {"task_id": "x1y2z3", "status": "success", "result": 4},
    Type.TASK_PROGRESS: {"task_id": "x1y2z3", "state": "reading", "tokens_used": 12},
    Type.TASK_CANCEL: {"task_id": "x1y2z3"},
    Type.TASK_ACK: {"task_id": "x1y2z3", "status": "accepted"},
    Type.INFO_REQUEST: {"task_id": "x1y2z3", "info_id": "q1", "tool": "what.colour", "payload": {"of": "sky"}},
    Type.INFO_RESULT: {"info_id": "q1", "status": "success", "result": "四"},
    Type.HEARTBEAT: {},
    Type.HEARTBEAT_ACK: {"agent": "calculator", "state": "ready"},
    Type.CAPABILITY_QUERY: {},
    Type.CAPABILITY_RESULT: {"agent": "calculator", "methods": []},
    Type.STREAM_ITEM: {"task_id": "x1y2z3", "index": 0, "item": {"i": 0}},
    Type.STREAM_END: {"task_id": "x1y2z3", "items": 1},
    Type.EVENT: {"tool": "stock.changed", "sku": "A-1"},
    Type.ERROR: {"status": "error", "error_code": 2, "name": "ERROR_INVALID_REQUEST", "reason": "invalid_json"},
    Type.GOODBYE: {"reason": "the agent ends"},
}


def meta_json(**changed: Any) -> dict[str, Any]:
    meta = {"version": "1.2", "msg_type": 1, "sender_id": "me", "receiver_id": None, "ttl": 30, "trace_id": "t"}
    return {name: value for name, value in (meta | changed).items() if value != "ABSENT"}


REFUSED_META: list[tuple[str, dict[str, Any], str]] = [
    *((f"without {name}", meta_json(**{name: "ABSENT"}), "missing_field") for name in meta_json()),
    ("another version", meta_json(version="1.3"), "unsupported_version"),
    ("the version as a number", meta_json(version=1.2), "unsupported_version"),
    ("type 0", meta_json(msg_type=0), "unknown_type"),
    ("type 17", meta_json(msg_type=17), "unknown_type"),
    ("the type's name", meta_json(msg_type="TASK_REQUEST"), "unknown_type"),
    ("a type that is true", meta_json(msg_type=True), "unknown_type"),
    ("a negative ttl", meta_json(ttl=-1), "invalid_ttl"),
    ("a ttl in words", meta_json(ttl="30"), "invalid_ttl"),
    ("a ttl over 32 bits", meta_json(ttl=4294967296), "invalid_ttl"),
    ("no sender's name", meta_json(sender_id=None), "invalid_id"),
    ("a long trace", meta_json(trace_id="x" * 129), "invalid_id"),
    ("a line break in a trace", meta_json(trace_id="a\nb"), "invalid_id"),
    ("a field of one's own", meta_json(priority=1), "unknown_field"),
]
REFUSED_PAYLOADS = [[1], "text", 5, None, True]
REFUSED_BODIES = {
    "empty": ("", "invalid_json"),
    "NaN": ('{"meta": {}, "payload": {"x": NaN}}', "invalid_json"),
    "equal keys": ('{"meta": {}, "meta": {}, "payload": {}}', "invalid_json"),
    "two documents": ('{"meta": {}, "payload": {}}{}', "invalid_json"),
    "a list": ("[]", "not_an_object"),
    "no payload": (json.dumps({"meta": meta_json()}), "missing_field"),
    "a third part": (json.dumps({"meta": meta_json(), "payload": {}, "more": 1}), "unknown_field"),
    "a meta in text": (json.dumps({"meta": json.dumps(meta_json()), "payload": {}}), "meta_not_object"),
}


def header(**changed: Any) -> bytes:
    fields = {
        "version": 0x12,
        "type": 1,
        "reserved": 0,
        "sender": bytes(16),
        "receiver": bytes(16),
        "ttl": 30,
        "trace": bytes(16),
        "length": 2,
        "rest": 0,
    }
    return HEADER.pack(*(fields | changed).values())


REFUSED_BINARY = {
    "63 bytes": (header()[:63], "short_header"),
    "another version": (header(version=0x13) + b"{}", "unsupported_version"),
    "type 0": (header(type=0) + b"{}", "unknown_type"),
    "reserved bytes": (header(reserved=1) + b"{}", "reserved"),
    "reserved bytes at the end": (header(rest=1) + b"{}", "reserved"),
    "too long": (header(length=4294967295), "payload_too_large"),
    "shorter than announced": (header(length=3) + b"{}", "length"),
    "longer than announced": (header(length=1) + b"{}", "length"),
    "no object": (header(length=2) + b"[]", "payload_not_object"),
    "no JSON": (header(length=2) + b"{x", "invalid_json"),
}


def made() -> dict[str, Any]:
    messages = []
    for kind, payload in PAYLOADS.items():
        meta = Meta(kind, ME, YOU if kind != Type.EVENT else None, 65, TRACE)
        messages.append(
            {
                "name": kind.name,
                "json": encode_json(meta, payload).decode(),
                "binary": encode_binary(meta, payload).hex(),
                "meta": json.loads(encode_json(meta, payload))["meta"],
                "payload": payload,
            }
        )
    return {
        "about": "Invoke v1.2 (spec: invoke): each message in both forms, what is refused and why, stable ids, a hop. "
        "Binary is lower-case hex. A reason is a word to compare, the sentence beside it is not.",
        "types": {each.name: int(each) for each in Type},
        "messages": messages,
        "refused_meta": [{"name": name, "meta": meta, "reason": reason} for name, meta, reason in REFUSED_META],
        "refused_payloads": REFUSED_PAYLOADS,
        "refused_bodies": [{"name": n, "body": body, "reason": reason} for n, (body, reason) in REFUSED_BODIES.items()],
        "refused_binary": [
            {"name": n, "binary": data.hex(), "reason": reason} for n, (data, reason) in REFUSED_BINARY.items()
        ],
        "stable_ids": [
            {"service": s, "env": e, "host": h, "id": stable_agent_id(s, e, h)}
            for s, e, h in (("db-query-service", "prod", "db-node-01"), ("a", "dev", "b"), ("四", "prod", "é"))
        ],
        "hop": {
            "before": json.loads(encode_json(Meta(1, ME, YOU, 65, "my-trace-123"), {}))["meta"],
            "sender_id": YOU,
            "receiver_id": ME,
            "after": json.loads(encode_json(Meta(1, YOU, ME, 64, "my-trace-123"), {}))["meta"],
            "refused_at_ttl": [0, 0.5, 1],
        },
    }


def text() -> str:
    return json.dumps(made(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
