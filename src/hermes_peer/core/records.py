"""The records of a link: both directions once its keys stand.

Knows: sealing, the next key, and the bare mode of two who want no sealing (spec: frames, section 4).
Refuses to know: what is inside. Called by: link.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes_peer.crypto.handshake import Outcome
from hermes_peer.crypto.seal import SEND_MS, Opener, Sealer
from hermes_peer.wire import frames
from hermes_peer.wire.frames import HEADER_SIZE, RECORD_PLAIN_MAX, Type

Tap = Callable[[str, bytes], None]  # ("in" or "out", whole frames in plain)
_REKEY = frames.encode(Type.REKEY)


class Records:
    """`bare_in`, `bare_out`: from here on this direction carries its frames as they are. `rekey_s`: of our own key."""

    __slots__ = ("_opener", "_sealer", "bare_in", "bare_out", "open", "rekey_s", "written")

    def __init__(self, outcome: Outcome, now: float) -> None:
        self.bare_in = self.bare_out = False
        self.written = 0
        self.rekey_s = SEND_MS / 1000
        self._sealer = Sealer(outcome.send_secret, int(now * 1000))
        self._opener = Opener(outcome.receive_secret)
        self.open = self._opener.open

    def rekeyed(self, now: float) -> None:
        """The peer goes on under its next key. Raises SealError if it does so too often."""
        self._opener.rekey(int(now * 1000))

    def wrap(self, plain: bytes, now: float) -> bytes:
        """One record, and at times our next key behind it."""
        self.written += 1
        if self.bare_out:
            return plain
        sealer = self._sealer
        if sealer.records & 63 != 63 or not sealer.due(int(now * 1000), int(self.rekey_s * 1000)):
            return sealer.seal(plain)
        if len(plain) + HEADER_SIZE > RECORD_PLAIN_MAX:
            data = sealer.seal(plain) + sealer.seal(_REKEY)
        else:
            data = sealer.seal(plain + _REKEY)
        sealer.rekey(int(now * 1000))
        return data
