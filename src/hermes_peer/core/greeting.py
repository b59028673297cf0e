"""The greeting: the frames of a link until its keys stand.

Knows: HELLO, WELCOME, READY, REFUSE, and when the answer is silence (spec: handshake).
Refuses to know: records, sessions, whom to trust. Called by: link, which owns one until it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_peer.core.states import CLEAR, LINK, LinkInput, LinkState, Reason, reason_of
from hermes_peer.crypto.handshake import Acceptor, Dialler, HandshakeError, Outcome
from hermes_peer.wire import frames
from hermes_peer.wire.frames import Type

SEEN_S = 60.0
SEEN_MAX = 4096
TAG = 16  # the bytes of `to`, the last of a HELLO

FindPsk = Callable[[bytes], Any]
Admit = Callable[[float], bool]  # now: whether there is time for one more handshake of this address


class Seen:
    """The HELLOs of the last minute that were for us, each by its `to`, which depends on every byte of it.

    A captured HELLO sent again costs us a look-up, and no Diffie-Hellman (attack 4).
    """

    __slots__ = ("_when",)

    def __init__(self) -> None:
        self._when: dict[bytes, float] = {}  # oldest first

    def before(self, hello: bytes, now: float) -> bool:
        """Whether this HELLO was noted within the last minute."""
        when = self._when.get(hello[-TAG:])
        return when is not None and now - when < SEEN_S

    def note(self, hello: bytes, now: float) -> None:
        """Only for a HELLO whose `to` matched: a scanner must not push others out."""
        self._when.pop(hello[-TAG:], None)
        self._when[hello[-TAG:]] = now
        while len(self._when) > SEEN_MAX or now - next(iter(self._when.values())) >= SEEN_S:
            del self._when[next(iter(self._when))]


class Greeting:
    """One side of one handshake. The path is linear: what is not awaited raises HandshakeError (attack 14).

    It ends with an `outcome`, or with a `refusal` by the other side, which is unproven.
    """

    def __init__(
        self, handshake: Dialler | Acceptor, find_psk: FindPsk, seen: Seen, admit: Admit | None = None
    ) -> None:
        self.state = LinkState.HELLO
        self.dialled = isinstance(handshake, Dialler)
        self.outcome: Outcome | None = None
        self.refusal: tuple[Reason, str] | None = None
        self.asked = b""  # the id of the session that the dialler would like to resume
        self._handshake = handshake
        self._find_psk = find_psk
        self._seen = seen
        self._admit = admit

    def begin(self) -> bytes:
        """What we say unasked: the dialler's HELLO."""
        handshake = self._handshake
        return frames.encode(Type.HELLO, handshake.hello()) if isinstance(handshake, Dialler) else b""

    def receive(self, kind: int, flags: int, id: int, sequence: int, body: bytes, now: float) -> bytes:
        """One frame of the other side; gives the frame to answer with, if any. Raises HandshakeError."""
        handshake = self._handshake
        if flags or id or sequence:
            raise HandshakeError("frame")
        if isinstance(handshake, Dialler):
            if kind == Type.WELCOME:
                return self._welcome(handshake, body)
            if kind == Type.REFUSE and self.state is LinkState.HELLO:
                refuse = frames.Refuse.decode(body)
                reason = reason_of(refuse.code)
                self.refusal = reason if reason in CLEAR else Reason.NONE, refuse.text or "the other side refused"
                return b""
        elif kind == Type.HELLO:
            return self._hello(handshake, body, now)
        elif kind == Type.READY:
            self._move(LinkInput.READY)
            self.outcome = handshake.ready(body)
            return b""
        raise HandshakeError("state")

    def last_words(self, error: HandshakeError) -> bytes:
        """REFUSE, for a dialler whose `to` matched and who offers nothing that we speak; else silence."""
        handshake = self._handshake
        if error.refuse is None or not isinstance(handshake, Acceptor):
            return b""
        versions, suites = handshake.offer.versions, handshake.offer.suites
        text = f"no common {error.refuse.name.lower()}: this side speaks versions {list(versions)} "
        text += f"and suites {list(suites)}"
        return frames.Refuse(Reason[error.refuse.name], versions, suites, 0, text).encode()

    def _welcome(self, handshake: Dialler, body: bytes) -> bytes:
        self._move(LinkInput.WELCOME)
        ready = handshake.welcome(body)
        self.outcome = handshake.outcome
        return frames.encode(Type.READY, ready)

    def _hello(self, handshake: Acceptor, body: bytes, now: float) -> bytes:
        self._move(LinkInput.HELLO)
        if self._seen.before(body, now):
            raise HandshakeError("replay")
        admit = self._admit
        welcome = handshake.hello(body, self._find, None if admit is None else lambda: admit(now))
        self._seen.note(body, now)
        return frames.encode(Type.WELCOME, welcome)

    def _find(self, resume_id: bytes) -> Any:
        self.asked = resume_id
        return self._find_psk(resume_id)

    def _move(self, input: LinkInput) -> None:
        try:
            self.state = LINK[self.state, input]
        except KeyError:
            raise HandshakeError("state") from None
