"""Ids and places: rising, serial, never two at once; a place is free when the handler has ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.config import Config
from hermes_peer.core.places import CEILING_MIN, PLACES_KEPT, Places, later
from hermes_peer.core.states import Half
from hermes_peer.core.stream import Stream
from hermes_peer.errors import ProtocolError
from hermes_peer.wire.frames import MASK32, Flag

from .rig import agreed

CONFIG = Config(streams=20)


def places(originator: bool = True) -> Places:
    return Places(originator, CONFIG, agreed(CONFIG, CONFIG))


def ended(stream: Stream) -> None:
    stream.sending = stream.receiving = Half.ENDED


@given(st.integers(0, MASK32), st.integers(1, 2**31 - 1))
def test_later_is_serial(a: int, distance: int) -> None:
    b = (a + distance) & MASK32
    assert later(b, a) and not later(a, b) and not later(a, a)


@pytest.mark.parametrize("originator", [True, False])
def test_ids_are_odd_or_even_rise_and_wrap_without_zero(originator: bool) -> None:
    p = places(originator)
    p._next_id = 0xFFFFFFFF if originator else 0xFFFFFFFE
    ids = []
    for _ in range(3):
        stream = p.make(True)
        assert p.enter(stream)
        ids.append(stream.id)
    assert ids == ([0xFFFFFFFF, 1, 3] if originator else [0xFFFFFFFE, 2, 4])


def test_an_id_that_is_still_in_use_is_passed_over() -> None:
    p = places()
    first = p.make(True)
    p.enter(first)
    p._next_id = 1
    second = p.make(True)
    assert p.enter(second) and second.id == 3


def test_places_are_kept_for_asks() -> None:
    p = places()
    ordinary = [p.enter(p.make(True)) for _ in range(20)]
    assert ordinary.count(True) == 20 - PLACES_KEPT
    reserved = [p.enter(p.make(True, reserved=True)) for _ in range(20)]
    assert reserved.count(True) == PLACES_KEPT


def test_a_raised_limit_alone_opens_no_more_than_may_be_open_at_once() -> None:
    p = places()
    assert p.raise_limit(1000) and p.freed
    assert not p.raise_limit(1000)
    assert [p.enter(p.make(True, reserved=True)) for _ in range(30)].count(True) == 20


@pytest.mark.parametrize(("originator", "own"), [(True, 1), (False, 2)])
def test_a_frame_for_a_stream_of_ours_that_was_never_opened_is_a_fault(originator: bool, own: int) -> None:
    p = places(originator)
    for id in (0, own, own + 2, own + 1000):
        with pytest.raises(ProtocolError, match="never opened"):
            p.arrive(id, Flag.SYN)
    stream = p.make(True)
    p.enter(stream)
    ended(stream)
    stream.released = True
    p.forget_if_done(stream)
    assert p.arrive(own, 0) == (None, True)  # it was, and is done


def test_a_stream_of_theirs_begins_with_syn_and_once() -> None:
    p = places()
    with pytest.raises(ProtocolError, match="without SYN"):
        p.arrive(2, 0)
    stream, granted = p.arrive(8, Flag.SYN)
    assert stream is not None and granted and p.streams[8] is stream
    assert p.last_accepted == 8
    for done in (2, 4, 6, 8):  # below the highest: they were opened and are done
        assert p.arrive(done, Flag.SYN) == (None, True)


def test_their_ids_wrap_too() -> None:
    p = places()
    for id in (0x7FFFFFFE, 0xFFFFFFFA, 0xFFFFFFFE, 2, 4):
        stream, granted = p.arrive(id, Flag.SYN)
        assert stream is not None and granted, hex(id)
    assert p.arrive(0xFFFFFFFC, Flag.SYN) == (None, True)


@pytest.mark.attack(33)
def test_attack_33_one_stream_over_the_limit_is_not_taken_in() -> None:
    p = places()
    for n in range(20):
        assert p.arrive(2 + 2 * n, Flag.SYN)[1]
    stream, granted = p.arrive(42, Flag.SYN)
    assert stream is not None and not granted
    assert 42 not in p.streams and len(p.streams) == 20


@pytest.mark.attack(34)
def test_attack_34_a_place_comes_back_when_the_handler_ends_not_when_the_stream_does() -> None:
    p = places()
    streams = [p.arrive(2 + 2 * n, Flag.SYN)[0] for n in range(20)]
    for stream in streams:
        assert stream is not None
        stream.abort()
        p.forget_if_done(stream)
    assert p.granted == 20 and p.handlers == 20
    assert streams[0] is not None
    streams[0].released = True
    p.forget_if_done(streams[0])
    assert p.granted == 21 and p.handlers == 19 and p.tell
    p.forget_if_done(streams[0])  # once
    assert p.granted == 21


def test_a_grown_window_gives_its_spare_back() -> None:
    p = places()
    stream, _ = p.arrive(2, Flag.SYN)
    assert stream is not None
    stream.inbound.size *= 4
    p.spare -= 3 * CONFIG.window
    ended(stream)
    stream.released = True
    p.forget_if_done(stream)
    assert p.spare == CONFIG.spare


def test_silent_handlers_are_those_of_theirs_that_run_and_show_nothing() -> None:
    p = places()
    streams = [p.arrive(2 + 2 * n, Flag.SYN)[0] for n in range(4)]
    for stream, shown in zip(streams, (1.0, 5.0, 1.0, 1.0), strict=True):
        assert stream is not None
        stream.shown_at = shown
    assert streams[2] is not None and streams[3] is not None
    streams[2].sending = Half.ENDED
    streams[3].released = True
    mine = p.make(True)
    p.enter(mine)
    assert p.silent(3.0) == streams[:1]


@pytest.mark.parametrize(
    ("streams", "queue_ms", "ceiling"),
    [(128, 0, 128), (128, 249, 128), (128, 250, 64), (128, 500, 32), (128, 750, 16), (128, 2**32 - 1, 16),
     (20, 250, 16), (9, 9999, 9)],
)  # fmt: skip
def test_a_loaded_peer_is_sent_less(streams: int, queue_ms: int, ceiling: int) -> None:
    config = Config(streams=streams)
    p = Places(True, config, agreed(config, config))
    p.heed(queue_ms)
    assert p.ceiling == ceiling and not p.freed
    ordinary = [p.enter(p.make(True)) for _ in range(200)]
    assert ordinary.count(True) == ceiling - PLACES_KEPT
    reserved = [p.enter(p.make(True, reserved=True)) for _ in range(200)]
    assert reserved.count(True) == streams - (ceiling - PLACES_KEPT)  # exempt: all that is left
    p.heed(0)
    assert p.ceiling == streams and p.freed is (ceiling < streams)
    assert CEILING_MIN >= 2 * PLACES_KEPT
