"""What must hold of the simulated world: at every turn, and once everything has healed.

Knows: the insides of the core. Refuses to know: how the world came to this.
Called by: simulator.
"""

from __future__ import annotations

from hermes_peer.core.link import Link
from hermes_peer.core.session import Session
from hermes_peer.core.states import SessionState
from hermes_peer.testing.sim_load import Talk, Violation
from hermes_peer.wire.frames import HEADER_SIZE


def always(session: Session) -> None:
    """Credit and memory, on both levels."""
    receiver, sender, places = session.receiver, session.sender, session.places
    window = receiver.window
    _window(window, "session")
    lent = session.config.permits
    if window.unread > window.size + lent * receiver.permits.room:
        raise Violation(f"{window.unread} unread bytes in a session window of {window.size}")
    if window.extra != (lent - receiver.permits.free) * receiver.permits.room:
        raise Violation(f"the session window is {window.extra} larger, {receiver.permits.free} permits are free")
    if sender.window.sent > sender.window.limit:
        raise Violation("the session sent more than its credit")
    if session.state is SessionState.LIVE and receiver.next != receiver._acked and receiver.ack_at is None:
        raise Violation("frames have arrived, and no ACK is planned")
    if not 0 <= places.open_mine <= session.settings.send_streams:
        raise Violation(f"{places.open_mine} streams of ours are open")
    if places.opened > places.limit:
        raise Violation(f"{places.opened} streams opened, {places.limit} were granted")
    grown = unread = mine = 0
    for stream in places.streams.values():
        inbound = stream.inbound
        _window(inbound, f"stream {stream.id}")
        if stream.sent > stream.limit:
            raise Violation(f"stream {stream.id} sent more than its credit")
        if stream.queued != sum(len(body) for body, _ in stream.queue):
            raise Violation(f"stream {stream.id} miscounts its queue")
        grown += inbound.size - session.config.window
        unread += inbound.unread
        mine += stream.mine
    if mine != places.open_mine:
        raise Violation(f"{mine} streams of ours are in the table, {places.open_mine} are counted")
    if unread != window.unread:
        raise Violation(f"the streams hold {unread} unread bytes, the session counts {window.unread}")
    if grown + places.spare != session.config.spare:
        raise Violation(f"{grown} bytes of growth and {places.spare} spare make no {session.config.spare}")
    replay = sender.replay
    if replay.bytes != sum(len(frames) for _, frames in replay.chunks):
        raise Violation("the replay miscounts its bytes")
    bound = 2 * (session.settings.send_session_window + lent * receiver.permits.room) + session.config.unacked
    if replay.bytes > 2 * bound:
        raise Violation(f"{replay.bytes} bytes wait for an acknowledgement, at most {bound} should")


def _window(window: object, name: str) -> None:
    consumed, received, limit = window.consumed, window.received, window.limit  # type: ignore[attr-defined]
    if not 0 <= consumed <= received <= limit:
        raise Violation(f"{name}: consumed {consumed} <= received {received} <= limit {limit} does not hold")


def has_its_place(talk: Talk) -> None:
    """A stream is in the table until its owner has let go."""
    session, stream = talk.session, talk.stream
    if session.state is SessionState.ENDED or not stream.id or stream.released:
        return
    if session.places.streams.get(stream.id) is not stream:
        raise Violation(f"call {talk.call.id}: its place was given away before its owner was done")


def given_back(session: Session) -> None:
    """An idle session has everything that it began with."""
    receiver, sender, places, config = session.receiver, session.sender, session.places, session.config
    for name, value, right in (
        ("streams", len(places.streams), 0),
        ("open streams of ours", places.open_mine, 0),
        ("unread bytes", receiver.window.unread, 0),
        ("extra room", receiver.window.extra, 0),
        ("free permits", receiver.permits.free, config.permits),
        ("waiting for a permit", len(receiver.permits.waiting), 0),
        ("spare", places.spare, config.spare),
        ("places for the peer", places.granted - places.opened_peer, session.settings.send_streams),
        ("unacknowledged bytes", sender.replay.bytes, 0),
        ("resets to send", len(sender.resets), 0),
    ):
        if value != right:
            raise Violation(f"an idle session has {value} {name} instead of {right}")
    if sender.waiting:
        raise Violation("an idle session still has something to send")


def agree(one: Session, two: Session) -> None:
    """Both ends of an idle session tell the same story."""
    for mine, theirs in ((one, two), (two, one)):
        for name, a, b in (
            ("frames", mine.sender.replay.next, theirs.receiver.next),
            ("bytes of credit used", mine.sender.window.sent, theirs.receiver.window.received),
            ("streams opened", mine.places.opened, theirs.places.opened_peer),
        ):
            if a != b:
                raise Violation(f"{name}: {a} at the sender, {b} at the receiver")
        if mine.sender.window.limit > theirs.receiver.window.limit:
            raise Violation("the sender believes in more credit than it was given")


class Nonces:
    """No (key, nonce) twice: keys are never shared, and the counter of a link's records rises by one."""

    def __init__(self) -> None:
        self._secrets: set[bytes] = set()
        self._next: dict[Link, int] = {}

    def written(self, link: Link, data: bytes) -> None:
        at = 0
        while at < len(data):
            kind, counter = data[at + 5], int.from_bytes(data[at + 11 : at + 15], "big")
            size = int.from_bytes(data[at + 15 : at + 19], "big")
            if kind == 5:
                if link not in self._next:
                    assert link.outcome is not None
                    if (
                        link.outcome.send_secret in self._secrets
                        or link.outcome.receive_secret == link.outcome.send_secret
                    ):
                        raise Violation("a key is used twice")
                    self._secrets.add(link.outcome.send_secret)
                    self._next[link] = 0
                if counter != self._next[link]:
                    raise Violation(f"record {counter} was sealed, {self._next[link]} was next: a nonce twice")
                self._next[link] += 1
            at += HEADER_SIZE + size
