"""What a submitted row says: its outcome, its items, whether anybody still has to forget it.

Knows: rows of the journal, END messages, the reason of a death as JSON. Refuses to know: journals, links.
Called by: outbox, lane, settling, ticket, methods, the command line (through `methods.shown`).
"""

from __future__ import annotations

import time
from typing import Any, Literal

from hermes_peer.agent.durable.retry import read_end
from hermes_peer.errors import CallError, call_error, error_body
from hermes_peer.journal.values import Sent, SentState
from hermes_peer.wire import jsons

Ran = Literal["no", "unknown", "answered"]


def now_ms() -> int:
    """The wall clock. It is written down for the next process; within this one the loop's clock decides."""
    return time.time_ns() // 1_000_000


def why_dead(error: CallError, ran: Ran, items: int = 0) -> str:
    """The reason of a death, as a row keeps it. `ran`: "answered" if it is the receiver's own word."""
    return jsons.encode(error_body(error) | {"ran": ran, "items": items}).decode()


def _why(row: Sent) -> dict[str, Any]:
    try:
        body = jsons.decode(row.why.encode())
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"reason": "dead", "message": row.why}


def items_of(row: Sent) -> int | None:
    """How many stream items an ended work has; None while it is open."""
    if row.state is SentState.DEAD:
        items = _why(row).get("items")
        return items if isinstance(items, int) else 0
    return read_end(row.outcome).items if row.outcome is not None else None


def ran(row: Sent) -> Ran:
    """Of a dead letter: whether its method may have run."""
    said = _why(row).get("ran")
    return said if said in ("no", "answered") else "unknown"


def outcome_of(row: Sent) -> Any:
    """The result that an ended row holds. Raises the CallError that ended it."""
    if row.state is SentState.DEAD:
        raise call_error(_why(row))
    assert row.outcome is not None
    end = read_end(row.outcome)
    if end.error is not None:
        raise end.error
    return end.value


def settled(row: Sent) -> bool:
    """The receiver was told that it may forget this: noted as if the end were one more item that was consumed."""
    return row.offset > (items_of(row) or 0)


def consumed(row: Sent) -> int:
    """How many items the ticket's readers have taken."""
    return row.offset - 1 if row.outcome is not None and settled(row) else row.offset
