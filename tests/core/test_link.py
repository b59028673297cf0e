"""One transport's life: bytes in any slices, one path, last words. Nothing here ever raises."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_peer.core.config import Config
from hermes_peer.core.events import Event
from hermes_peer.core.link import Link
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.states import LinkState, Reason, SessionState
from hermes_peer.wire import frames
from hermes_peer.wire.frames import HEADER_SIZE, Close, CloseMode, Flag, Ping, Type, encode

from .rig import A, B, World, arrived, data, drain, eat, inject, last, messages, node, of


# ------------------------------------------------------------------ slices
def conversation() -> bytes:
    """All that a says in a whole life with b."""
    w = World().dial()
    said = b""
    while (one := drain(w.la, w.now)) or w.lb.pending(w.now):
        said += one
        w.lb.receive(one, w.now)
        w.la.receive(drain(w.lb, w.now), w.now)
    for n in range(3):
        stream = w.sa.open()
        w.sa.send(stream, b"%d" % n * 5000)
        w.sa.send(stream, b"end", True)
        said += drain(w.la, w.now)
    w.la.close(Reason.SHUTDOWN, "bye")
    said += drain(w.la, w.now)
    return said


SAID = conversation()


def heard(slices: list[bytes]) -> list[Any]:
    w = World().dial()  # the same dice: b will choose the same keys
    for part in slices:
        w.lb.receive(part, w.now)
        drain(w.lb, w.now)
    session = w.peer_of_b.session
    assert session is None and w.lb.done
    return [(e[0], e[3], e[4]) for e in w.b.events]


@given(st.lists(st.integers(1, len(SAID) - 1), max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_slicing_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(SAID)]
    slices = [SAID[low:high] for low, high in pairwise(edges)]
    assert heard(slices) == heard([SAID])


def test_byte_by_byte() -> None:
    assert heard([SAID[at : at + 1] for at in range(len(SAID))]) == heard([SAID])


def test_session_events_do_not_depend_on_slices_either() -> None:
    w = World().connect()
    stream = w.sa.open()
    for n in range(20):
        w.sa.send(stream, b"%d" % n * 700)
    said = drain(w.la, w.now)
    for at in range(0, len(said), 7):
        w.lb.receive(said[at : at + 7], w.now)
    assert messages(w.sb) == [b"%d" % n * 700 for n in range(20)]


@pytest.mark.attack(15)
def test_attack_15_bytes_that_trickle_in_are_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World().connect()
    stream = w.sa.open()
    w.sa.send(stream, b"x" * 8000)
    said = drain(w.la, w.now)
    looks = []
    parse = Link._parse
    monkeypatch.setattr(Link, "_parse", lambda *args: looks.append(1) or parse(*args))
    for at in range(len(said)):
        w.lb.receive(said[at : at + 1], w.now)
    assert messages(w.sb) == [b"x" * 8000]
    assert len(looks) <= 20 + 2


# ------------------------------------------------------------------ the path after the keys
def at_link() -> World:
    """b waits for a's LINK."""
    w = World().dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    w.lb.receive(w.la.take(w.now), w.now)
    return w


@pytest.mark.attack(14)
def test_attack_14_in_clear_nothing_is_taken_once_the_keys_stand() -> None:
    for make in (at_link, lambda: World().connect()):
        for kind in set(range(256)) - {Type.SEALED}:
            w = make()
            w.lb.receive(encode(kind, b"\0" * 40), w.now)
            assert w.lb.done, kind
            session = w.peer_of_b.session
            assert session is not None and session.state is SessionState.DETACHED  # and not ended
            assert not messages(session)


@pytest.mark.attack(14)
def test_attack_14_data_before_link_or_anything_but_link_ends_the_link() -> None:
    for kind in set(range(256)) - {Type.LINK, Type.CLOSE}:
        w = at_link()
        inject(w.lb, encode(kind, b"\0" * 40, stream=1 if kind == Type.DATA else 0, flags=1), w.now)
        assert w.lb.done, kind
        assert not of(w.sb, Event.MESSAGE) if w.peer_of_b.session else True
    w = at_link()
    inject(w.lb, b"", w.now)
    assert w.lb.done
    w = at_link()
    assert w.lb.outcome is not None
    fine = frames.Link(w.lb.outcome.session, False, 0, 0).encode()
    inject(w.lb, encode(Type.WARM, fine[HEADER_SIZE:]), w.now)  # the right body under another name
    assert w.lb.done


@pytest.mark.attack(14)
def test_attack_14_every_type_on_an_open_link() -> None:
    fine = {Type.CREDIT, Type.ACK, Type.PING, Type.PONG, Type.WARM, Type.REKEY}
    for kind in range(256):
        w = World().connect()
        body = Ping(1, 0, 0, True, 0).encode(Type.PING)[HEADER_SIZE:] if kind in (Type.PING, Type.PONG) else bytes(40)
        inject(w.lb, encode(kind, body), w.now)
        alive = kind in fine or (kind > Type.LINK and kind not in (Type.DATA, Type.CLOSE))
        assert w.lb.done is not alive, kind
        assert not of(w.sb, Event.MESSAGE) if w.peer_of_b.session else True


@pytest.mark.parametrize("kind", [0, 7, 15, 24, 99, 255])
def test_unknown_types_are_ignored_unless_critical(kind: int) -> None:
    w = World().connect()
    inject(w.lb, encode(kind, b"grease", stream=77, flags=0x70) if kind > 6 else b"", w.now)
    assert not w.lb.done
    inject(w.lb, encode(kind, b"grease", flags=int(Flag.CRITICAL)), w.now)
    assert w.lb.done and last(w)[1] is Reason.PROTOCOL


RUDE = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda kind, flags, stream, sequence, body: encode(kind, body, flags=flags, stream=stream, sequence=sequence),
        st.sampled_from([*Type, 0, 30, 255]),
        st.integers(0, 255),
        st.integers(0, 6),
        st.integers(0, 5),
        st.binary(max_size=60),
    ),
)


@given(st.lists(RUDE, max_size=8), st.booleans())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_proven_peer_may_say_anything_and_nothing_raises(said: list[bytes], early: bool) -> None:
    w = at_link() if early else World().connect()
    for plain in said:
        if not w.lb.done:
            inject(w.lb, plain, w.now)
        w.lb.pending(w.now)
        drain(w.lb, w.now)
        w.now += 0.5
        w.lb.tick(w.now)
        w.b.tick(w.now)
    w.lb.eof(w.now)
    assert w.lb.state is LinkState.CLOSED and w.lb.session is None


# ------------------------------------------------------------------ ends
@pytest.mark.attack(25)
def test_attack_25_a_line_that_just_ends_is_lost_and_no_end() -> None:
    w = World().connect()
    w.lb.eof(w.now)
    w.lb.eof(w.now)
    assert last(w)[:2] == (NodeEvent.DOWN, Reason.LOST)
    assert w.sb.state is SessionState.DETACHED


def test_a_close_says_why_and_ends_the_session_of_both() -> None:
    w = World().connect()
    one, two = w.sa, w.sb
    w.sa.send(w.sa.open(), b"work")
    w.pump()
    w.lb.close(Reason.SHUTDOWN, "going down for maintenance")
    w.lb.close(Reason.BUSY, "twice is once")
    w.pump()
    assert last(w, of_a=True) == (NodeEvent.DOWN, Reason.SHUTDOWN, "going down for maintenance")
    assert one.state is two.state is SessionState.ENDED
    assert of(one, Event.ENDED)[0][2] is Reason.SHUTDOWN
    assert w.peer_of_a.session is None and w.peer_of_b.session is None


def test_a_close_tells_the_last_stream_that_was_accepted() -> None:
    w = World().connect()
    one = w.sa
    streams = [w.sa.open() for _ in range(3)]
    for stream in streams[:2]:
        w.sa.send(stream, b"work")
    w.pump()
    w.sa.send(streams[2], b"on its way")
    drain(w.la, w.now)
    w.lb.close(Reason.SHUTDOWN, "bye")
    w.pump()
    assert [one.fate(stream) for stream in streams] == ["unknown", "unknown", "no"]


def test_a_drain_is_announced_and_the_link_goes_on() -> None:
    w = World().connect()
    assert w.la.heartbeat.load.accepting
    w.lb.announce_drain()
    w.pump()
    assert not w.la.heartbeat.load.accepting
    w.sa.send(w.sa.open(), b"what runs goes on")
    w.pump()
    assert messages(w.sb) == [b"what runs goes on"]


def test_an_unknown_code_is_an_end_without_a_reason() -> None:
    w = World().connect()
    inject(w.lb, Close(CloseMode.END, 200, text="??").encode(), w.now)
    assert last(w) == (NodeEvent.DOWN, Reason.NONE, "??")


def test_a_broken_rule_is_told_to_a_peer_that_has_proved_itself() -> None:
    w = World().connect()
    inject(w.lb, data(1, 5), w.now)
    w.pump()
    kind, reason, text = last(w, of_a=True)
    assert (kind, reason) == (NodeEvent.DOWN, Reason.PROTOCOL) and "came before" in text


def test_nothing_is_read_after_the_end() -> None:
    w = World().connect()
    w.sa.send(w.sa.open(), b"late")
    said = drain(w.la, w.now)
    w.lb.close(Reason.IDLE, "idle", CloseMode.DRAIN)
    w.lb.receive(said, w.now)
    assert not messages(w.sb)
    w.lb.tick(w.now + 1000)


@pytest.mark.attack(38)
def test_attack_38_a_peer_that_never_reads_gets_no_more_than_its_credit() -> None:
    w = World().connect()
    for _ in range(20):
        stream = w.sa.open()
        for _ in range(200):
            w.sa.send(stream, b"x" * 1000)
    said = len(drain(w.la, w.now))
    assert said <= 20 * (48 * 1024) * 1.05
    assert w.sa.sender.replay.bytes <= said and not w.la.pending(w.now)


def test_what_was_sent_is_split_into_records_that_fit() -> None:
    w = World(
        node(A, "a", Config(frame=65_517, batch=64 * 1024)), node(B, "b", Config(frame=65_517, window=2**20))
    ).connect()
    stream = w.sa.open()
    w.sa.send(stream, b"open")
    w.pump()
    eat(w.sb)
    for _ in range(5):
        w.sa.send(stream, b"m" * 65_517)
        w.sb.send(arrived(w.sb)[0], b"back" * 100)
    w.pump()
    assert [len(m) for m in eat(w.sb)] == [65_517] * 5
    w.pump()
