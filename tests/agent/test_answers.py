"""agent/answers: what an error of a handler looks like to its caller."""

from __future__ import annotations

import asyncio

from hermes_peer import Unavailable
from hermes_peer.agent.answers import error_answer, too_large
from hermes_peer.wire.messages import Envelope


def test_draining_is_said_by_who_did_not_run_it_only() -> None:
    refusal = Unavailable("draining", "this agent is shutting down", retryable=True)
    assert b'"draining"' in error_answer(refusal, Envelope(method="m"), False)
    ran = error_answer(refusal, Envelope(method="m"), True)
    assert b'"draining"' not in ran and b'"downstream"' in ran


def test_ends_of_other_kinds() -> None:
    assert b'"cancelled"' in error_answer(asyncio.CancelledError(), Envelope(method="m"), True)
    assert b'"result_too_large"' in too_large(b"x" * 11, 10, Envelope(method="m"))
