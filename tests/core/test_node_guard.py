"""Strangers, crowds and thieves at the door."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_peer.core.config import Config
from hermes_peer.core.link import Link
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.states import LinkState, Reason, SessionState
from hermes_peer.crypto.handshake import Acceptor, Dialler, HandshakeError
from hermes_peer.crypto.kem import MlKem768
from hermes_peer.crypto.keys import Identity
from hermes_peer.errors import UsageError
from hermes_peer.wire.frames import HEADER_SIZE, Type, encode

from .rig import SUITE, A, B, C, World, dice, drain, kinds, link_events, messages, node, split, trusts, unsealed

# ------------------------------------------------------------------ the unwanted


@pytest.mark.attack(7)
def test_attack_7_an_untrusted_key_is_told_its_own_fingerprint_and_nothing_else() -> None:
    w = World(b=node(B, "b", judge=trusts(C), caps={"tags": ("secret-tag",)})).dial()
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    w.lb.receive(drain(w.la, w.now), w.now)
    said = drain(w.lb, w.now)
    assert w.la._records is not None
    plain = unsealed(w.la._records, said)
    (close,) = split([plain])
    assert close.type == Type.CLOSE
    assert (
        close.body
        == bytes([1, Reason.UNTRUSTED]) + b"\xff\xff\xff\xff" + bytes(4) + f"your key is {A.fingerprint.hex()}".encode()
    )
    assert link_events(w.b) == [(NodeEvent.REFUSED, Reason.UNTRUSTED)]
    assert not w.b.peers and not w.b.half_open


def test_the_dialler_too_may_not_want_whom_it_reached() -> None:
    w = World(a=node(A, "a", judge=trusts(C))).dial()
    w.pump()
    assert link_events(w.a) == [(NodeEvent.DIAL_FAILED, Reason.UNTRUSTED)]
    assert w.peer_of_a.session is None
    assert w.peer_of_b.session is None


@pytest.mark.attack(12)
@pytest.mark.parametrize("connected", [True, False])
def test_attack_12_a_revoked_peer_is_gone_at_once_with_its_session(connected: bool) -> None:
    w = World().connect()
    session, theirs = w.sb, w.sa
    if not connected:
        w.cut()
    w.b.end_session(w.peer_of_b, Reason.UNTRUSTED, "no longer trusted")
    assert session.state is SessionState.ENDED and w.peer_of_b.session is None
    if connected:
        w.pump()
        assert theirs.state is SessionState.ENDED
        assert (NodeEvent.DOWN, Reason.UNTRUSTED) in link_events(w.a)
    w.b.judge = trusts(C)
    w.now += 1
    w.dial().pump()
    assert w.peer_of_b.session is None


@pytest.mark.case("HPC-047")
@pytest.mark.attack(3)
def test_attack_3_an_agent_does_not_dial_itself() -> None:
    w = World()
    with pytest.raises(UsageError, match="own key"):
        w.a.dial(A.fingerprint, w.now)


@pytest.mark.case("HPC-047")
@pytest.mark.attack(3)
def test_attack_3_a_proven_self_is_told_so_under_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Acceptor.ready

    def of_ourselves(self: Acceptor, message: bytes) -> Any:
        raise HandshakeError("self", proven=True, outcome=ready(self, message))

    monkeypatch.setattr(Acceptor, "ready", of_ourselves)
    w = World().dial()
    w.pump()
    assert link_events(w.a) == [(NodeEvent.DIAL_FAILED, Reason.SELF)]
    assert "own key" in w.a.events[-1][4]
    assert link_events(w.b) == [(NodeEvent.REFUSED, Reason.SELF)]
    assert not w.b.peers and not w.b.half_open


@pytest.mark.attack(3)
def test_attack_3_our_own_bytes_sent_back_to_us_are_nothing() -> None:
    w = World().dial()
    hello = drain(w.la, w.now)
    w.la.receive(hello, w.now)
    assert w.la.done and drain(w.la, w.now) == b""


# ------------------------------------------------------------------ many at the door
@pytest.mark.attack(15)
def test_attack_15_slow_ones_are_limited_per_address_and_an_honest_peer_still_comes_in() -> None:
    w = World(b=node(B, "b", Config(half_open_address=8)))
    slow = [w.b.accept(w.now, address=f"10.0.0.{n % 30}") for n in range(270)]
    w.now += 1.0
    slow += [w.b.accept(w.now, address=f"10.0.0.{n % 30}") for n in range(60)]
    assert len(w.b.half_open) == 270
    for link in slow:
        link.receive(b"H", w.now)
    assert [link.done for link in slow] == [True] * 60 + [False] * 270  # the oldest of each
    w.dial()
    w.pump()
    assert w.la.state is w.lb.state is LinkState.OPEN
    for link in slow:
        link.tick(w.now + 5.0)
        assert link.done and drain(link, w.now) == b""
    assert not w.b.half_open


@pytest.mark.attack(15)
def test_attack_15_in_all_there_are_no_more_than_so_many_and_the_oldest_goes() -> None:
    w = World()
    slow = [w.b.accept(w.now, address=str(n)) for n in range(1100)]
    assert len(w.b.half_open) == 1024
    assert [link.done for link in slow] == [True] * 76 + [False] * 1024
    w.dial().pump()
    assert w.la.state is LinkState.OPEN
    assert {e[3] for e in w.b.events if e[0] is NodeEvent.REFUSED} == {Reason.BUSY}


@pytest.mark.attack(15)
def test_attack_15_a_crowd_on_one_host_does_not_push_itself_out() -> None:
    w = World()
    crowd = [w.b.accept(w.now + n / 1000, address="127.0.0.1") for n in range(100)]
    assert not any(link.done for link in crowd)
    w.now += 1.5  # they had their time: no more than so many of one address stay
    late = [w.b.accept(w.now, address="127.0.0.1") for _ in range(10)]
    assert sum(link.done for link in crowd) == 10 and not any(link.done for link in late)


@pytest.mark.attack(15)
def test_attack_15_a_younger_link_makes_no_room_while_there_is_an_older_one() -> None:
    w = World(b=node(B, "b", Config(half_open=20)))
    old = [w.b.accept(w.now, address=f"old {n}") for n in range(5)]
    w.now += 1.0
    flood = [w.b.accept(w.now, address="flood") for n in range(15)]
    honest = w.b.accept(w.now, address="honest")
    assert [link.done for link in old] == [True] + [False] * 4 and not any(link.done for link in flood)
    flood += [w.b.accept(w.now, address="flood") for n in range(50)]
    assert all(link.done for link in old) and not honest.done  # then it is the crowd's own oldest
    assert [link.done for link in flood] == [True] * 46 + [False] * 19


@pytest.mark.attack(15)
def test_attack_15_a_byte_a_second_does_not_buy_time() -> None:
    w = World().dial()
    hello = drain(w.la, w.now)
    for n in range(6):
        w.lb.receive(hello[n : n + 1], w.now + n)
        w.lb.tick(w.now + n)
    assert w.lb.done and link_events(w.b) == [(NodeEvent.REFUSED, Reason.TIMEOUT)]


# ------------------------------------------------------------------ thieves
def steal(w: World) -> tuple[bytes, bytes]:
    """The psk that a would offer next, and its resume id."""
    offer = w.peer_of_a.offer()
    assert offer is not None
    return offer


def thief(identity: Identity, psk: bytes | None, resume: bytes) -> Dialler:
    caps = node(identity, "c").caps.encode()
    return Dialler(
        identity,
        B.fingerprint,
        SUITE,
        caps,
        entropy=dice("thief"),
        kem=MlKem768(),
        psk=psk,
        resume_id=resume,
        now_ms=1,
    )


def try_it(w: World, d: Dialler) -> tuple[Link, bytes, Exception | None]:
    """Run a bare dialler against b: (b's link, what b says to READY, why the dialler gave up)."""
    link = w.b.accept(w.now)
    link.receive(encode(Type.HELLO, d.hello()), w.now)
    try:
        ready = d.welcome(drain(link, w.now)[HEADER_SIZE:])
    except Exception as error:
        return link, b"", error
    link.receive(encode(Type.READY, ready), w.now)
    return link, drain(link, w.now), None


def untouched(w: World) -> None:
    w.sa.send(w.sa.open(), b"still here")
    w.pump()
    assert messages(w.sb)[-1] == b"still here"
    assert w.la.state is w.lb.state is LinkState.OPEN and w.sa.links == 1


@pytest.mark.attack(18)
def test_attack_18_a_seen_resume_id_without_its_psk_opens_nothing() -> None:
    w = World().connect()
    _, seen = steal(w)
    link, said, gave_up = try_it(w, thief(C, bytes(32), seen))
    assert gave_up is not None and said == b""  # it cannot even read WELCOME
    link.receive(encode(Type.READY, bytes(300)), w.now)
    assert link.done and drain(link, w.now) == b""
    untouched(w)
    assert C.fingerprint not in w.b.peers


@pytest.mark.attack(18)
def test_attack_18_a_guessed_resume_id_is_a_new_session_of_whoever_proves_itself() -> None:
    w = World().connect()
    link, said, gave_up = try_it(w, thief(C, bytes(32), b"guessed guessed!"))
    assert gave_up is None and said
    assert link.outcome is not None and not link.outcome.resumed
    untouched(w)
    assert w.b.peers[C.fingerprint].session is not w.sb


@pytest.mark.attack(19)
def test_attack_19_a_stolen_psk_in_another_keys_hands_fails_on_the_fingerprint() -> None:
    w = World().connect()
    link, said, gave_up = try_it(w, thief(C, *steal(w)))
    assert gave_up is None and said == b""
    assert link.done and link.unproven_reason == "fingerprint"
    untouched(w)
    assert C.fingerprint not in w.b.peers


@pytest.mark.attack(20)
def test_attack_20_a_stolen_key_gets_a_new_session_never_the_old_one_and_it_shows() -> None:
    w = World().connect()
    old, theirs = w.sb, w.sa
    stream = w.sb.open()
    w.sb.send(stream, b"for a's eyes")
    w.now += 1
    link, said, gave_up = try_it(w, thief(A, None, b""))
    assert gave_up is None and said
    assert link.outcome is not None and not link.outcome.resumed
    assert w.sb is not old and old.state is SessionState.ENDED
    assert not w.sb.buffered
    w.pump()
    assert messages(theirs) == []
    assert (NodeEvent.FENCED, Reason.REPLACED) in link_events(w.b)
    assert kinds(w.b).count(NodeEvent.SESSION) == 2
    assert (NodeEvent.DOWN, Reason.REPLACED) in link_events(w.a)
