"""Which id brings back whose session, and what is left of the ended ones."""

from __future__ import annotations

from hermes_peer.core.config import Config
from hermes_peer.core.peer import ATTEMPTS, GENERATIONS, Peer
from hermes_peer.core.resume import TOMBSTONES, ResumeIndex
from hermes_peer.core.session import Session
from hermes_peer.crypto.handshake import resume_id
from hermes_peer.wire.frames import UNKNOWN_MARK

from .rig import A, agreed

CONFIG = Config(first_sequence=70)


def known(originator: bool = True) -> Peer:
    peer = Peer(A.fingerprint)
    peer.session = Session(b"s" * 16, originator, CONFIG, agreed(CONFIG, CONFIG))
    return peer


def psk(n: int) -> bytes:
    return bytes([n]) * 32


def test_every_attempt_of_the_peer_is_known_and_none_of_our_own() -> None:
    index, peer = ResumeIndex(), known(originator=True)
    index.learn(peer, psk(1))
    for attempt in range(2 * ATTEMPTS):
        assert index.find(resume_id(psk(1), False, attempt)) == (psk(1), b"s" * 16, A.fingerprint)
        assert index.find(resume_id(psk(1), True, attempt)) is None
    assert index.find(b"") is None


def test_a_few_older_secrets_count_and_the_oldest_goes() -> None:
    index, peer = ResumeIndex(), known()
    for n in range(GENERATIONS + 3):
        index.learn(peer, psk(n))
    found = [index.find(resume_id(psk(n), False, 0)) is not None for n in range(GENERATIONS + 3)]
    assert found == [False] * 3 + [True] * GENERATIONS
    assert len(index._ids) == len(peer.ids) == GENERATIONS * ATTEMPTS


def test_the_ended_leave_a_mark_and_nothing_that_could_be_resumed() -> None:
    index, peer = ResumeIndex(), known()
    index.learn(peer, psk(1))
    index.learn(peer, psk(2))
    peer.dial_psk = psk(2)
    assert peer.session is not None
    peer.session.receiver.next = 75
    index.bury(peer)
    assert peer.session is None and peer.dial_psk is None and peer.offer() is None
    for n in (1, 2):
        assert index.find(resume_id(psk(n), False, 3)) is None
        assert index.mark(resume_id(psk(n), False, 3)) == 75
    assert index.mark(b"another") == UNKNOWN_MARK
    assert not index._ids
    index.bury(peer)  # harmless


def test_tombstones_are_bounded_and_the_oldest_goes() -> None:
    index = ResumeIndex()
    for n in range(TOMBSTONES // ATTEMPTS + 5):
        peer = known()
        index.learn(peer, n.to_bytes(32, "big"))
        index.bury(peer)
    assert len(index._tombs) == TOMBSTONES
    assert index.mark(resume_id(bytes(32), False, 0)) == UNKNOWN_MARK
    assert index.mark(resume_id(n.to_bytes(32, "big"), False, 0)) == 70


def test_two_peers_do_not_mix() -> None:
    index, one, two = ResumeIndex(), known(), known(originator=False)
    index.learn(one, psk(1))
    index.learn(two, psk(2))
    index.bury(one)
    assert index.find(resume_id(psk(2), True, 0)) is not None


def test_the_secret_that_the_peer_still_uses_outlives_any_number_of_links_that_died_early() -> None:
    index, peer = ResumeIndex(), known()
    index.learn(peer, psk(1))
    for n in range(2, 30):
        asked = resume_id(psk(1), False, n)
        assert index.find(asked) is not None
        index.learn(peer, psk(n), asked)
        assert len(index._ids) == len(peer.ids) == len(peer.psks) * ATTEMPTS <= GENERATIONS * ATTEMPTS
    assert index.find(resume_id(psk(29), False, 0)) is not None
    assert index.find(resume_id(psk(1), False, 0)) is not None


def test_a_side_that_is_only_ever_dialled_offers_a_secret_that_the_other_still_knows() -> None:
    """Twenty links, all dialled by them; then we dial, before anything tells that our last LINK arrived (HPC-081)."""
    index, peer = ResumeIndex(), known()
    index.learn(peer, psk(1))
    peer.dial_psk = psk(1)
    for n in range(2, 20):
        index.learn(peer, psk(n), resume_id(psk(n - 1), False, n))
        assert peer.dial_psk == psk(n - 1)
