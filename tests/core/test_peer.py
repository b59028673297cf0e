"""What a user is told of a line, and the swaps that name a cloned key."""

from __future__ import annotations

import pytest

from hermes_peer.core.peer import SWAPS_S, Peer
from hermes_peer.crypto.handshake import resume_id

from .rig import A, World, drain


def test_no_two_dials_in_eight_show_the_same_id() -> None:
    w = World().connect()
    w.cut()
    offers = [w.peer_of_a.offer() for _ in range(8)]
    psks = {offer[0] for offer in offers if offer}
    ids = {offer[1] for offer in offers if offer}
    assert len(ids) == 8
    (psk,) = psks
    assert ids == {resume_id(psk, True, n) for n in range(8)}
    assert ids <= set(w.peer_of_b.ids)


def test_a_stranger_has_nothing_to_offer() -> None:
    assert Peer(A.fingerprint).offer() is None


def test_the_words_for_the_state_of_the_line() -> None:
    w = World()
    assert w.peer_of_a.state == "away"
    w.dial()
    assert w.peer_of_a.state == "dialling" and not w.peer_of_a.live
    w.lb.receive(drain(w.la, w.now), w.now)
    w.la.receive(drain(w.lb, w.now), w.now)
    w.lb.receive(w.la.take(w.now), w.now)  # READY alone
    assert w.peer_of_b.state == "dialling"
    w.pump()
    assert w.peer_of_a.state == w.peer_of_b.state == "connected" and w.peer_of_a.live
    w.cut()
    assert w.peer_of_a.state == "away"  # nothing waits
    w.sa.send(w.sa.open(), b"waits")
    assert w.peer_of_a.state == "reconnecting"


@pytest.mark.case("HPC-045")
def test_hpc_045_three_swaps_within_a_minute_are_a_cloned_key() -> None:
    peer = Peer(A.fingerprint)
    assert [peer.swapped(at) for at in (0.0, 10.0, 20.0)] == [False, False, True]
    peer = Peer(A.fingerprint)
    assert not any(peer.swapped(at * SWAPS_S / 2) for at in range(10))
