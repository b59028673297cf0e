"""One transport's life: records in any slices, heartbeat, rest, last words. Nothing here ever raises."""

from __future__ import annotations

import tracemalloc
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
from hermes_peer.wire.frames import HEADER, HEADER_SIZE, MAGIC, Close, CloseMode, Flag, Ping, Type, encode

from .rig import A, B, World, arrived, data, drain, eat, inject, messages, node, of, split

SEALED = int(Type.SEALED)
INF = float("inf")


def last(world: World, of_a: bool = False) -> tuple[Any, ...]:
    """The newest node event: (kind, reason, text)."""
    kind, _, _, reason, text = (world.a if of_a else world.b).events[-1]
    return kind, reason, text


def told(link: Link, other: Link, now: float) -> list[frames.Frame]:
    """The frames inside what `link` still says, as `other` can open them."""
    assert other._records is not None
    said, found, at = drain(link, now), [], 0
    while at < len(said):
        end = at + HEADER_SIZE + HEADER.unpack_from(said, at)[6]
        found += frames.split(other._records.open(memoryview(said[at:end])))
        at = end
    return found


# ------------------------------------------------------------------ slices
def conversation() -> tuple[bytes, list[tuple[Any, ...]]]:
    """All that a says in a whole life with b, and what b heard."""
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
    return said, []


SAID, _ = conversation()


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
    slices = [SAID[low:high] for low, high in zip(edges, edges[1:], strict=False)]
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


# ------------------------------------------------------------------ what is said before anything is proved
@pytest.mark.attack(13)
@pytest.mark.parametrize(
    "opening",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(50),
        bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(600),
        b"SSH-2.0-OpenSSH_9.9\r\n" * 3,
        bytes(100_000),
        b"HRMP" + bytes(40),
        b"HRMP\x02\x01" + bytes(40),
        encode(Type.HELLO, bytes(1500)),
        encode(Type.HELLO),
        encode(Type.READY, bytes(300)),
        encode(Type.SEALED, bytes(300)),
        encode(Type.PING, bytes(29)),
        encode(Type.DATA, b"now", stream=1, flags=1),
        encode(200, bytes(10), flags=int(Flag.CRITICAL)),
    ],
)
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_attack_13_a_scanner_gets_no_byte_back(opening: bytes, step: int) -> None:
    w = World()
    link = w.b.accept(w.now)
    for at in range(0, min(len(opening), 2000) if step == 1 else len(opening), step):
        link.receive(opening[at : at + step], w.now)
        assert drain(link, w.now) == b""
    link.tick(w.now + 5)
    assert link.done and drain(link, w.now) == b""
    assert last(w)[:2] == (NodeEvent.REFUSED, Reason.PROOF)
    assert not w.b.peers and not w.b.half_open


@pytest.mark.attack(13)
@given(st.lists(st.binary(max_size=200), max_size=6))
def test_attack_13_nor_does_anybody_with_random_bytes(parts: list[bytes]) -> None:
    w = World()
    link = w.b.accept(w.now)
    for part in parts:
        link.receive(part, w.now)
    link.tick(w.now + 5)
    assert link.done and drain(link, w.now) == b""


@pytest.mark.attack(7)
def test_attack_7_a_bad_proof_is_met_with_silence() -> None:
    for at in range(0, 400, 7):
        w = World().dial()
        w.lb.receive(drain(w.la, w.now), w.now)
        w.la.receive(drain(w.lb, w.now), w.now)
        ready = bytearray(w.la.take(w.now))
        ready[HEADER_SIZE + 4 + at % (len(ready) - HEADER_SIZE - 4)] ^= 1
        w.lb.receive(bytes(ready), w.now)
        assert w.lb.done and drain(w.lb, w.now) == b""
        assert not w.b.peers


# ------------------------------------------------------------------ sizes
@pytest.mark.attack(30)
@pytest.mark.parametrize("proven", [False, True])
@pytest.mark.parametrize("kind", [Type.HELLO, Type.READY, Type.SEALED, Type.DATA, 99])
@pytest.mark.parametrize("size", [2**16 + 17, 2**24 - 1, 2**32 - 1])
def test_attack_30_a_huge_length_is_refused_from_its_header(proven: bool, kind: int, size: int) -> None:
    w = World().connect() if proven else World()
    link = w.lb if proven else w.b.accept(w.now)
    tracemalloc.start()
    link.receive(HEADER.pack(MAGIC, 1, kind, 0, 0, 0, size), w.now)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert link.done and peak < 50_000


@pytest.mark.attack(30)
def test_attack_30_before_the_keys_even_a_record_is_too_long() -> None:
    w = World()
    link = w.b.accept(w.now)
    link.receive(HEADER.pack(MAGIC, 1, Type.SEALED, 0, 0, 0, 16_389), w.now)
    assert link.done


@pytest.mark.attack(36)
@pytest.mark.parametrize("size", [4097, 16_000])
def test_attack_36_a_first_record_without_end_is_refused(size: int) -> None:
    w = World().dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    w.lb.receive(w.la.take(w.now), w.now)  # READY alone
    assert w.lb.state is LinkState.LINK
    assert w.lb.outcome is not None
    inject(w.lb, frames.Link(w.lb.outcome.session, False, 0, 0, b"c" * size).encode(), w.now)
    assert w.lb.done is (size > frames.LINK_BODY_MAX - 33)
    inject(w.lb, encode(Type.PING, bytes(29)), w.now)  # and none of it raises


@pytest.mark.attack(36)
def test_attack_36_the_acceptors_endless_capabilities_end_the_link() -> None:
    w = World().dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    assert w.la.outcome is not None
    inject(w.la, frames.Link(w.la.outcome.session, False, 0, 0, b'{"a":"' + b"c" * 5000 + b'"}').encode(), w.now)
    assert w.la.done and w.peer_of_a.session is None


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
        for kind in set(range(256)) - {SEALED}:
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


@pytest.mark.attack(14)
def test_attack_14_every_type_on_an_open_link() -> None:
    fine = {Type.CREDIT, Type.ACK, Type.PING, Type.PONG, Type.WARM, Type.REKEY, Type.CLOSE}
    for kind in range(256):
        w = World().connect()
        body = Ping(1, 0, 0, True, 0).encode(Type.PING)[HEADER_SIZE:] if kind in (Type.PING, Type.PONG) else bytes(40)
        inject(w.lb, encode(kind, body), w.now)
        alive = kind in fine or kind > Type.LINK and kind != Type.DATA
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


# ------------------------------------------------------------------ floods
@pytest.mark.attack(31)
@pytest.mark.parametrize(
    "plain", [b"", encode(99), encode(Type.WARM, stream=9), frames.encode_ack(0), frames.Credit(0, 0).encode(0)]
)
def test_attack_31_a_hundred_thousand_frames_of_nothing_end_in_abuse(plain: bytes) -> None:
    w = World().connect()
    for n in range(100_000):
        inject(w.lb, plain, w.now)
        if w.lb.done:
            break
    assert n < 11_000
    assert last(w)[1] is Reason.ABUSE
    assert not of(w.sb, Event.MESSAGE) if w.peer_of_b.session else True


@pytest.mark.attack(31)
def test_attack_31_a_new_link_is_no_new_budget() -> None:
    w = World().connect()
    spent = w.sb.receiver.budget
    for _ in range(9_000):
        inject(w.lb, frames.encode_ack(0), w.now)
    w.cut()
    w.connect()
    assert w.sb.receiver.budget is spent
    for n in range(2_000):
        inject(w.lb, frames.encode_ack(0), w.now)
        if w.lb.done:
            break
    assert n < 1_100


@pytest.mark.attack(32)
def test_attack_32_of_a_flood_of_pings_the_newest_is_answered_once() -> None:
    w = World().connect()
    drain(w.lb, w.now)
    for n in range(900):
        inject(w.lb, Ping(n, 0, 0, True, 0).encode(Type.PING), w.now)
    pongs = [f for f in told(w.lb, w.la, w.now) if f.type == Type.PONG]
    assert [Ping.decode(f.body).n for f in pongs] == [899]
    for n in range(200):
        inject(w.lb, Ping(n, 0, 0, True, 0).encode(Type.PING), w.now)
    assert w.lb.done and last(w)[1] is Reason.ABUSE


def test_pings_at_an_honest_pace_never_end_in_abuse() -> None:
    w = World(node(A, "a", Config(idle_s=0.2, busy_s=0.2)), node(B, "b", Config(idle_s=0.2, busy_s=0.2, keep=True))).connect()
    for _ in range(5_000):
        w.tick(0.2)
    assert w.la.state is w.lb.state is LinkState.OPEN


# ------------------------------------------------------------------ heartbeat
@pytest.mark.attack(17)
@pytest.mark.parametrize(("busy", "limit"), [(False, 45.0), (True, 25.0)])
def test_attack_17_a_half_open_peer_is_dead_within_the_patience(busy: bool, limit: float) -> None:
    w = World(node(A, "a", Config(keep=True)), node(B, "b")).connect()
    if busy:
        w.sa.send(w.sa.open(), b"work")
        w.pump()
    started, session = w.now, w.sa
    while not w.la.done:
        w.now = max(w.la.deadline, w.now + 0.001)
        w.la.tick(w.now)
        drain(w.la, w.now)  # into the void
    assert w.now - started == pytest.approx(limit, abs=0.1)
    assert last(w, of_a=True)[:2] == (NodeEvent.DOWN, Reason.TIMEOUT)
    assert session.state is SessionState.DETACHED


def test_one_way_loss_is_seen_though_bytes_arrive() -> None:
    w = World().connect()
    w.sa.send(w.sa.open(), b"work")
    w.pump()
    started = w.now
    while not w.la.done:
        w.now += 1.0
        w.la.tick(w.now)
        drain(w.la, w.now)  # nothing of ours arrives
        w.lb.heartbeat.last_in = w.now
        w.lb.tick(w.now)
        w.la.receive(drain(w.lb, w.now), w.now)  # all of theirs does
    assert 50.0 <= w.now - started <= 58.0


def test_a_quiet_link_lives_on_its_pings_and_learns_the_way_and_the_load() -> None:
    config = Config(keep=True)
    w = World(node(A, "a", config), node(B, "b", config)).connect()
    w.b.queue_ms, w.b.accepting = 70, False
    for _ in range(400):
        w.tick(1.0)
    assert w.la.state is LinkState.OPEN
    assert w.la.heartbeat.load[:3] == (0, 70, False)
    assert 400 / 18 <= w.la.heartbeat.n <= 400 / 12 + 1


def test_while_a_handler_is_silent_its_caller_is_shown_that_it_lives() -> None:
    w = World().connect()
    stream = w.sa.open()
    w.sa.send(stream, b"think for a minute")
    w.pump()
    for _ in range(60):
        w.tick(1.0)
    warm = of(w.sa, Event.WARM)
    assert 7 <= len(warm) <= 16 and warm[0][1] is stream
    assert w.now - stream.seen_at <= 12


@pytest.mark.case("HPC-026")
def test_hpc_026_a_link_keeps_the_agreed_period_over_a_long_call() -> None:
    w = World(node(A, "a", Config(idle_s=0.2, busy_s=0.2)), node(B, "b", Config(idle_s=4.0, busy_s=2.0))).connect()
    assert w.la.heartbeat.busy_s == w.lb.heartbeat.busy_s == 2.0
    w.sa.send(w.sa.open(), b"sleep 20 s")
    for _ in range(200):
        w.tick(0.1)
    assert w.la.state is w.lb.state is LinkState.OPEN
    assert w.la.heartbeat.n <= 13


def test_being_stopped_ourselves_is_not_the_peers_fault() -> None:
    w = World(node(A, "a", Config(keep=True)), node(B, "b", Config(keep=True))).connect()
    w.tick(15.0)
    w.la.heartbeat.forgive(500.0)
    w.now += 500.0
    w.la.tick(w.now)
    assert w.la.state is LinkState.OPEN


# ------------------------------------------------------------------ rest
def test_an_idle_link_closes_itself_and_its_session_stays() -> None:
    w = World().connect()
    started, session = w.now, w.sa
    while not w.la.done:
        w.tick(1.0)
    assert 75.0 <= w.now - started <= 77.0
    reasons = {e[3] for e in w.a.events + w.b.events if e[0] is NodeEvent.DOWN}
    assert reasons == {Reason.IDLE}
    assert session.state is SessionState.DETACHED and w.sb.state is SessionState.DETACHED
    w.now += 1.0
    w.connect(by_a=False)
    assert w.sa is session and session.links == 2


@pytest.mark.parametrize("why", ["stream", "unacknowledged", "ours", "theirs"])
def test_a_link_with_a_reason_to_stay_stays(why: str) -> None:
    w = World(node(A, "a", Config(keep=why == "ours")), node(B, "b", Config(keep=why == "theirs"))).connect()
    if why == "stream":
        w.sa.send(w.sa.open(), b"work")
    for _ in range(300):
        if why == "unacknowledged":
            w.sa.sender.replay.chunks.append((w.sa.sender.replay.next, b""))
        w.la.tick(w.now)
        w.tick(1.0)
        assert w.la.deadline > w.now - 1
    assert w.la.state is LinkState.OPEN


def test_a_stream_that_ends_gives_a_link_its_rest_anew() -> None:
    w = World().connect()
    stream = w.sa.open()
    w.sa.send(stream, b"work", True)
    for _ in range(100):
        w.tick(1.0)
    (theirs,) = arrived(w.sb)
    w.sb.send(theirs, b"done", True)
    w.sb.release(theirs)
    eat(w.sb)
    w.pump()
    w.sa.release(stream)
    eat(w.sa)
    assert w.la.state is LinkState.OPEN
    ended = w.now
    while not w.la.done:
        w.tick(1.0)
    assert 75.0 <= w.now - ended <= 78.0


def test_deadlines_are_when_something_happens_and_there_are_none_after_the_end() -> None:
    w = World().dial()
    assert w.la.deadline == w.now + 5.0
    w.pump()
    assert w.now < w.la.deadline <= w.now + 5.0
    w.la.close(Reason.SHUTDOWN, "bye")
    assert w.la.deadline == INF and w.la.ack_at is None


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
    w = World(node(A, "a", Config(frame=65_517, batch=64 * 1024)), node(B, "b", Config(frame=65_517, window=2**20))).connect()
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
