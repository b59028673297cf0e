"""One stream's halves: commands raise UsageError, arrivals ProtocolError, an abort ends both."""

from __future__ import annotations

from collections import deque

import pytest

from hermes_peer.core.states import Half, HalfInput
from hermes_peer.core.stream import Stream
from hermes_peer.errors import ProtocolError, UsageError


def stream() -> Stream:
    return Stream(True, 1000, 1000)


@pytest.mark.parametrize(
    ("inputs", "end", "fails"),
    [
        ("DATA END", Half.ENDED, False),
        ("DATA END RESET", Half.ABORTED, False),
        ("END DATA", Half.ENDED, True),
        ("END END", Half.ENDED, True),
    ],
)
@pytest.mark.parametrize("received", [True, False])
def test_the_halves_obey_their_tables(inputs: str, end: Half, fails: bool, received: bool) -> None:
    s = stream()
    move, error = (s.arrive, ProtocolError) if received else (s.command, UsageError)
    *before, last = (HalfInput[name] for name in inputs.split())
    for input in before:
        move(input)
    if fails:
        with pytest.raises(error):
            move(last)
    else:
        move(last)
    assert (s.receiving if received else s.sending) is end
    assert (s.sending if received else s.receiving) is Half.OPEN


def test_after_our_reset_what_still_arrives_is_absorbed_and_what_we_send_is_misuse() -> None:
    s = stream()
    s.abort()
    for input in HalfInput:
        s.arrive(input)
        with pytest.raises(UsageError, match="aborted"):
            s.command(input)
    assert s.receiving is Half.ABORTED


def test_an_abort_drops_what_waits_in_both_directions() -> None:
    s = stream()
    s.queue = deque([(b"x", False)])
    s.queued, s.partial, s.partial_cost = 1, [b"half"], 64
    s.abort()
    assert not s.queue and not s.queued and s.partial is None and not s.partial_cost


def test_closed_means_both_halves_queue_and_unread() -> None:
    s = stream()
    s.sending = Half.ENDED
    assert not s.closed
    s.receiving = Half.ENDED
    assert s.closed
    s.inbound.received = 64
    assert not s.closed
    s.inbound.consumed = 64
    s.queue = deque([(b"x", True)])
    assert not s.closed
