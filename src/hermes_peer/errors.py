"""The twelve codes and the exception tree.

Knows: which code a caller sees as which exception, and back. Refuses to know: anything else of ours.
Called by: everybody.

    HermesError
    |- UsageError          our own misuse, raised before anything changed
    |- ProtocolError       a wire rule was broken; ends the link
    |- LinkError           dialling, proving or losing a link; a later attempt may cure it
    |- SessionLost         the session is gone; `.ran` says "no" or "unknown"
    |- JournalError        not durable; `.ran` as above
    `- CallError           the peer's answer: code, reason, message, details
       |- MethodNotFound  |- PermissionDenied  |- DeadlineExceeded  |- Unavailable
       `- RateLimited     `- OutcomeUnknown    `- Cancelled
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Literal


class Code(IntEnum):
    """The codes of an answer (mission I7). Applications use APPLICATION with a `reason` of their own."""

    SUCCESS = 0
    ERROR_UNKNOWN = 1
    ERROR_INVALID_REQUEST = 2
    ERROR_TASK_TIMEOUT = 3
    ERROR_TOOL_NOT_FOUND = 4
    ERROR_AUTH_FAILED = 5
    ERROR_RESOURCE_EXHAUSTED = 6
    ERROR_INTERNAL = 7
    ERROR_PERMISSION_DENIED = 8
    ERROR_AGENT_UNAVAILABLE = 9
    ERROR_APPLICATION = 10
    ERROR_RATE_LIMIT_EXCEEDED = 11


class HermesError(Exception):
    """Everything that this library raises on purpose."""


class UsageError(HermesError):
    """The caller asked for something that cannot be; nothing was changed or sent."""


class ProtocolError(HermesError):
    """A rule of the wire was broken. Ends the link, never the process."""


class LinkError(HermesError):
    """No link could be made or kept. `refused` is true if the other side said no for good.

    `reason` is one of the words in `hermes_peer.core.states.Reason`, lower case, or "dial".
    """

    def __init__(self, message: str, *, reason: str = "dial", refused: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.refused = refused


class SessionLost(HermesError):
    """The session ended before the answer came (spec: session, section 4).

    `ran` is "no" if the work provably never started, else "unknown"; `offset` counts the stream items that arrived;
    `trace_id` is the call's.
    """

    def __init__(
        self, message: str, *, ran: Literal["no", "unknown"] = "unknown", offset: int = 0, trace_id: str = ""
    ) -> None:
        super().__init__(message)
        self.ran = ran
        self.offset = offset
        self.trace_id = trace_id


class JournalError(HermesError):
    """The journal could not make something durable.

    `ran` is "no" if it is certain that nothing was stored and nothing sent (no room, or the journal cannot be opened).
    """

    def __init__(self, message: str, *, ran: Literal["no", "unknown"] = "unknown") -> None:
        super().__init__(message)
        self.ran = ran


class CallError(HermesError):
    """The answer to a call was an error.

    Raise it in a handler to answer with a `reason` of your own; catch it at the caller.
    """

    code_default: ClassVar[Code] = Code.ERROR_APPLICATION

    def __init__(
        self,
        reason: str = "",
        message: str = "",
        *,
        details: Any = None,
        code: Code | int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        trace_id: str = "",
    ) -> None:
        self.code = Code(code) if code is not None else self.code_default
        self.reason = reason or self.code.name.removeprefix("ERROR_").lower()
        self.message = message or self.reason.replace("_", " ")
        self.details = details
        self.retryable = retryable
        self.retry_after = retry_after
        self.trace_id = trace_id
        super().__init__(self.message)


class MethodNotFound(CallError):
    """The agent has no such method, or none that this caller may know of."""

    code_default = Code.ERROR_TOOL_NOT_FOUND


class PermissionDenied(CallError, PermissionError):
    """The permission matrix of the called agent says no (mission M11)."""

    code_default = Code.ERROR_PERMISSION_DENIED


class DeadlineExceeded(CallError, TimeoutError):
    """Time ran out. `origin` is "local" or "peer"; `timer` names the timer that fired (ttl, connect, min_ttl …)."""

    code_default = Code.ERROR_TASK_TIMEOUT

    def __init__(
        self, reason: str = "", message: str = "", *, origin: str = "peer", timer: str = "ttl", **more: Any
    ) -> None:
        super().__init__(reason, message, **more)
        self.origin = origin
        self.timer = timer


class Unavailable(CallError):
    """The agent exists but cannot take this now: draining, no link in time, or full."""

    code_default = Code.ERROR_AGENT_UNAVAILABLE


class RateLimited(CallError):
    """Too many requests; `retry_after` says in how many seconds another may pass."""

    code_default = Code.ERROR_RATE_LIMIT_EXCEEDED


class OutcomeUnknown(CallError):
    """The work was started and nobody can say whether it ended; it is not run again (mission L17)."""

    code_default = Code.ERROR_UNKNOWN


class Cancelled(CallError):
    """The other side gave the call up."""

    code_default = Code.ERROR_UNKNOWN


# One table, code <-> class. A code that is absent is a plain CallError.
BY_CODE: dict[Code, type[CallError]] = {
    Code.ERROR_TASK_TIMEOUT: DeadlineExceeded,
    Code.ERROR_TOOL_NOT_FOUND: MethodNotFound,
    Code.ERROR_PERMISSION_DENIED: PermissionDenied,
    Code.ERROR_AGENT_UNAVAILABLE: Unavailable,
    Code.ERROR_RATE_LIMIT_EXCEEDED: RateLimited,
}
BY_REASON: dict[str, type[CallError]] = {"cancelled": Cancelled, "outcome_unknown": OutcomeUnknown}


def call_error(body: dict[str, Any], trace_id: str = "") -> CallError:
    """The exception for a received error object `{code, reason, message, details, retryable, retry_after}`.

    Never raises: an unknown code becomes ERROR_UNKNOWN, a missing member its default.
    """
    raw = body.get("code")
    code = Code(raw) if isinstance(raw, int) and raw in Code._value2member_map_ else Code.ERROR_UNKNOWN
    reason = str(body.get("reason") or "")
    kind = BY_REASON.get(reason) or BY_CODE.get(code, CallError)
    after = body.get("retry_after")
    timer = body.get("timer")
    named: dict[str, Any] = {"timer": timer} if kind is DeadlineExceeded and isinstance(timer, str) else {}
    return kind(
        reason,
        str(body.get("message") or ""),
        details=body.get("details"),
        code=code,
        retryable=body.get("retryable") is True,
        retry_after=float(after) if isinstance(after, int | float) else None,
        trace_id=trace_id,
        **named,
    )


def error_body(error: CallError) -> dict[str, Any]:
    """The error object that travels (spec: messages, section 4)."""
    body: dict[str, Any] = {
        "code": int(error.code),
        "name": error.code.name,
        "reason": error.reason,
        "message": error.message,
        "retryable": error.retryable,
    }
    if error.details is not None:
        body["details"] = error.details
    if error.retry_after is not None:
        body["retry_after"] = error.retry_after
    if isinstance(error, DeadlineExceeded):
        body["timer"] = error.timer
    return body
