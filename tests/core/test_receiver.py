"""What arrives: numbers, fragments, credit given; and every rule that a frame may break, alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.budget import BUDGET, Abuse
from hermes_peer.core.config import KIB, MIB, Config
from hermes_peer.core.events import Event
from hermes_peer.core.receiver import NO_PLACE, OVERSIZE
from hermes_peer.core.session import Session
from hermes_peer.core.states import Half
from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import Flag, Type, encode

from .rig import WRAP, Sessions, arrived, data, eat, messages, of, other_fails, split

SYN, FIN, RST, MORE = int(Flag.SYN), int(Flag.FIN), int(Flag.RST), int(Flag.MORE)
SMALL = Config(streams=20, window=4096, message=20_000, spare=0)


def receiving(config: Config = SMALL) -> Session:
    """The originator's side of a session whose peer is this test."""
    return Sessions(config).join().x


def feed(session: Session, *parts: bytes, now: float = 1.0) -> None:
    session.receive(b"".join(parts), now, other_fails)


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
    for low, high in zip(edges, edges[1:], strict=False):
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
    numbers = iter(range(100))
    with pytest.raises(ProtocolError, match="session"):
        for n in range(4):
            feed(x, data(2 + 2 * n, next(numbers), b"x" * 4000, SYN))


@pytest.mark.attack(37)
@pytest.mark.parametrize("limit", [0, 1, 2**62, 2**64 - 1])
def test_attack_37_absurd_limits_neither_shut_nor_overflow(limit: int) -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"open")
    s.pump()
    feed(s.x, frames.Credit(limit, limit).encode(0), frames.Credit(limit).encode(1))
    assert stream.outbound.limit == max(limit, 4096)
    assert s.x.sender.window.limit == max(limit, SMALL.session_window)
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
def pieces(stream: int, first: int, message: bytes, size: int, flags: int = 0) -> list[bytes]:
    """The frames of a message on an open stream."""
    cuts = [message[at : at + size] for at in range(0, len(message), size)]
    return [data(stream, first + n, cut, flags if n == len(cuts) - 1 else MORE) for n, cut in enumerate(cuts)]


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


# ------------------------------------------------------------------ credit
def test_consuming_twice_or_after_an_abort_gives_nothing_twice() -> None:
    x = receiving()
    feed(x, data(2, 0, b"x" * 1000, SYN), data(2, 1, b"y" * 1000))
    stream = x.places.streams[2]
    for _ in range(3):
        x.consumed(stream, 1000)
    assert stream.inbound.consumed == x.receiver.window.consumed == 2000
    feed(x, data(2, 2, b"z" * 1000), data(2, 3, b"", RST))
    assert x.receiver.window.unread == 0
    x.consumed(stream, 1000)
    x.consumed(stream, -5)
    assert x.receiver.window.consumed == x.receiver.window.received == 3000


def test_what_arrives_after_our_reset_is_counted_given_back_and_not_shown() -> None:
    x = receiving()
    feed(x, data(2, 0, b"x", SYN))
    stream = x.places.streams[2]
    x.reset(stream, b"no")
    events = list(x.events)
    feed(x, data(2, 1, b"y" * 100), data(2, 2, b"z" * 100, MORE), data(2, 3, b"w", FIN), data(2, 4, b"", RST))
    assert x.events == events
    x.release(stream)
    assert not x.places.streams
    feed(x, data(2, 5, b"v" * 100))
    assert x.events == events
    assert x.receiver.window.received == x.receiver.window.consumed == 64 + 100 + 100 + 64 + 100
    assert x.receiver.next == 6


def drained(s: Sessions, total: int, pause: float) -> int:
    """Send `total` bytes on one stream, reading at once; the window it ends with."""
    stream = s.x.open()
    s.x.send(stream, b"open")
    s.pump()
    eat(s.y)
    (mine,) = arrived(s.y)
    for _ in range(total // 1000):
        s.x.send(stream, b"d" * 1000)
    while s.give(s.x, s.y):
        s.now += pause
        s.y.places.now = s.now
        eat(s.y)
        s.give(s.y, s.x)
    return mine.inbound.size


def test_a_window_that_is_drained_at_once_grows_and_gives_back_what_it_took() -> None:
    config = Config()
    s = Sessions(config).join()
    s.y.receiver.rtt = 0.1
    assert drained(s, 20 * MIB, 0.001) == 3 * MIB  # doubled as long as it stays under 4 MiB
    assert s.y.places.spare == config.spare - (3 * MIB - config.window)
    (stream,) = arrived(s.y)
    s.y.reset(stream)
    s.y.release(stream)
    assert s.y.places.spare == config.spare


def test_a_window_that_is_drained_slowly_stays() -> None:
    s = Sessions(Config()).join()
    s.y.receiver.rtt = 0.0
    assert drained(s, 2 * MIB, 1.0) == 48 * KIB


def test_windows_grow_from_the_spare_and_no_further() -> None:
    config = Config(spare=100 * KIB)
    s = Sessions(config).join()
    s.y.receiver.rtt = 0.1
    assert drained(s, 5 * MIB, 0.001) == 96 * KIB
    assert s.y.places.spare == 52 * KIB


def test_under_memory_pressure_nothing_is_renewed_and_all_of_it_later() -> None:
    s = Sessions(SMALL).join()
    s.y.receiver.pressed = True
    stream = s.x.open()
    for _ in range(10):
        s.x.send(stream, b"x" * 1000)
    s.settle()
    taken = len(eat(s.y))
    s.settle()
    assert taken == 4 and not eat(s.y) and stream.queue
    s.y.receiver.relieve()
    got = 0
    for _ in range(5):
        s.settle()
        got += len(eat(s.y))
    assert got == 6


def test_a_new_link_is_told_all_limits_again() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    for _ in range(6):
        s.x.send(stream, b"x" * 1000)
    s.pump()
    eat(s.y)
    lost = s.y.take()[0]  # the CREDIT never arrives
    assert [f.stream for f in split([lost])] == [2] or lost
    s.cut()
    s.join()
    s.settle()
    assert len(eat(s.y)) == 2


# ------------------------------------------------------------------ streams
@pytest.mark.attack(33)
def test_attack_33_a_stream_over_the_limit_is_refused_by_type_and_the_session_lives() -> None:
    x = receiving()
    for n in range(20):
        feed(x, data(2 + 2 * n, n, b"x", SYN))
    shown = len(x.events)
    feed(x, data(42, 20, b"one too many", SYN), data(42, 21, b"and on"))
    assert len(x.events) == shown
    (rst,) = split([x.take()[1]])
    assert (rst.stream, rst.flags, rst.body) == (42, RST, NO_PLACE)
    assert x.receiver.window.unread == 20 * 64
    feed(x, data(2, 22, b"others go on"))
    assert messages(x)[-1] == b"others go on"


@pytest.mark.attack(34)
def test_attack_34_open_and_reset_never_runs_more_handlers_than_places_and_ends_in_the_budget() -> None:
    x = receiving()
    most = sequence = 0
    id = 2
    with pytest.raises(Abuse):
        for _ in range(100_000):
            feed(x, data(id, sequence, b"x", SYN), data(id, sequence + 1, b"", RST))
            sequence, id = sequence + 2, id + 2
            most = max(most, x.places.handlers)
            while x.take() != (b"", b""):
                pass
    assert most == 20
    assert sum(e[0] is Event.MESSAGE for e in x.events) == 20


@pytest.mark.attack(34)
def test_attack_34_handlers_that_end_at_once_do_not_make_resets_free() -> None:
    x = receiving()
    id, sequence = 2, 0
    with pytest.raises(Abuse):
        for _ in range(100_000):
            feed(x, data(id, sequence, b"x", SYN), data(id, sequence + 1, b"", RST))
            id, sequence = id + 2, sequence + 2
            x.take()
            for event in x.events:
                if event[0] is Event.RESET:
                    x.release(event[1])
            x.events.clear()
    assert 10_000 <= sequence // 2 <= 11_000


@pytest.mark.attack(35)
def test_attack_35_faults_that_make_us_reset_are_counted() -> None:
    x = receiving(Config(streams=20, message=1024))
    with pytest.raises(Abuse):
        for n in range(100_000):
            feed(x, *pieces_of_new(2 + 2 * n, 2 * n))
            for event in of(x, Event.RESET):
                x.release(event[1])
            x.events.clear()
            x.take()
    assert n <= 1100


def pieces_of_new(stream: int, first: int) -> list[bytes]:
    """A message of 2 KiB where 1 is allowed."""
    return [data(stream, first, b"x" * 1024, SYN | MORE), data(stream, first + 1, b"x" * 1024)]


def test_warm_is_shown_for_a_stream_that_lives() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"x")
    s.pump()
    s.x.receive(encode(Type.WARM, stream=1), 9.0, other_fails)
    assert stream.seen_at == 9.0
    assert of(s.x, Event.WARM)[0][1] is stream


def test_frames_that_are_not_the_sessions_go_to_the_link_which_may_stop_the_reading() -> None:
    x = receiving()
    seen = []

    def other(kind: int, flags: int, id: int, body: bytes) -> bool:
        seen.append((kind, flags, id, body))
        return kind != Type.CLOSE

    x.receive(
        encode(Type.PING, b"p") + data(2, 0, b"one", SYN) + encode(Type.CLOSE, b"c") + data(2, 1, b"two"), 1.0, other
    )
    assert seen == [(Type.PING, 0, 0, b"p"), (Type.CLOSE, 0, 0, b"c")]
    assert messages(x) == [b"one"]
    assert x.places.streams[2].receiving is Half.OPEN
