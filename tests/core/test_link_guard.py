"""What strangers and rude peers get from a link: nothing, and not for long."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.config import Config
from hermes_peer.core.events import Event
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.states import LinkState, Reason
from hermes_peer.wire import frames
from hermes_peer.wire.frames import HEADER, HEADER_SIZE, MAGIC, Flag, Ping, Type, encode

from .rig import A, B, World, drain, inject, last, node, of, told


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


# ------------------------------------------------------------------ floods
@pytest.mark.attack(31)
@pytest.mark.parametrize(
    "plain", [b"", encode(99), encode(Type.WARM, stream=9), frames.encode_ack(0), frames.Credit(0, 0).encode(0)]
)
def test_attack_31_a_hundred_thousand_frames_of_nothing_end_in_abuse(plain: bytes) -> None:
    w = World().connect()
    sent = 0
    while not w.lb.done and sent < 100_000:
        inject(w.lb, plain, w.now)
        sent += 1
    assert sent <= 10_001
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
    sent = 0
    while not w.lb.done and sent < 2_000:
        inject(w.lb, frames.encode_ack(0), w.now)
        sent += 1
    assert sent <= 1_001


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


@pytest.mark.case("HPC-026")
@pytest.mark.parametrize("period", [0.01, 0.2, 1.0])
def test_hpc_026_pings_at_the_agreed_pace_never_end_in_abuse(period: float) -> None:
    config = Config(idle_s=period, busy_s=period, keep=True)
    w = World(node(A, "a", config), node(B, "b", config)).connect()
    for _ in range(4_000):
        w.tick(period)
    assert w.la.state is w.lb.state is LinkState.OPEN
    assert w.la.heartbeat.n > 2_000
