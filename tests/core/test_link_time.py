"""The times of a link: heartbeat, patience, rest."""

from __future__ import annotations

import pytest

from hermes_peer.core.config import Config
from hermes_peer.core.events import Event
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.states import LinkState, Reason, SessionState

from .rig import A, B, World, arrived, drain, eat, last, node, of


# ------------------------------------------------------------------ heartbeat
@pytest.mark.case("HPC-001")
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
            for session in (w.sa, w.sb):
                session.sender.replay.chunks.append((session.sender.replay.next + 1, b""))
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
    assert w.la.deadline == float("inf") and w.la.ack_at is None


def test_a_loaded_peer_is_sent_less_until_its_load_is_gone() -> None:
    """Mission L7: what waits for the peer's load is opened by itself once a PING or PONG says that it is over."""
    w = World().connect()
    running = [w.sa.open() for _ in range(40)]
    for stream in running:
        w.sa.send(stream, b"work", True)
    w.b.queue_ms = 800
    w.tick(6.0)  # PING and PONG have passed
    assert w.sa.places.ceiling == 16 and len(arrived(w.sb)) == 40  # nothing that runs is touched
    late = [w.sa.open() for _ in range(5)]
    ask = w.sa.open(reserved=True)
    for stream in (*late, ask):
        w.sa.send(stream, b"more", True)
    w.pump()
    assert len(arrived(w.sb)) == 41 and ask.id and not any(stream.id for stream in late)
    w.b.queue_ms = 0
    w.tick(6.0)
    assert w.sa.places.ceiling == 128 and len(arrived(w.sb)) == 46
