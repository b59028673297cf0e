"""The dialled side of `hermes-link/1` (spec: handshake).

Knows: the order in which a stranger's bytes may cost it work. Refuses to know: sockets, trust, sessions.
Called by: core.link, one a connection: `hello(message, find_psk)`, then `ready(message)`.

Until the peer has proved its key every fault is silence: HandshakeError without `refuse`. Only a dialler
whose `to` matched, who therefore knows this node, may be told that there is no common version or suite.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hermes_peer.crypto.authblock import open_block, seal_block
from hermes_peer.crypto.kem import Kem
from hermes_peer.crypto.keys import Context, Identity, fingerprint
from hermes_peer.crypto.messages import (
    TO_SIZE,
    Hello,
    Kind,
    Offer,
    Welcome,
    choose,
    decode_hello,
    encode_welcome,
    frame,
    unframe,
)
from hermes_peer.crypto.outcome import HandshakeError, Outcome, Refuse
from hermes_peer.crypto.schedule import ZERO, HandshakeKeys, handshake_keys, to_tag, traffic_keys
from hermes_peer.crypto.side import Entropy, Side, State, exchange, need


class Resumable(NamedTuple):
    """What was kept of a session: its psk, its id, and the fingerprint it belongs to.

    With a fingerprint the handshake itself refuses a stolen psk in another node's hands. Without one the
    caller must compare `Outcome.peer_fingerprint` with the session's before it moves anything (SR attack 19).
    """

    psk: bytes
    session: bytes
    fingerprint: bytes = b""


FindPsk = Callable[[bytes], "Resumable | tuple[bytes, bytes] | None"]


class Acceptor(Side):
    """One connection's answer to whoever dials it."""

    def __init__(
        self,
        identity: Identity,
        offer: Offer,
        *,
        entropy: Entropy,
        kem: Kem,
        session: bytes,
        realm: bytes = ZERO,
        now_ms: int,
        binding: bytes = b"",
        caps: bytes = b"",
    ) -> None:
        """`session` is a fresh 16-byte id. `caps` stays empty but for a vector: any dialler reads them."""
        super().__init__(identity, offer, caps, entropy=entropy, kem=kem, realm=realm, now_ms=now_ms, binding=binding)
        need(len(session) == 16, "a session id has 16 bytes")
        self._kept = Resumable(ZERO, session)

    def hello(self, message: bytes, find_psk: FindPsk, admit: Callable[[], bool] | None = None) -> bytes:
        """WELCOME for a HELLO that is for us; otherwise HandshakeError.

        `admit()` is asked once the message is known to be for us, before any work with keys; False: "busy".
        `find_psk(resume_id)` gives the session that the id names, or None: then a new session is made. Draws
        the ephemeral key, then the random, 32 bytes each.
        """
        self._enter(State.START)
        # First of all, and alone: a scanner costs one hash and learns nothing (SR attack 13).
        tag = to_tag(self._realm, self.identity.fingerprint, message[4:-TO_SIZE])
        if not hmac.compare_digest(tag, message[-TO_SIZE:]):
            raise HandshakeError("to")
        if admit is not None and not admit():
            raise HandshakeError("busy")
        hello = decode_hello(message)
        version, suite = choose(self.offer, hello.offer)
        if version is None:
            raise HandshakeError("version", refuse=Refuse.VERSION)
        if suite is None:
            raise HandshakeError("suite", refuse=Refuse.SUITE)
        ephemeral, random = self._draw(), self._draw()
        if hello.random == random:
            raise HandshakeError("random")
        resumed = self._resume(hello.resume_id, find_psk)
        private = X25519PrivateKey.from_private_bytes(ephemeral)
        shared, ct = self._shared(private, hello, suite)
        share = private.public_key().public_bytes_raw()
        clear = encode_welcome(Welcome(version, suite, resumed, random, share, ct))
        self._transcript.mix(message)
        self._transcript.mix(clear)
        keys = handshake_keys(self._realm, self._kept.psk, shared, self._transcript.value)
        mine = self._body(self._kept.session)
        sealed = seal_block(self._transcript, keys.acceptor, mine, self.identity, Context.ACCEPTOR_LINK)
        self._keys: HandshakeKeys = keys
        self._offered = hello.offer
        self._chosen = version, suite, resumed
        self._state = State.SENT
        return frame(Kind.WELCOME, clear + sealed)

    def ready(self, message: bytes) -> Outcome:
        """The outcome for a READY that holds; else HandshakeError, `proven` if it is from our own key."""
        self._enter(State.SENT)
        sealed = unframe(Kind.READY, message)
        body, public = open_block(self._transcript, self._keys.dialler, sealed, Context.DIALLER_LINK)
        if body.offer != self._offered:
            raise HandshakeError("offer")
        if body.session != self._kept.session:
            raise HandshakeError("session")
        peer = fingerprint(public)
        if self._kept.fingerprint and peer != self._kept.fingerprint:
            raise HandshakeError("fingerprint")
        version, suite, resumed = self._chosen
        traffic = traffic_keys(self._keys.master, self._transcript.value)
        outcome = Outcome(
            peer_public=public,
            peer_fingerprint=peer,
            peer_caps=body.caps,
            session=body.session,
            resumed=resumed,
            version=version,
            suite=suite,
            peer_time_ms=body.time_ms,
            send_secret=traffic.acceptor,
            receive_secret=traffic.dialler,
            psk=traffic.psk,
            exporter=traffic.exporter,
        )
        if public == self.identity.public:
            raise HandshakeError("self", proven=True, outcome=outcome)
        self._state = State.DONE
        return outcome

    def _resume(self, resume_id: bytes, find_psk: FindPsk) -> bool:
        found = find_psk(resume_id) if resume_id else None
        if found is None:
            return False
        self._kept = Resumable(*found)
        need(len(self._kept.psk) == 32 and len(self._kept.session) == 16, "a psk has 32 bytes, a session id 16")
        return True

    def _shared(self, private: X25519PrivateKey, hello: Hello, suite: int) -> tuple[bytes, bytes]:
        shared = exchange(private, hello.share)
        if suite != 1:
            return shared, b""
        try:
            post_quantum, ct = self._kem.encapsulate(hello.mlkem_ek)
        except ValueError:
            raise HandshakeError("mlkem") from None
        return post_quantum + shared, ct
