"""What leaves: fragments, turns, numbers, credit, what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.config import KIB, Config
from hermes_peer.core.events import Event
from hermes_peer.core.session import Session
from hermes_peer.core.states import Half
from hermes_peer.errors import UsageError
from hermes_peer.wire.frames import COST_MIN, Flag, Frame

from .rig import WRAP, Sessions, arrived, eat, messages, of, split

SMALL = Config(frame=1024, window=4096, message=64 * KIB, spare=0, first_sequence=WRAP)
SYN, FIN, RST, MORE = Flag.SYN, Flag.FIN, Flag.RST, Flag.MORE


def taken(session: Session) -> list[Frame]:
    """All DATA that leaves now."""
    return split(iter(lambda: session.take()[1], b""))


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12), st.booleans())
def test_the_short_way_and_the_long_way_give_the_same_messages(sizes: list[int], paused: bool) -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    sent = [bytes([n]) * size for n, size in enumerate(sizes)]
    for n, message in enumerate(sent):
        if paused and n == len(sent) // 2:
            s.cut()
        s.x.send(stream, message, n == len(sent) - 1)
    if paused:
        s.join()
    got: list[bytes] = []
    for _ in range(40):
        s.pump()
        got += eat(s.y)
    assert got == sent
    assert arrived(s.y)[0].receiving is Half.ENDED


def test_misuse_is_raised_and_changes_nothing() -> None:
    s = Sessions(SMALL).join()
    s.pump()
    stream = s.x.open()
    for wrong in (b"", b"x" * (64 * KIB + 1)):
        with pytest.raises(UsageError, match="message"):
            s.x.send(stream, wrong, True)
    assert stream.sending is Half.OPEN and not s.x.pending()
    s.x.send(stream, b"x" * 64 * KIB)
    s.x.send(stream, b"last", True)
    with pytest.raises(UsageError, match="ended"):
        s.x.send(stream, b"more")


def test_what_is_sent_on_a_stream_that_the_peer_gave_up_is_dropped_quietly() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"hello")
    s.pump()
    s.y.reset(arrived(s.y)[0])
    s.pump()
    s.x.send(stream, b"more")
    assert not taken(s.x)


def test_flags_of_a_message_in_pieces() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"a" * 2500, True)
    frames = taken(s.x)
    assert [f.flags for f in frames] == [SYN | MORE, MORE, FIN]
    assert [len(f.body) for f in frames] == [1024, 1024, 452]
    assert [f.sequence for f in frames] == [WRAP, WRAP + 1, WRAP + 2]
    assert stream.first == WRAP


def test_streams_take_turns_and_fragments_stay_together() -> None:
    s = Sessions(SMALL).join()
    s.cut()  # so that all of it waits
    streams = [s.x.open() for _ in range(3)]
    for n, stream in enumerate(streams):
        s.x.send(stream, bytes([n]) * 2500)
        s.x.send(stream, bytes([n]) * 10)
    s.join()
    order = [f.stream for f in taken(s.x)]
    assert order[:9] == [1, 3, 5] * 3
    s.pump()


def test_a_reset_in_the_queue_leaves_no_hole() -> None:
    s = Sessions(SMALL)
    gone, kept = s.x.open(), s.x.open()
    s.x.send(gone, b"never")
    s.x.send(kept, b"this")
    s.x.reset(gone)
    s.join()
    frames = taken(s.x)
    assert [(f.stream, f.sequence, f.body) for f in frames] == [(1, WRAP, b"this")]
    assert gone.id == 0


def test_a_reset_passes_when_the_window_is_shut() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    for _ in range(10):
        s.x.send(stream, b"a" * 1024)
    s.pump()
    assert stream.queue and stream.room == 0
    s.x.reset(stream, b"enough")
    s.pump()
    assert of(s.y, Event.RESET)[0][2] == b"enough"
    assert s.x.sender.window.sent == s.y.receiver.window.received == s.y.receiver.window.consumed


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40))
def test_no_byte_leaves_beyond_the_credit(sizes: list[int]) -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    for size in sizes:
        s.x.send(stream, b"z" * size)
    frames = taken(s.x)
    cost = sum(max(len(f.body), COST_MIN) for f in frames)
    assert cost == stream.sent == s.x.sender.window.sent <= 4096
    if stream.queue:
        assert stream.room < COST_MIN or cost == 4096


def test_writable_comes_once_when_the_queue_is_empty() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"a" * 10_000)
    stream.notify = True
    for _ in range(10):
        s.pump()
        if stream.queue:
            assert not of(s.x, Event.WRITABLE)
        eat(s.y)
    assert len(of(s.x, Event.WRITABLE)) == 1
    assert stream.queued == 0


def test_one_turn_gives_batches_of_about_eight_kib() -> None:
    s = Sessions(Config()).join()
    stream = s.x.open()
    for _ in range(400):
        s.x.send(stream, b"t" * 100)
    sizes = [len(d) for d in iter(lambda: s.x.take()[1], b"")]
    assert all(8 * KIB <= size < 8 * KIB + 16 * KIB + 19 for size in sizes[:-1])


@pytest.mark.case("HPC-024")
@pytest.mark.attack(38)
def test_attack_38_a_peer_that_never_grants_stops_its_own_stream_only() -> None:
    s = Sessions(SMALL).join()
    stuck, free = s.x.open(), s.x.open()
    for _ in range(100):
        s.x.send(stuck, b"s" * 1000)
    s.pump()
    assert stuck.queued == 100_000 - 4096
    got = 0
    for n in range(50):
        s.x.send(free, b"%d" % n)
        s.pump()
        for event in list(s.y.events):
            if event[0] is Event.MESSAGE and event[2] == b"%d" % n:
                got += 1
                s.y.consumed(event[1], event[4])
    assert got == 50
    assert not s.x.pending()


@pytest.mark.case("HPC-021")
@pytest.mark.attack(38)
def test_attack_38_a_peer_that_grants_all_and_confirms_nothing_is_not_served_without_end() -> None:
    config = Config(unacked=100_000)
    s = Sessions(config).join()
    stream = s.x.open()
    s.x.send(stream, b"open")
    s.pump()
    s.x.sender.window.raise_to(2**62)
    stream.raise_to(2**62)
    for _ in range(2000):
        s.x.send(stream, b"d" * 1000)
    kept = sum(len(f.body) for f in taken(s.x))
    assert kept <= s.x.sender.replay.bytes <= 100_000 + 3 * 16 * KIB
    assert not s.x.pending() and stream.queued + kept == 2000 * 1000
    s.x.sender.acked(s.x.sender.replay.next)
    assert s.x.pending() and taken(s.x)


def test_a_stall_does_not_outlive_its_link() -> None:
    s = Sessions(Config(unacked=20_000)).join()
    stream = s.x.open()
    for n in range(40):
        s.x.send(stream, b"%04d" % n * 1000)
    while s.x.take()[1]:  # lost on the way
        pass
    assert s.x.sender.stalled
    s.cut()
    assert not s.x.sender.acked(s.x.sender.replay.acked) and not s.x.pending()
    s.join()
    got: list[bytes] = []
    for _ in range(20):
        s.settle()
        got += eat(s.y)
    assert got == [b"%04d" % n * 1000 for n in range(40)]


def test_nothing_leaves_without_a_link() -> None:
    s = Sessions(SMALL)
    stream = s.x.open()
    s.x.send(stream, b"waits")
    assert not s.x.pending() and s.x.take() == (b"", b"")
    s.x.attach()
    s.x.send(stream, b"waits too")
    assert not s.x.pending() and s.x.take() == (b"", b"")
    s.join()
    s.pump()
    assert messages(s.y) == [b"waits", b"waits too"]
