"""What a row says."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_peer.agent.durable.retry import error_answer
from hermes_peer.agent.durable.rows import consumed, items_of, outcome_of, ran, settled, why_dead
from hermes_peer.errors import CallError, DeadlineExceeded
from hermes_peer.journal.values import Sent, SentState
from hermes_peer.wire import messages
from hermes_peer.wire.messages import Envelope


def row(**more: Any) -> Sent:
    return Sent(
        message_id="m",
        peer=b"p" * 32,
        target="worker",
        method="add",
        envelope=b"{}",
        payload=b"{}",
        digest=b"",
        created_ms=1,
        expires_ms=2,
        **more,
    )


def test_done() -> None:
    end = messages.encode_end(Envelope("response", items=7), b'{"x":1}')
    done = row(state=SentState.DONE, outcome=end, offset=5)
    assert (items_of(done), outcome_of(done), settled(done), consumed(done)) == (7, {"x": 1}, False, 5)
    told = row(state=SentState.DONE, outcome=end, offset=8)
    assert (settled(told), consumed(told)) == (True, 7)
    failed = row(state=SentState.DONE, outcome=error_answer(CallError("nope", "broken")))
    with pytest.raises(CallError, match="broken"):
        outcome_of(failed)
    assert items_of(row()) is None and consumed(row(offset=3)) == 3


def test_dead() -> None:
    dead = row(state=SentState.DEAD, why=why_dead(DeadlineExceeded("expired", "too late"), "unknown", 4))
    assert (items_of(dead), ran(dead)) == (4, "unknown")
    with pytest.raises(DeadlineExceeded, match="too late"):
        outcome_of(dead)
    assert ran(row(state=SentState.DEAD, why=why_dead(CallError("nope"), "answered"))) == "answered"


@pytest.mark.parametrize("why", ["", "plain text", "[1]", '{"items":"x","ran":"maybe"}'])
def test_a_reason_of_another_hand(why: str) -> None:
    dead = row(state=SentState.DEAD, why=why)
    assert (items_of(dead), ran(dead)) == (0, "unknown")
    with pytest.raises(CallError):
        outcome_of(dead)
