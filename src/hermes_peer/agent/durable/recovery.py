"""After a restart: what was in hand when the process ended goes on, or ends, as its contract says.

Knows: contracts, time that has passed, journals that are copies. Refuses to know: links, how work is run.
Called by: store, once, before anything new is taken.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from hermes_peer.agent.durable.retry import error_answer
from hermes_peer.agent.durable.rows import now_ms
from hermes_peer.errors import CallError, Code, DeadlineExceeded, OutcomeUnknown, PermissionDenied
from hermes_peer.journal.operations import Finish, Run
from hermes_peer.journal.values import Contract, Origin, Taken, TakenState
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from hermes_peer.agent.durable.inbox import Inbox

PAGE = 500

_envelope = msgspec.json.Decoder(Envelope).decode


async def recover(inbox: Inbox) -> int:
    """Returns how many works there were. One commit for each page, not for each work."""
    after, count = 0, 0
    journal = inbox.journal
    while rows := await journal.find_taken((TakenState.ACCEPTED, TakenState.RUNNING), after=after, limit=PAGE):
        after = rows[-1].seq
        count += len(rows)
        stored: list[Awaitable[object]] = []
        going: list[tuple[Taken, Envelope, bool, float]] = []
        for row in rows:
            envelope = _envelope(row.envelope)
            left = min((row.expires_ms - now_ms()) / 1000, envelope.ttl or 0.0)
            error = _end(inbox, row, left)
            if error is not None:
                keep = inbox.keep_until(inbox.time() + left)
                stored.append(journal.commit(Finish(row.principal, row.message_id, error_answer(error), keep)))
                continue
            run = inbox.reserve()
            if run:
                stored.append(journal.commit(Run(row.principal, row.message_id)))
                row = msgspec.structs.replace(row, attempts=row.attempts + 1)
            going.append((row, envelope, run, left))
        await asyncio.gather(*(_wait(pending) for pending in stored))
        for row, envelope, run, left in going:
            method = inbox.agent.methods.get(row.method)
            assert method is not None
            inbox.go_on(row, envelope, method, run, left)
    return count


def _end(inbox: Inbox, row: Taken, left: float) -> CallError | None:
    """Why it does not run (again); None if it does."""
    began = row.state is TakenState.RUNNING
    if row.contract is Contract.NONE and began:
        text = f"{row.method} was running when its process ended; it has no contract, so it is not run again"
        return OutcomeUnknown("outcome_unknown", text)
    if row.contract is Contract.NONE and inbox.journal.origin not in (Origin.NEW, Origin.SAME):
        text = f"the journal was restored from a copy; whether {row.method} ran since then is not known"
        return OutcomeUnknown("outcome_unknown", text)
    method = inbox.agent.methods.get(row.method)
    if left <= 0:
        ran = "; whether it had run to its end is not known" if began else " before the work began: it did not run"
        return DeadlineExceeded("expired", f"the ttl was spent{ran}")
    if method is None:
        return CallError("unknown_method", f"{row.method} is gone", code=Code.ERROR_TOOL_NOT_FOUND)
    if not inbox.may(row.principal, row.method):
        return PermissionDenied("policy", "a rule that allowed this work was taken back")
    if method.min_ttl is not None and left < method.min_ttl and not began:
        text = f"{row.method} needs {method.min_ttl:g} s, the work has {left:.3g} s left"
        return DeadlineExceeded("min_ttl", text, timer="min_ttl")
    return None


async def _wait(pending: Awaitable[object]) -> None:
    await pending
