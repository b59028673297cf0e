"""Which exception is which exit code, in one sentence."""

from __future__ import annotations

import pytest

from hermes_peer.cli import failures
from hermes_peer.errors import (
    CallError,
    DeadlineExceeded,
    JournalError,
    LinkError,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    SessionLost,
    UsageError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (LinkError("x"), 3),
        (LinkError("x", reason="version", refused=True), 3),
        (LinkError("x", reason="untrusted", refused=True), 4),
        (LinkError("x", reason="name", refused=True), 4),
        (DeadlineExceeded("connect", "x", timer="connect"), 3),
        (DeadlineExceeded("ttl", "x"), 1),
        (PermissionDenied("policy", "x"), 4),
        (MethodNotFound("x"), 1),
        (CallError("x"), 1),
        (SessionLost("x"), 1),
        (OSError(5, "broken", "/x"), 1),
        (ZeroDivisionError(), 1),
    ],
)
def test_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.told(error) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("hermes-peer: ")


def test_sentences_say_what_to_do() -> None:
    assert "calling again is safe" in failures.sentence(SessionLost("gone", ran="no"))
    assert "look before you call again" in failures.sentence(SessionLost("gone"))
    assert failures.sentence(RateLimited("x", "too many", retry_after=2.0)) == "too many (try again in 2 s)"
    said = failures.as_json(SessionLost("gone", trace_id="a trace"))
    assert (said["ran"], said["trace_id"]) == ("unknown", "a trace")
    assert failures.as_json(JournalError("disk full", ran="no"))["ran"] == "no"
    assert len(failures.sentence(CallError("x", "y" * 10_000))) < 2100
