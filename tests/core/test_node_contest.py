"""Two links for one session, two instances of one key."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_peer.core.link import Link
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.states import LinkState, Reason, SessionState

from .rig import A, B, World, drain, eat, link_events, messages, node, shuttle


# ------------------------------------------------------------------ two links for one session
@pytest.mark.attack(21)
@pytest.mark.parametrize("second_by_a", [True, False])
def test_attack_21_the_newest_link_wins_and_the_older_hears_nothing_more(second_by_a: bool) -> None:
    w = World().connect()
    stream = w.sa.open()
    w.sa.send(stream, b"one")
    late = drain(w.la, w.now)  # still under way on the old link
    old_a, old_b = w.la, w.lb
    w.now += 1
    w.connect(second_by_a)
    assert old_b.done and old_a.done
    old_b.receive(late, w.now)
    w.sa.send(stream, b"two")
    w.pump()
    assert messages(w.sb) == [b"one", b"two"]
    assert w.sa.links == 2
    for n in (w.a, w.b):
        assert (NodeEvent.FENCED, Reason.REPLACED) in link_events(n)
        assert (NodeEvent.DOWN, Reason.REPLACED) not in link_events(n)
    old_a.eof(w.now)
    old_b.eof(w.now)
    assert w.peer_of_a.link is w.la and w.sa.state is SessionState.LIVE


@pytest.mark.attack(21)
@given(st.lists(st.sampled_from(["a", "b", "ab", "ba", "dial a", "dial b", "cut", "send", "tick"]), max_size=40))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_attack_21_whatever_the_order_of_two_links_each_message_comes_once(steps: list[str]) -> None:
    """Every link ever made stays there, and its bytes move when the steps say so; b answers each message."""
    w = World().connect()
    pairs: list[tuple[Link, Link]] = [(w.la, w.lb)]
    sent: list[bytes] = []
    got: list[bytes] = []
    ends = []

    def move(one: Link, two: Link) -> None:
        if data := one.take(w.now):
            two.receive(data, w.now)
        if one.done and not one.pending(w.now):
            two.eof(w.now)

    for step in [*steps, "settle"]:
        w.now += 0.01
        if step.startswith("dial"):
            w.dial(step.endswith("a"))
            pairs.append((w.la, w.lb))
        elif step == "cut" and pairs:
            one, two = pairs.pop(0)
            one.eof(w.now)
            two.eof(w.now)
        elif step == "send":
            if (session := w.peer_of_a.session) is not None and not any(s is session for s, _ in ends):
                ends.append((session, session.open()))
            if ends and ends[-1][0] is w.peer_of_a.session:
                sent.append(b"%d" % len(sent))
                session, stream = ends[-1]
                session.send(stream, sent[-1])
        elif step == "settle":
            for one, two in pairs:
                shuttle(one, two, w.now)
                one.eof(w.now)
                two.eof(w.now)
            w.now += 1
            w.connect()
            w.pump()
        else:
            for one, two in pairs:
                if "a" in step:
                    move(one, two)
                if "b" in step:
                    move(two, one)
        for n in (w.a, w.b):
            for peer in n.peers.values():
                session = peer.session
                if session is not None and session.state in (SessionState.LIVE, SessionState.RESUMING):
                    assert peer.link or peer.dialling, "attached to nothing"
                if peer.link is not None:
                    assert peer.link.session is session and not peer.link.done
        session = w.peer_of_b.session
        if session is not None:
            got += eat(session)
    assert len(ends) <= 1, "a session was lost though nobody lost its memory"
    assert got == sent


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize("order", ["ab", "ba", "a first", "b first"])
def test_two_dials_at_once_leave_one_link_and_keep_the_session(order: str, resumed: bool) -> None:
    w = World()
    if resumed:
        w.connect()
        w.sa.send(w.sa.open(), b"keep me")
        w.cut()
        w.now += 1
    session = w.peer_of_a.session
    w.dial(True)
    one = (w.la, w.lb)
    w.dial(False)
    two = (w.la, w.lb)
    if order == "a first":
        shuttle(*one, w.now)
        shuttle(*two, w.now)
    elif order == "b first":
        shuttle(*two, w.now)
        shuttle(*one, w.now)
    for _ in range(8):
        for x, y in (one, two) if order == "ab" else (two, one):
            for giver, taker in ((x, y), (y, x)):
                if said := giver.take(w.now):
                    taker.receive(said, w.now)
    up = [pair for pair in (one, two) if pair[0].state is LinkState.OPEN and pair[1].state is LinkState.OPEN]
    assert len(up) == 1
    w.la, w.lb = up[0]
    for pair in (one, two):
        if pair is not up[0]:
            assert pair[0].done or pair[1].done  # and whoever is done hangs up
            for link in pair:
                link.eof(w.now)
    assert w.peer_of_a.link is w.la and w.peer_of_b.link is w.lb
    assert w.sa.state is w.sb.state is SessionState.LIVE and w.sa.id == w.sb.id
    if order in ("ab", "ba"):
        assert w.la.dialled, "the lower fingerprint's dial stays"
    if resumed:
        assert w.sa is session
        w.pump()
        assert messages(w.sb) == [b"keep me"]


@pytest.mark.case("HPC-045")
def test_hpc_045_instances_that_take_the_place_from_each_other_are_named_and_the_loser_stopped() -> None:
    w = World().connect()
    two = node(A, "a", instance="a-2")
    reasons = []
    for turn in range(4):
        w.now += 5
        challenger = (two, w.a)[turn % 2]
        link, accepted = challenger.dial(B.fingerprint, w.now), w.b.accept(w.now)
        shuttle(link, accepted, w.now)
        reasons.append(link_events(challenger)[-1])
    assert (NodeEvent.UP, Reason.NONE) in reasons
    assert (NodeEvent.DIAL_FAILED, Reason.CLONED) in reasons


@pytest.mark.parametrize("one_is_a", [True, False])
@pytest.mark.parametrize("newer_by_same", [True, False])
def test_what_was_given_up_takes_no_sessions_place_however_late_it_comes(one_is_a: bool, newer_by_same: bool) -> None:
    w = World()
    one, two = (w.a, w.b) if one_is_a else (w.b, w.a)
    late = one.dial(two.identity.fingerprint, w.now)
    half = two.accept(w.now)
    half.receive(drain(late, w.now), w.now)
    late.receive(drain(half, w.now), w.now)
    ready = drain(late, w.now)  # on the way, while its sender loses the line
    late.eof(w.now)
    w.now += 1.0
    w.connect(by_a=one_is_a if newer_by_same else not one_is_a)
    stream = w.sa.open()
    w.sa.send(stream, b"kept")
    sessions = w.sa, w.sb
    w.now += 1.0
    half.receive(ready, w.now)
    assert half.done and (w.sa, w.sb) == sessions
    w.pump()
    assert eat(w.sb) == [b"kept"]


@pytest.mark.parametrize("connected", [True, False])
def test_a_new_process_of_the_peer_takes_the_place_of_its_old_session(connected: bool) -> None:
    w = World().connect()
    old = w.sb
    w.now += 1.0
    if not connected:
        w.cut()
    w.a = node(A, "a", instance="a-2")
    w.connect()
    assert w.sb is not old and w.sb.id == w.sa.id and old.state is SessionState.ENDED
