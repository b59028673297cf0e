"""Meeting, resuming, ending."""

from __future__ import annotations

import pytest

from hermes_peer.core.config import Config
from hermes_peer.core.events import Event
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.states import LinkState, Reason, SessionState
from hermes_peer.crypto.handshake import Offer
from hermes_peer.wire import frames

from .rig import A, B, C, World, arrived, drain, inject, kinds, link_events, messages, node, of


# ------------------------------------------------------------------ meeting
@pytest.mark.parametrize("by_a", [True, False])
def test_two_meet_and_know_each_other(by_a: bool) -> None:
    w = World().connect(by_a)
    for n, peer, name in ((w.a, w.peer_of_a, "b"), (w.b, w.peer_of_b, "a")):
        assert kinds(n) == [NodeEvent.SESSION, NodeEvent.UP]
        assert peer.names == {name} and peer.instance == name + "-1"
        assert peer.caps is not None and peer.caps.agent == name
    assert w.sa.id == w.sb.id and w.sa.originator is by_a is not w.sb.originator
    assert not w.b.half_open and not w.a.half_open


def test_suites_with_mlkem_too() -> None:
    w = World(node(A, "a", offer=Offer()), node(B, "b", offer=Offer(suites=(1, 2)))).connect()
    assert w.la.outcome is not None and w.la.outcome.suite == 1


def test_the_dialler_is_up_only_when_the_acceptors_link_has_opened() -> None:
    w = World().dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    assert not w.a.events and w.peer_of_a.session is None
    ready, link = w.la.take(w.now), w.la.take(w.now)
    w.lb.receive(ready, w.now)
    assert w.b.events[0][0] is NodeEvent.SESSION
    theirs = drain(w.lb, w.now)
    assert NodeEvent.UP not in kinds(w.b)
    w.la.receive(theirs, w.now)
    assert NodeEvent.UP in kinds(w.a)
    w.lb.receive(link, w.now)
    assert NodeEvent.UP in kinds(w.b)


def test_the_acceptors_capabilities_are_not_in_what_a_stranger_can_read() -> None:
    w = World(b=node(B, "b", caps={"tags": ("secret-tag",)})).dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    assert w.la.outcome is not None and w.la.outcome.peer_caps == b""


@pytest.mark.case("HPC-040")
def test_hpc_040_capabilities_that_do_not_fit_are_named_to_both_and_are_final() -> None:
    w = World(node(A, "a", caps={"codecs": ("cbor",)}), node(B, "b")).dial()
    w.pump()
    assert link_events(w.a) == [(NodeEvent.DIAL_FAILED, Reason.UNACCEPTABLE)]
    assert "cbor" in w.a.events[-1][4] and "json" in w.a.events[-1][4]
    assert w.peer_of_b.session is None


@pytest.mark.case("HPC-040")
def test_hpc_040_no_common_version_names_the_versions_to_the_dialler() -> None:
    w = World(node(A, "a", offer=Offer((7, 8), (2,))), node(B, "b")).dial()
    w.pump()
    assert link_events(w.a) == [(NodeEvent.DIAL_FAILED, Reason.VERSION)]
    assert "[1]" in w.a.events[-1][4]
    assert link_events(w.b) == [(NodeEvent.REFUSED, Reason.PROOF)]
    assert not w.b.peers


# ------------------------------------------------------------------ resuming
@pytest.mark.parametrize("redial_by_a", [True, False])
def test_whoever_redials_the_session_goes_on_and_nobody_notices(redial_by_a: bool) -> None:
    w = World().connect()
    session = w.sa
    stream = w.sa.open()
    w.sa.send(stream, b"one")
    w.pump()
    w.cut()
    w.sa.send(stream, b"two", True)
    w.now += 1
    w.connect(redial_by_a)
    assert w.sa is session and session.links == 2
    assert messages(w.sb) == [b"one", b"two"]
    w.sb.send(arrived(w.sb)[0], b"answer", True)
    w.pump()
    assert messages(w.sa) == [b"answer"]


DEATHS = ["HELLO", "WELCOME", "READY", "LINK of the dialler", "LINK of the acceptor"]


@pytest.mark.parametrize("dies", DEATHS)
@pytest.mark.parametrize("fresh", [True, False])
def test_a_link_that_dies_at_any_point_of_its_making_loses_no_session(dies: str, fresh: bool) -> None:
    w = World()
    if not fresh:
        w.connect()
        w.sa.send(w.sa.open(), b"before")
        w.cut()
    for _ in range(6):  # more often than secrets are remembered
        w.now += 1
        w.dial()
        hello = drain(w.la, w.now)
        if dies != "HELLO":
            w.lb.receive(hello, w.now)
        welcome = drain(w.lb, w.now)
        if dies not in ("HELLO", "WELCOME"):
            w.la.receive(welcome, w.now)
        ready, link = w.la.take(w.now), w.la.take(w.now)
        if dies not in ("HELLO", "WELCOME", "READY"):
            w.lb.receive(ready, w.now)
        if dies == "LINK of the acceptor":
            w.lb.receive(link, w.now)
        w.cut()
        if not fresh:
            assert w.sa.state is SessionState.DETACHED
    w.now += 1
    w.connect()
    if not fresh:
        assert w.sa.links == 2 and messages(w.sb) == [b"before"]
    w.sa.send(w.sa.open(), b"after")
    w.pump()
    assert messages(w.sb)[-1] == b"after"
    assert w.sb.id == w.sa.id


def test_after_the_resume_window_the_session_is_over_and_the_mark_says_what_never_ran() -> None:
    w = World(node(A, "a", Config(resume_s=900.0)), node(B, "b", Config(resume_s=60.0))).connect()
    old = w.sa
    did, never = w.sa.open(), w.sa.open()
    w.sa.send(did, b"arrives")
    w.pump()
    w.sa.send(never, b"is lost")
    drain(w.la, w.now)
    w.cut()
    w.b.tick(w.now + 60.0)
    assert w.peer_of_b.session is not None
    w.b.tick(w.now + 60.5)
    assert w.peer_of_b.session is None
    w.now += 59.0
    w.connect()
    assert w.sa is not old and old.state is SessionState.ENDED
    ended = of(old, Event.ENDED)[0]
    assert ended[2] is Reason.REPLACED
    assert (old.fate(did), old.fate(never)) == ("unknown", "no")


def test_a_peer_that_lost_its_memory_ends_the_session_and_all_is_unknown() -> None:
    w = World().connect()
    old = w.sa
    stream = w.sa.open()
    w.sa.send(stream, b"work")
    w.pump()
    w.cut()
    w.b = node(B, "b", instance="b-2")
    w.now += 1
    w.connect()
    assert old.state is SessionState.ENDED and old.fate(stream) == "unknown"
    assert w.sa.id == w.sb.id != old.id
    assert w.peer_of_a.instance == "b-2"


def test_a_session_that_ends_while_its_link_is_made_is_told_to_be_gone() -> None:
    for whose in ("acceptor", "dialler"):
        w = World().connect()
        w.cut()
        old = w.sa
        w.now += 1
        w.dial()
        w.lb.receive(drain(w.la, w.now), w.now)
        if whose == "acceptor":
            w.b.end_session(w.peer_of_b, Reason.SHUTDOWN, "meanwhile")
        else:
            w.a.end_session(w.peer_of_a, Reason.SHUTDOWN, "meanwhile")
        w.pump()
        assert w.la.done and w.lb.done
        assert old.state is SessionState.ENDED
        assert w.peer_of_a.session is None and w.peer_of_b.session is None
        w.now += 1
        w.connect()


def test_a_session_that_ends_under_an_attempt_that_has_greeted_is_gone_too() -> None:
    w = World().connect()
    w.cut()
    w.now += 1
    w.dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    assert w.sa.state is SessionState.RESUMING
    w.a.end_session(w.peer_of_a, Reason.SHUTDOWN, "meanwhile")
    w.pump()
    assert w.la.done and w.lb.done and w.peer_of_b.session is None


def test_a_second_dial_takes_the_first_ones_place() -> None:
    w = World().dial()
    first, second = w.la, w.lb
    w.dial()
    assert first.done and w.peer_of_a.dialling is w.la
    assert link_events(w.a) == [(NodeEvent.DIAL_FAILED, Reason.DUPLICATE)]
    second.eof(w.now)
    w.pump()
    assert w.la.state is LinkState.OPEN


# ------------------------------------------------------------------ memory, load, ends
def test_under_memory_pressure_the_longest_detached_go_first_and_the_others_are_not_renewed() -> None:
    b = node(B, "b", Config(budget=30_000))
    for n, identity in enumerate((A, C)):
        w = World(node(identity, "ac"[n]), b).connect()
        w.b.peers[identity.fingerprint].session.send(w.b.peers[identity.fingerprint].session.open(), b"x" * 16_000)  # type: ignore[union-attr]
        w.now = 10.0 - n  # C's is the older
        w.cut()
    b.tick(11.0)
    assert b.peers[C.fingerprint].session is None
    session = b.peers[A.fingerprint].session
    assert session is not None and session.receiver.pressed
    b.tick(12.0)
    assert not session.receiver.pressed


def test_the_load_counts_handlers_and_links() -> None:
    w = World().connect()
    for _ in range(3):
        w.sa.send(w.sa.open(), b"work")
    w.pump()
    w.b.queue_ms, w.b.accepting = 9, False
    assert w.b.load()[:3] == (3, 9, False)
    assert w.a.load()[0] == 0


def test_end_session_reaches_the_other_side() -> None:
    w = World().connect()
    one, two = w.sa, w.sb
    w.a.end_session(w.peer_of_a, Reason.SHUTDOWN, "bye")
    w.pump()
    assert one.state is two.state is SessionState.ENDED
    w.a.end_session(w.peer_of_a, Reason.SHUTDOWN, "bye")  # harmless
    w.now += 1
    w.connect()
    assert w.sa is not one


def test_an_acceptor_with_another_session_in_its_link_is_refused() -> None:
    w = World().dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    inject(w.la, frames.Link(b"z" * 16, False, 0, 0, w.b.caps.encode()).encode(), w.now)
    assert w.la.done and w.peer_of_a.session is None
    assert link_events(w.a) == [(NodeEvent.DIAL_FAILED, Reason.PROTOCOL)]


def test_the_dice_lie_between_nought_and_one() -> None:
    n = node(A, "a")
    rolls = [n.dice() for _ in range(500)]
    assert 0 <= min(rolls) < 0.05 and 0.95 < max(rolls) < 1
