"""What arrives: numbers, fragments; and every rule that a frame may break, alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.budget import BUDGET, Abuse
from hermes_peer.core.config import KIB, MIB, Config
from hermes_peer.core.events import Event
from hermes_peer.core.receiver import OVERSIZE
from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import Type, encode

from .rig import (
    FEW,
    FIN,
    MORE,
    RST,
    SYN,
    WRAP,
    Sessions,
    arrived,
    data,
    eat,
    feed,
    messages,
    of,
    pieces,
    receiving,
    split,
)


# ------------------------------------------------------------------ numbers
@pytest.mark.parametrize("first", [0, WRAP, 2**32 - 1, 2**33 - 2])
def test_numbers_count_on_past_32_bits_and_what_was_seen_is_dropped(first: int) -> None:
    x = receiving(Config(first_sequence=first))
    parts = [data(2, first + n, b"%d" % n, 0 if n else SYN) for n in range(10)]
    feed(x, *parts[:6])
    x.receiver.ack_at = None
    feed(x, *parts[2:5], now=2.0)
    assert x.receiver.ack_at == 2.0  # at once
    feed(x, *parts[4:])
    assert messages(x) == [b"%d" % n for n in range(10)]
    assert x.receiver.next == first + 10


@pytest.mark.parametrize("ahead", [1, 2, 1000, 2**31 - 1])
def test_a_gap_is_a_fault_and_what_stands_before_it_was_taken(ahead: int) -> None:
    x = receiving()
    with pytest.raises(ProtocolError, match="came before"):
        feed(x, data(2, 0, b"first", SYN), data(2, 1 + ahead))
    assert messages(x) == [b"first"] and x.receiver.next == 1


@given(st.lists(st.integers(0, 60), max_size=6))
def test_any_cut_of_a_record_into_records_gives_the_same_events(cuts: list[int]) -> None:
    parts = [data(2, 0, b"a", SYN), data(2, 1, b"b" * 3000, MORE), data(4, 2, b"c", SYN | FIN), data(2, 3, b"d", FIN)]
    whole, pieces = receiving(), receiving()
    feed(whole, *parts)
    edges = sorted({0, len(parts), *(c for c in cuts if c <= len(parts))})
    for low, high in pairwise(edges):
        feed(pieces, *parts[low:high])
    assert [(e[0], e[2], e[3], e[4]) for e in whole.events] == [(e[0], e[2], e[3], e[4]) for e in pieces.events]


# ------------------------------------------------------------------ acknowledgement
def test_acks_come_after_32_frames_or_256_kib_or_20_ms() -> None:
    x = receiving(Config())
    feed(x, data(2, 0, b"x", SYN), now=1.0)
    assert x.receiver.ack_at == pytest.approx(1.02)
    feed(x, *(data(2, n) for n in range(1, 31)), now=1.01)
    assert x.receiver.ack_at == pytest.approx(1.02)
    feed(x, data(2, 31), now=1.01)
    assert x.receiver.ack_at == 1.01
    assert x.receiver.acked() == 32
    assert x.receiver.ack_at is None
    for n in range(17):
        eat(x)
        feed(x, data(2, 32 + n, b"y" * 16 * KIB), now=2.0)
    assert x.receiver.ack_at == 2.0


# ------------------------------------------------------------------ faults, each alone
OPEN2 = data(2, 0, b"x", SYN)
FAULTS: dict[str, tuple[bytes, ...]] = {
    "header cut short": (OPEN2, data(2, 1)[:18]),
    "body cut short": (OPEN2, data(2, 1, b"abc")[:-1]),
    "another magic": (OPEN2, b"X" + data(2, 1)[1:]),
    "another version": (OPEN2, data(2, 1)[:4] + b"\2" + data(2, 1)[5:]),
    "no SYN": (data(2, 0),),
    "SYN twice": (OPEN2, data(2, 1, b"x", SYN)),
    "stream 0": (data(0, 0, b"x", SYN),),
    "ours, never opened": (data(1, 0, b"x", SYN),),
    "empty, short way": (OPEN2, data(2, 1, b"")),
    "empty with FIN": (OPEN2, data(2, 1, b"", FIN)),
    "empty with SYN": (data(2, 0, b"", SYN),),
    "empty with MORE": (OPEN2, data(2, 1, b"", MORE)),
    "MORE and FIN": (OPEN2, data(2, 1, b"x", MORE | FIN)),
    "data after FIN": (OPEN2, data(2, 1, b"x", FIN), data(2, 2)),
    "FIN twice": (OPEN2, data(2, 1, b"x", FIN), data(2, 2, b"x", FIN)),
    "stream credit": (OPEN2, data(2, 1, b"x" * 4033)),
    "stream credit in small change": (OPEN2, *(data(2, n) for n in range(1, 65))),
    "CREDIT too short": (encode(Type.CREDIT, bytes(7), stream=2),),
    "CREDIT of the session without streams": (encode(Type.CREDIT, bytes(15)),),
    "ACK too short": (encode(Type.ACK, bytes(7)),),
    "ACK of what was never sent": (frames.encode_ack(1),),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_protocol_error_and_makes_no_event(name: str) -> None:
    x = receiving()
    *fine, wrong = FAULTS[name]
    for part in fine:
        feed(x, part)
    before = list(x.events)
    with pytest.raises(ProtocolError):
        feed(x, wrong)
    assert x.events == before


@pytest.mark.attack(37)
def test_attack_37_the_session_window_holds_even_where_stream_windows_do_not() -> None:
    x = receiving()
    x.receiver.window.limit = 10_000
    feed(x, *(data(2 + 2 * n, n, b"x" * 4000, SYN) for n in range(2)))
    with pytest.raises(ProtocolError, match="session"):
        feed(x, data(6, 2, b"x" * 4000, SYN))


@pytest.mark.attack(37)
@pytest.mark.parametrize("limit", [0, 1, 2**62, 2**64 - 1])
def test_attack_37_absurd_limits_neither_shut_nor_overflow(limit: int) -> None:
    s = Sessions(FEW).join()
    stream = s.x.open()
    s.x.send(stream, b"open")
    s.pump()
    feed(s.x, frames.Credit(limit, limit).encode(0), frames.Credit(limit).encode(1))
    assert stream.limit == max(limit, 4096)
    assert s.x.sender.window.limit == max(limit, FEW.session_window)
    s.x.send(stream, b"y" * 2000)
    s.pump()
    assert len(messages(s.y)) == 2


@pytest.mark.attack(31)
@pytest.mark.parametrize(
    "frame",
    [
        frames.Credit(0, 0).encode(0),
        frames.Credit(0).encode(2),
        frames.Credit(2**40).encode(998),
        frames.encode_ack(0),
        encode(Type.WARM, stream=998),
        data(2, 0, b"x", SYN),
    ],
    ids=["credit", "stream credit", "credit of none", "ack", "warm of none", "duplicate"],
)
def test_attack_31_frames_that_move_nothing_run_into_the_budget(frame: bytes) -> None:
    x = receiving()
    feed(x, data(2, 0, b"x", SYN))
    events = len(x.events)
    with pytest.raises(Abuse):
        feed(x, frame * 100_000)
    assert len(x.events) == events
    assert x.receiver.budget._spent == pytest.approx(BUDGET, abs=2)


# ------------------------------------------------------------------ fragments


def test_pieces_become_one_message_whose_cost_is_theirs() -> None:
    x = receiving()
    feed(x, data(2, 0, b"x", SYN), *pieces(2, 1, b"abcdefgh", 3, FIN))
    event = x.events[-1]
    assert event[0] is Event.MESSAGE and event[2:] == (b"abcdefgh", True, 3 * 64)


def test_a_message_over_the_limit_resets_its_stream_only() -> None:
    x = receiving()
    feed(x, data(2, 0, b"x", SYN), data(4, 1, b"y", SYN))
    feed(x, *pieces(2, 2, b"z" * 20_001, 2000))
    assert of(x, Event.RESET)[0][2] == OVERSIZE
    (rst,) = split([x.take()[1]])
    assert (rst.stream, rst.flags, rst.body) == (2, RST, OVERSIZE)
    feed(x, data(4, 13, b"still", FIN))
    assert messages(x)[-1] == b"still"


def test_two_long_messages_finish_while_the_third_waits_its_turn() -> None:
    s = Sessions(Config(message=5 * MIB)).join()
    streams = [s.x.open() for _ in range(3)]
    for n, stream in enumerate(streams):
        s.x.send(stream, bytes([65 + n]) * 5 * MIB, True)
    lent, waited = 0, set()
    while s.give(s.x, s.y) | s.give(s.y, s.x):
        lent = max(lent, sum(bool(stream.inbound.extra) for stream in arrived(s.y)))
        waited |= set(s.y.receiver.permits.waiting)
        assert s.y.receiver.window.extra == 5 * MIB * 9 // 8 * (2 - s.y.receiver.permits.free)
    assert lent == 2 and waited == {5}
    assert [(m[:1], len(m)) for m in eat(s.y)] == [(b"A", 5 * MIB), (b"B", 5 * MIB), (b"C", 5 * MIB)]
    s.settle()
    assert s.y.receiver.permits.free == 2 and s.y.receiver.window.extra == 0
    assert not s.x.buffered and not s.y.buffered


def test_a_permit_comes_back_when_its_stream_is_aborted_by_either_side() -> None:
    s = Sessions(Config(permits=1, message=MIB)).join()
    streams = [s.x.open() for _ in range(3)]
    for stream in streams:
        s.x.send(stream, b"m" * 100_000)
    while s.give(s.x, s.y):
        pass
    assert list(s.y.receiver.permits.waiting) == [3, 5]
    s.x.reset(streams[0])
    s.give(s.x, s.y)
    assert list(s.y.receiver.permits.waiting) == [5]
    s.y.reset(arrived(s.y)[1])
    s.settle()
    assert [len(m) for m in eat(s.y)] == [100_000]
    assert s.y.receiver.permits.free == 1


@pytest.mark.attack(39)
def test_attack_39_half_finished_messages_hold_no_more_than_the_session_window_and_the_permits() -> None:
    config = Config(message=5 * MIB)
    s = Sessions(config).join()
    for _ in range(100):
        s.x.send(s.x.open(), b"h" * 5 * MIB)
    most = 0
    while s.give(s.x, s.y) | s.give(s.y, s.x):
        most = max(most, s.y.receiver.window.unread)
    assert most <= config.session_window + 2 * (5 * MIB * 9 // 8)


@pytest.mark.case("HPC-050")
@pytest.mark.parametrize("frame", [1024, 16 * KIB, 65_517])
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1_000_000])
def test_hpc_050_a_message_over_64_kib_is_a_message(size: int, frame: int) -> None:
    s = Sessions(Config(frame=frame, message=1_000_000)).join()
    for _ in range(2):
        s.x.send(s.x.open(), b"m" * size, True)
    s.settle()
    assert [len(m) for m in eat(s.y)] == [size, size]


@pytest.mark.case("HPC-059")
@pytest.mark.parametrize(("size", "fits"), [(19_999, True), (20_000, True), (20_001, False), (22_000, False)])
def test_hpc_059_the_limit_counts_the_message_not_its_frames(size: int, fits: bool) -> None:
    x = receiving()
    feed(x, data(2, 0, b"x", SYN))
    frames_ = pieces(2, 1, b"m" * size, 1000)
    for frame in frames_:
        feed(x, frame)
    assert (len(messages(x)[-1]) == size) is fits
    assert bool(of(x, Event.RESET)) is not fits
