"""What is kept, dropped and sent again, against a list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.replay import Replay
from hermes_peer.errors import ProtocolError

from .rig import WRAP, data, split

FIRSTS = st.sampled_from([0, 1, WRAP, 2**32 - 1, 2**32, 2**63])


def filled(first: int, batches: list[int]) -> Replay:
    """Each batch holds that many frames."""
    replay = Replay(first)
    for size in batches:
        numbers = range(replay.next, replay.next + size)
        replay.next += size
        replay.keep(b"".join(data(1, n, b"%d" % n) for n in numbers))
    return replay


@given(FIRSTS, st.lists(st.integers(1, 5), max_size=8), st.lists(st.integers(-2, 50), max_size=8))
def test_a_mark_drops_what_is_below_it_and_nothing_else(first: int, batches: list[int], marks: list[int]) -> None:
    replay = filled(first, batches)
    total, acked = sum(batches), 0
    for offset in marks:
        if offset > total:
            with pytest.raises(ProtocolError):
                replay.ack(first + offset)
            continue
        assert replay.ack(first + offset) is (offset > acked)
        acked = max(acked, offset)
        kept = split(frames for _, frames in replay.chunks)
        assert [f.body for f in kept][-(total - acked) or len(kept) :] == [
            b"%d" % (first + n) for n in range(acked, total)
        ]
        assert replay.bytes == sum(len(frames) for _, frames in replay.chunks)
        assert replay.acked == first + acked


@pytest.mark.attack(23)
@given(FIRSTS, st.lists(st.integers(1, 5), max_size=8), st.integers(0, 50), st.integers(-5, 60))
def test_attack_23_rewind_gives_exactly_the_rest_or_refuses(
    first: int, batches: list[int], ack: int, mark: int
) -> None:
    replay = filled(first, batches)
    total = sum(batches)
    ack = min(ack, total)
    replay.ack(first + ack)
    if not ack <= mark <= total:
        with pytest.raises(ProtocolError):
            replay.rewind(first + mark)
        return
    again = split(replay.rewind(first + mark))
    assert [f.body for f in again] == [b"%d" % (first + n) for n in range(mark, total)]
    assert [f.sequence for f in again] == [(first + n) % 2**32 for n in range(mark, total)]


def test_position_zero_resumes() -> None:
    replay = filled(0, [2, 1])
    assert len(split(replay.rewind(0))) == 3
    assert len(split(replay.rewind(0))) == 3  # and again on the link after it
