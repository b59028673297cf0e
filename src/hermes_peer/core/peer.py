"""What we know of one other side: its key, names, instance, session, link, and the secrets that resume it.

Knows: one fingerprint's affairs. Refuses to know: sockets, other peers. Called by: node, which alone moves it.
"""

from __future__ import annotations

from typing import Literal

from hermes_peer.core.config import Caps
from hermes_peer.core.link import Link
from hermes_peer.core.session import Session
from hermes_peer.core.states import LinkState
from hermes_peer.crypto.handshake import resume_id

ATTEMPTS = 8
GENERATIONS = 4  # links of one session whose secret may still be offered: a lost READY or LINK loses nothing
SWAPS, SWAPS_S = 3, 60.0


class Peer:
    """`session` outlives `link`; `dialling` is our own attempt that is not up yet."""

    __slots__ = (
        "attempt",
        "caps",
        "detached_at",
        "dial_psk",
        "dialled_up_at",
        "dialling",
        "fingerprint",
        "ids",
        "instance",
        "link",
        "names",
        "newest",
        "psks",
        "session",
        "swaps",
        "unsure",
    )

    def __init__(self, fingerprint: bytes) -> None:
        self.fingerprint = fingerprint
        self.names: frozenset[str] = frozenset()
        self.instance = ""
        self.caps: Caps | None = None
        self.session: Session | None = None
        self.link: Link | None = None
        self.dialling: Link | None = None
        self.dialled_up_at = -1.0
        self.newest = -1.0  # when the link of the session came: whoever dials anew has given up what is older
        self.detached_at = 0.0
        self.dial_psk: bytes | None = None  # of the newest link on which LINK is known to have come both ways
        self.unsure: tuple[Link, bytes, float] | None = None  # our LINK may be lost; psk, since when
        self.attempt = 0
        self.psks: list[bytes] = []  # newest first; all that the peer may still offer
        self.ids: list[bytes] = []  # resume ids that stand for them in the node's index
        self.swaps: list[float] = []

    def confirm(self, link: Link, psk: bytes, now: float) -> None:
        """Their LINK has come. If they dialled, ours is on its way: they know the secret once it has arrived."""
        self.unsure = None if link.dialled else (link, psk, now)
        if link.dialled:
            self.dial_psk = psk

    def offer(self) -> tuple[bytes, bytes] | None:
        """(psk, resume id) for our next dial; no two dials show the same id."""
        session = self.session
        if self.unsure is not None:
            link, secret, since = self.unsure
            if link.heard_after(since):  # after its LINK a dialler writes nothing before it has read ours
                self.dial_psk, self.unsure = secret, None
        psk = self.dial_psk or (self.psks[0] if self.psks else None)  # on a first link that died early
        if session is None or psk is None:
            return None
        self.attempt += 1
        return psk, resume_id(psk, session.originator, self.attempt)

    def theirs(self, psk: bytes) -> list[bytes]:
        """The ids under which the peer may ask to resume with `psk`."""
        assert self.session is not None
        return [resume_id(psk, not self.session.originator, n) for n in range(ATTEMPTS)]

    @property
    def live(self) -> bool:
        return self.link is not None

    @property
    def state(self) -> Literal["connected", "reconnecting", "dialling", "away"]:
        """What a user is told of the line to this peer; never "connected" while it is not."""
        if self.link is not None and self.link.state is LinkState.OPEN:
            return "connected"
        if self.session is not None and not self.session.idle:
            return "reconnecting"
        return "dialling" if self.dialling is not None or self.link is not None else "away"

    def swapped(self, now: float) -> bool:
        """Another instance took the place; true if they take it from each other: a cloned key (HPC-045)."""
        self.swaps = [at for at in self.swaps if now - at < SWAPS_S] + [now]
        return len(self.swaps) >= SWAPS
