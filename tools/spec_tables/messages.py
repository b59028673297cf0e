"""The tables of docs/spec/messages.md."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from tools.spec_tables.words import number, table

from hermes_peer.agent import calling, outcomes
from hermes_peer.errors import BY_CODE, Code
from hermes_peer.wire import messages

KINDS = {
    "OPEN": ("caller", "the first message of a stream"),
    "ITEM": ("both", "one item"),
    "ACCEPTED": ("called", "the work is on the called side's disk (durable, section 2)"),
    "END": ("called", "the answer; the last message of its direction"),
    "NOMORE": ("caller", "no more items; the last message of its direction"),
    "PROGRESS": ("called", "a sign of how far it is; may be passed over"),
    "RAW": ("both", "one item of plain bytes, counted with the others"),
}
FORMS = {
    "OPEN": "`u32 n`, envelope (n bytes), payload (a JSON object)",
    "ITEM": "`u64 index`, JSON",
    "ACCEPTED": "–",
    "END": "`u32 n`, envelope (n bytes), payload (JSON)",
    "NOMORE": "–",
    "PROGRESS": "JSON: `state`, `tokens_used`, `partial`",
    "RAW": "`u64 index`, bytes",
}


def kinds() -> str:
    rows = ((k.value, k.name, KINDS[k.name][0], FORMS[k.name], KINDS[k.name][1]) for k in messages.Kind)
    return table(("kind", "name", "from", "after the kind byte", "meaning"), rows)


ENVELOPE = {
    "type": "request or event in OPEN, response or error in END",
    "method": "what is called; empty: the default method of the called agent",
    "message_id": "required in OPEN; unique per caller",
    "ttl": "seconds left; null or absent: the default; 0 or less: spent",
    "trace_id": "handed on unchanged by whoever calls in turn",
    "span_id": "this call within the trace",
    "timestamp": "Unix time in ms, for people; nothing is decided by it",
    "attempt": "counts from 1",
    "own_id": "the application chose `message_id` (section 5)",
    "detach": "the handler goes on without its caller",
    "delivery": "volatile, or durable (durable, section 1)",
    "idempotency_key": "durable work only (durable, section 1)",
    "round": "durable work only (durable, section 5)",
    "items": "durable work only, in END (durable, section 4)",
    "contract": "durable work only, in END (durable, section 3)",
    "again": "durable work only: sent before under this id (durable, section 1)",
    "parent_id": "`span_id` of the call whose handler makes this one, of the same trace; empty at its root",
}


def envelope() -> str:
    rows = []
    for field in msgspec.structs.fields(messages.Envelope):
        rows.append((f"`{field.name}`", f"`{msgspec.json.encode(field.default).decode()}`", ENVELOPE[field.name]))
    return table(("member", "default", "meaning"), rows)


CODES = {
    "SUCCESS": "never stands in an error object",
    "ERROR_UNKNOWN": "nobody can say; also: given up, outcome unknown",
    "ERROR_INVALID_REQUEST": "envelope or payload do not fit",
    "ERROR_TASK_TIMEOUT": "the time ran out",
    "ERROR_TOOL_NOT_FOUND": "no such method",
    "ERROR_AUTH_FAILED": "no proof of who calls",
    "ERROR_RESOURCE_EXHAUSTED": "too large, too many",
    "ERROR_INTERNAL": "the handler failed; its log has more",
    "ERROR_PERMISSION_DENIED": "the permission matrix says no",
    "ERROR_AGENT_UNAVAILABLE": "draining, full, or something that it needs is away",
    "ERROR_APPLICATION": "the application's own error; `reason` says which",
    "ERROR_RATE_LIMIT_EXCEEDED": "too often; see `retry_after`",
}


def codes() -> str:
    rows = (
        (c.value, c.name, CODES[c.name], f"`{BY_CODE[c].__name__}`" if c in BY_CODE else "`CallError`")
        for c in Code
        if c
    )
    return table(("code", "name", "meaning", "in the SDK"), rows)


def message_limits() -> str:
    rows = [
        ("`message_id`, `span_id`, `parent_id`, `idempotency_key`", f"{messages.ID_MAX} characters of printable ASCII"),
        ("`trace_id`", f"{messages.ID_MAX} characters"),
        ("`ttl` when absent", f"{calling.TTL_DEFAULT:g} s"),
        ("`ttl` at most; more is taken as this", f"{calling.TTL_MAX:,.0f} s"),
        ("an outcome is kept for", f"{outcomes.KEEP_S:g} s at least"),
        ("an outcome that is kept has at most", number(outcomes.ANSWER_MAX)),
        ("outcomes kept for one caller", number(outcomes.PEER_MAX)),
    ]
    return table(("what", "limit"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "kinds": kinds,
    "envelope": envelope,
    "codes": codes,
    "message-limits": message_limits,
}
