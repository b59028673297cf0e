"""A failure as one sentence on stderr and an exit code.

Knows: which exception means what to whoever typed the command. Refuses to know: commands.
Called by: main, for what a command raised; list and tap, for what befell one agent of several.

    0 ok    1 the call failed    2 usage    3 unreachable    4 refused (trust, policy, name)
"""

from __future__ import annotations

from hermes_peer.cli import out
from hermes_peer.errors import (
    CallError,
    DeadlineExceeded,
    HermesError,
    JournalError,
    LinkError,
    PermissionDenied,
    SessionLost,
    UsageError,
)

OK, FAILED, USAGE, UNREACHABLE, REFUSED = range(5)
_REFUSALS = ("untrusted", "name")


def exit_code(error: BaseException) -> int:
    """The exit code for what was raised."""
    if isinstance(error, PermissionDenied):
        return REFUSED
    if isinstance(error, LinkError):
        return REFUSED if error.refused and error.reason in _REFUSALS else UNREACHABLE
    if isinstance(error, DeadlineExceeded):
        return UNREACHABLE if error.timer == "connect" else FAILED
    if isinstance(error, UsageError) or _is_misuse(error):
        return USAGE
    return FAILED


def sentence(error: BaseException) -> str:
    """What happened and what to do, in one line without control characters."""
    if _is_misuse(error):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "hermes-peer"
        text = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
        return out.shown(f"{text}; see '{path} --help'")
    if isinstance(error, SessionLost):
        fate = (
            "it did not run, so calling again is safe"
            if error.ran == "no"
            else "it may have run, so look before you call again"
        )
        return out.shown(f"{error}: {fate}")
    if isinstance(error, CallError):
        after = f" (try again in {error.retry_after:g} s)" if error.retry_after else ""
        return out.shown(f"{error}{after}")
    if isinstance(error, HermesError):
        return out.shown(str(error))
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return out.shown(f"{place}{error.strerror or error}; HERMES_PEER_DEBUG=1 shows where")
    return out.shown(
        f"this should not have happened ({type(error).__name__}: {error}); HERMES_PEER_DEBUG=1 shows where, "
        "please report it"
    )


def told(error: BaseException) -> int:
    """Say it on stderr; returns the exit code."""
    out.note(sentence(error))
    return exit_code(error)


def as_json(error: BaseException) -> dict[str, object]:
    """The error as the machine output of `--json`."""
    if isinstance(error, CallError):
        from hermes_peer.errors import error_body

        return {**error_body(error), "trace_id": error.trace_id}
    reason = error.reason if isinstance(error, LinkError) else type(error).__name__
    body: dict[str, object] = {"reason": reason, "message": sentence(error)}
    if isinstance(error, SessionLost | JournalError):
        body["ran"] = error.ran
    if isinstance(error, SessionLost):
        body["trace_id"] = error.trace_id
    return body


def _is_misuse(error: BaseException) -> bool:
    # typer has a click of its own since 0.22, and used the other one before: told by its shape.
    return hasattr(error, "format_message") and hasattr(error, "exit_code")
