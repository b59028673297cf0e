"""The tables of docs/spec/durable.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tools.spec_tables.words import number, table

from hermes_peer.agent.durable import entry, inbox, lane, outbox, retry
from hermes_peer.journal import operations as op
from hermes_peer.journal import rules, values
from hermes_peer.wire import messages

_AGAIN = "above that of the stored outcome: run it again if that was"
DURABLE = {
    "delivery": ("OPEN", '"durable"'),
    "message_id": ("OPEN", "names the work for good, with the fingerprint of its submitter"),
    "own_id": ("OPEN", "the application chose `message_id`"),
    "idempotency_key": ("OPEN", "with submitter and method, a second name of the work"),
    "ttl": ("OPEN", "seconds that are left, anew whenever it is sent"),
    "attempt": ("OPEN", f"{_AGAIN} a retryable error"),
    "round": ("OPEN", f"{_AGAIN} any error; rises when an operator replays"),
    "again": ("OPEN", "sent before under this id: look whether it is known"),
    "items": ("END", "how many items the work has"),
    "contract": ("END", "what its method promises (section 3)"),
}


def durable_envelope() -> str:
    known = {field.name for field in msgspec.structs.fields(messages.Envelope)}
    assert set(DURABLE) <= known
    return table(("member", "in", "meaning"), ((f"`{name}`", *said) for name, said in DURABLE.items()))


SENT_EVENTS = {
    "SENT": op.Attempt("m", 0),
    "MOVED": op.Move("m", b""),
    "ACCEPTED": op.MarkAccepted("m", 0),
    "RESULT": op.MarkDone("m", b""),
    "GIVEN UP": op.MarkDead("m", ""),
    "REPLAYED": op.Requeue("m", 0, "", 0),
}
TAKEN_EVENTS = {
    "BEGUN": op.Run(b"", "m"),
    "ITEMS": op.Append(b"", "m", 0, ()),
    "ENDED": op.Finish(b"", "m", b"", 0),
}


def sent_states() -> str:
    empty: dict[str, Any] = dict.fromkeys(("peer", "envelope", "payload", "digest"), b"")
    one = values.Sent(message_id="m", target="", method="", created_ms=0, expires_ms=0, **empty)
    rows = []
    for state in values.SentState:
        row = msgspec.structs.replace(one, state=state)
        cells = [
            rules.next_sent(row, o, values.Limits()).state.name if state in rules.SENT_RULES[type(o)] else "–"
            for o in SENT_EVENTS.values()
        ]
        rows.append((state.name, *cells, "yes" if state in rules.SENT_RULES[op.Discard] else "no"))
    return table(("submitter", *SENT_EVENTS, "may be forgotten"), rows)


def taken_states() -> str:
    empty: dict[str, Any] = dict.fromkeys(("principal", "envelope", "payload", "digest"), b"")
    none = values.Contract.NONE
    one = values.Taken(message_id="m", method="", contract=none, taken_ms=0, expires_ms=0, **empty)
    rows = []
    for state in values.TakenState:
        row = msgspec.structs.replace(one, state=state)
        cells = [
            rules.next_taken(row, o, values.Limits()).state.name if state in rules.TAKEN_RULES[type(o)] else "–"
            for o in TAKEN_EVENTS.values()
        ]
        rows.append((state.name, *cells, "yes" if state not in rules.OPEN_TAKEN else "no"))
    return table(("receiver", *TAKEN_EVENTS, "may be forgotten"), rows)


CONTRACTS = {
    values.Contract.NONE: (
        "nothing, so it is started at most once",
        "it is not run again; its outcome is `outcome_unknown`",
    ),
    values.Contract.IDEMPOTENT: ("running it twice does no more than running it once", "it is run again"),
    values.Contract.TRANSACTIONAL: (
        "its effects are written in one transaction with its outcome",
        "it is run again; what was not committed is not there",
    ),
}


def contracts() -> str:
    rows = ((f'"{c.value}"' if c else "none", *CONTRACTS[c]) for c in values.Contract)
    return table(("contract", "what its method promises", "RUNNING when its process dies"), rows)


def retries() -> str:
    spaced = f"{retry.FIRST_S:g} s, doubled each time up to {retry.LONGEST_S:g} s, and up to half of it more"
    rows = [
        ("no line, or line or session lost", "yes", f"within the ttl; {spaced}"),
        (
            "refused before it was accepted, retryable (draining, full)",
            "yes",
            f"within the ttl; at once if another instance is there, else {lane.AGAIN_S:g} s, or `retry_after`",
        ),
        (
            "ended with a retryable error",
            "yes, as a new attempt",
            f"{retry.TRIES} attempts in all; {spaced}, or `retry_after` if that is longer",
        ),
        ("refused, or ended with an error, that is not retryable", "no", ""),
        ("the ttl is spent", "no", f"what was accepted has {entry.LATE_S:g} s more to bring its answer"),
    ]
    return table(("what happened", "sent again", "how often, and when"), rows)


def durable_limits() -> str:
    bounds = values.Limits()
    rows = [
        (
            "`ttl` that a submitter gives if nothing is said; at most",
            f"{outbox.TTL_DEFAULT:,.0f} s; {outbox.TTL_MAX:,.0f} s",
        ),
        ("an outcome is kept, unless settled", f"{inbox.RETENTION_S:,.0f} s, and never less than the ttl"),
        ("envelope and payload; an outcome; an item", f"{number(bounds.body)} each"),
        ("open and dead works of one peer, either side", f"{bounds.rows_per_peer:,}"),
        ("the journal's file", number(bounds.size)),
        ("handlers of durable work at a time; more wait, accepted", f"{inbox.AT_ONCE}"),
        ("works on the way to one peer at a time", f"{lane.WINDOW}"),
    ]
    return table(("what", "limit"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "durable-envelope": durable_envelope,
    "sent-states": sent_states,
    "taken-states": taken_states,
    "contracts": contracts,
    "retries": retries,
    "durable-limits": durable_limits,
}
