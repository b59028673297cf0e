"""The resume index: which secret brings back whose session, and what was left of the ended ones.

Knows: resume ids, psks, tombstones (spec: session, section 4). Refuses to know: links, handshakes.
Called by: node.
"""

from __future__ import annotations

from collections import OrderedDict

from hermes_peer.core.peer import ATTEMPTS, GENERATIONS, Peer
from hermes_peer.wire.frames import UNKNOWN_MARK

TOMBSTONES = 4096


class ResumeIndex:
    """Every id under which a peer may ask for its session, and the same ids once the session has ended."""

    __slots__ = ("_ids", "_tombs")

    def __init__(self) -> None:
        self._ids: dict[bytes, tuple[Peer, bytes]] = {}  # resume id -> whose, psk
        self._tombs: OrderedDict[bytes, int] = OrderedDict()  # resume id of an ended session -> its recv_next

    def find(self, id: bytes) -> tuple[bytes, bytes, bytes] | None:
        """(psk, session id, fingerprint) of the session that `id` stands for."""
        found = self._ids.get(id)
        if found is None:
            return None
        peer, psk = found
        assert peer.session is not None
        return psk, peer.session.id, peer.fingerprint

    def mark(self, id: bytes) -> int:
        """How far the ended session of that id had received, so that its owner knows what never ran."""
        return self._tombs.get(id, UNKNOWN_MARK)

    def learn(self, peer: Peer, psk: bytes, used: bytes = b"") -> None:
        """A new link's secret: from now on the peer may offer it, and a few older ones for links that died early.

        `used`: the id by which this link itself was resumed. Its secret is the peer's current one until the new
        one is confirmed, so it outlives any number of links that die before that.
        """
        current = self._ids.get(used)
        if current is not None and current[1] in peer.psks:
            at = peer.psks.index(current[1])
            peer.psks.insert(0, peer.psks.pop(at))
            ids = peer.ids[at * ATTEMPTS : (at + 1) * ATTEMPTS]
            del peer.ids[at * ATTEMPTS : (at + 1) * ATTEMPTS]
            peer.ids[:0] = ids
            peer.dial_psk = current[1]  # they have just used it, so they know it: a side that never dials keeps up, too
        peer.psks.insert(0, psk)
        peer.ids[:0] = peer.theirs(psk)
        for id in peer.ids[:ATTEMPTS]:
            self._ids[id] = (peer, psk)
        while len(peer.psks) > GENERATIONS:
            peer.psks.pop()
            for id in peer.ids[-ATTEMPTS:]:
                self._ids.pop(id, None)
            del peer.ids[-ATTEMPTS:]

    def bury(self, peer: Peer) -> None:
        """The peer's session has ended: nothing brings it back, and a tombstone says how far it came."""
        session = peer.session
        for id in peer.ids:
            self._ids.pop(id, None)
            if session is not None:
                self._tombs[id] = session.receiver.next
        while len(self._tombs) > TOMBSTONES:
            self._tombs.popitem(last=False)
        peer.session = None
        peer.dial_psk = peer.unsure = None
        peer.psks = []
        peer.ids = []
