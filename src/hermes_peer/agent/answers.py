"""What an error of a handler looks like to its caller.

Knows: what may travel and what stays in the log. Refuses to know: streams, links. Called by: inbound.
"""

from __future__ import annotations

import asyncio
import logging
import os

from hermes_peer.errors import CallError, Cancelled, Code, HermesError, Unavailable, UsageError, error_body
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import Envelope

log = logging.getLogger("hermes_peer.call")


def error_answer(error: BaseException, envelope: Envelope, ran: bool) -> bytes:
    """The END message of a call that failed; `ran`: its handler had begun."""
    body = error_body(_as_call_error(error, envelope, ran))
    try:
        return messages.ERROR_HEAD + jsons.encode(body, "error")
    except (TypeError, ValueError) as bad:
        # Details that have no JSON form, or halves of a surrogate pair in a text.
        log.warning("the error of %s cannot be sent as it is: %s", envelope.method, bad)
        body["details"] = f"the details cannot be sent: {bad}"
        for member in ("reason", "message", "details"):
            body[member] = str(body[member]).encode("utf-8", "replace").decode()
        body.pop("retry_after", None)
        return messages.ERROR_HEAD + jsons.encode(body)


def too_large(answer: bytes, limit: int, envelope: Envelope) -> bytes:
    """The END message in place of one that is over the session's limit."""
    said = f"a message of {len(answer)} bytes is over the limit of {limit}: send it as a stream of items"
    return error_answer(CallError("result_too_large", said, code=Code.ERROR_RESOURCE_EXHAUSTED), envelope, True)


def _as_call_error(error: BaseException, envelope: Envelope, ran: bool) -> CallError:
    """Nothing of a stray exception travels: its text may name what this caller may not know."""
    if isinstance(error, CallError):
        if ran and error.reason == "draining" and isinstance(error, Unavailable):
            # An agent that this one called: for our caller it would mean "did not run, call another instance".
            return Unavailable("downstream", f"an agent that {envelope.method} needs is shutting down", retryable=True)
        return error
    if isinstance(error, asyncio.CancelledError):
        return Cancelled("cancelled", "the call was given up")
    reference = os.urandom(4).hex()
    log.error(
        "%s failed (reference %s, trace %s)",
        envelope.method,
        reference,
        ascii(envelope.trace_id)[1:-1],
        exc_info=error,
    )
    where = f"its log has the reference {reference}"
    if isinstance(error, HermesError) and not isinstance(error, UsageError):
        return Unavailable("downstream", f"an agent that {envelope.method} needs failed; {where}")
    return CallError("internal", f"the method failed; {where}", code=Code.ERROR_INTERNAL)
