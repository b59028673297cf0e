"""Credit given, windows that grow, streams over the limit, floods."""

from __future__ import annotations

import pytest

from hermes_peer.core.budget import Abuse
from hermes_peer.core.config import KIB, MIB, Config
from hermes_peer.core.events import Event
from hermes_peer.core.receiver import NO_PLACE
from hermes_peer.core.states import Half
from hermes_peer.wire.frames import Type, encode

from .rig import (
    FEW,
    FIN,
    MORE,
    RST,
    SYN,
    Sessions,
    arrived,
    data,
    eat,
    feed,
    messages,
    of,
    other_fails,
    receiving,
    split,
)


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
    s = Sessions(FEW).join()
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
    s = Sessions(FEW).join()
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
@pytest.mark.parametrize("quick", [False, True], ids=["handlers that run on", "handlers that end at once"])
def test_attack_34_open_and_reset_never_runs_more_handlers_than_places_and_ends_in_the_budget(quick: bool) -> None:
    x = receiving()
    most, opened = [0], [0]

    def flood() -> None:
        for n in range(100_000):
            feed(x, data(2 + 2 * n, 2 * n, b"x", SYN), data(2 + 2 * n, 2 * n + 1, b"", RST))
            most[0] = max(most[0], x.places.handlers)
            opened[0] += 1
            x.take()
            for event in of(x, Event.RESET) if quick else ():
                x.release(event[1])
            x.events.clear()

    with pytest.raises(Abuse):
        flood()
    assert most[0] == (1 if quick else 20)
    assert 900 <= opened[0] <= 60_000


@pytest.mark.attack(35)
def test_attack_35_faults_that_make_us_reset_are_counted() -> None:
    x = receiving(Config(streams=20, message=1024))
    made = []

    def flood() -> None:
        for n in range(100_000):
            made.append(n)
            feed(x, *pieces_of_new(2 + 2 * n, 2 * n))
            for event in of(x, Event.RESET):
                x.release(event[1])
            x.events.clear()
            x.take()

    with pytest.raises(Abuse):
        flood()
    assert len(made) <= 1001


def pieces_of_new(stream: int, first: int) -> list[bytes]:
    """A message of 2 KiB where 1 is allowed."""
    return [data(stream, first, b"x" * 1024, SYN | MORE), data(stream, first + 1, b"x" * 1024)]


def test_warm_is_shown_for_a_stream_that_lives() -> None:
    s = Sessions(FEW).join()
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
