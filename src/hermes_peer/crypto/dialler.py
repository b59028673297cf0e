"""The dialling side of `hermes-link/1` (spec: handshake).

Knows: whom it wants, and what must hold before it shows who it is. Refuses to know: sockets, trust, sessions.
Called by: core.link, one a connection: `hello()`, `welcome(message)`, then `outcome`.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hermes_peer.crypto.authblock import open_block, seal_block
from hermes_peer.crypto.kem import Kem
from hermes_peer.crypto.keys import Context, Identity, fingerprint
from hermes_peer.crypto.messages import (
    SUITES,
    Body,
    Hello,
    Kind,
    Offer,
    Welcome,
    choose,
    decode_welcome,
    encode_hello,
    frame,
)
from hermes_peer.crypto.outcome import HandshakeError, Outcome
from hermes_peer.crypto.schedule import ZERO, handshake_keys, to_tag, traffic_keys
from hermes_peer.crypto.side import Entropy, Side, State, exchange, need


class Dialler(Side):
    """One attempt to reach the holder of `peer_fingerprint`."""

    def __init__(
        self,
        identity: Identity,
        peer_fingerprint: bytes,
        offer: Offer,
        caps: bytes | Callable[[bytes], bytes],
        *,
        entropy: Entropy,
        kem: Kem,
        realm: bytes = ZERO,
        psk: bytes | None = None,
        resume_id: bytes = b"",
        now_ms: int,
        binding: bytes = b"",
    ) -> None:
        """`caps` may depend on the session id, which WELCOME brings. `psk` and `resume_id` come together or not at all.

        Raises UsageError on misuse and HandshakeError("self") if the wanted fingerprint is our own.
        """
        super().__init__(identity, offer, caps, entropy=entropy, kem=kem, realm=realm, now_ms=now_ms, binding=binding)
        need(len(peer_fingerprint) == 32, "a fingerprint has 32 bytes")
        if psk is None:
            need(not resume_id, "a resume id needs its psk")
        else:
            need(len(psk) == 32 and len(resume_id) == 16, "a psk of 32 bytes goes with a resume id of 16")
        if peer_fingerprint == identity.fingerprint:
            raise HandshakeError("self")
        self.outcome: Outcome | None = None
        self._peer = peer_fingerprint
        self._psk = psk or ZERO
        self._resume_id = resume_id
        self._random = b""
        self._private: X25519PrivateKey | None = None
        self._kem_private: object = None

    def hello(self) -> bytes:
        """The whole HELLO. Draws the ephemeral key, then the random, 32 bytes each."""
        self._enter(State.START)
        self._private = X25519PrivateKey.from_private_bytes(self._draw())
        self._random = self._draw()
        ek = b""
        if 1 in self.offer.suites:
            ek, self._kem_private = self._kem.generate()
        share = self._private.public_key().public_bytes_raw()
        hello = Hello(self.offer, self._random, share, ek, self._resume_id)
        message = encode_hello(hello, lambda body: to_tag(self._realm, self._peer, body))
        self._transcript.mix(message)
        self._state = State.SENT
        return message

    def welcome(self, message: bytes) -> bytes:
        """READY for a WELCOME that holds; `outcome` is then set. Else HandshakeError, nothing revealed."""
        self._enter(State.SENT)
        welcome = decode_welcome(message)
        self._refuse(welcome)
        # WELCOME's own header is not mixed: its type is fixed, its length is that of what is authenticated.
        self._transcript.mix(welcome.clear)
        psk = self._psk if welcome.resumed else ZERO
        keys = handshake_keys(self._realm, psk, self._shared(welcome), self._transcript.value)
        body, public = open_block(self._transcript, keys.acceptor, welcome.sealed, Context.ACCEPTOR_LINK)
        self._check_peer(welcome, body, public)
        mine = self._body(body.session)
        ready = seal_block(self._transcript, keys.dialler, mine, self.identity, Context.DIALLER_LINK)
        traffic = traffic_keys(keys.master, self._transcript.value)
        self.outcome = Outcome(
            peer_public=public,
            peer_fingerprint=self._peer,
            peer_caps=b"",  # they come in its first record: what stands in WELCOME any dialler can read
            session=body.session,
            resumed=welcome.resumed,
            version=welcome.version,
            suite=welcome.suite,
            peer_time_ms=body.time_ms,
            send_secret=traffic.dialler,
            receive_secret=traffic.acceptor,
            psk=traffic.psk,
            exporter=traffic.exporter,
        )
        self._state = State.DONE
        return frame(Kind.READY, ready)

    def _refuse(self, welcome: Welcome) -> None:
        """All that needs no key (spec: handshake, refused before any key work)."""
        if welcome.version not in self.offer.versions:
            raise HandshakeError("version")
        if welcome.suite not in self.offer.suites or welcome.suite not in SUITES:
            raise HandshakeError("suite")
        if welcome.resumed and not self._resume_id:
            raise HandshakeError("resume")
        if welcome.random == self._random:
            raise HandshakeError("random")

    def _shared(self, welcome: Welcome) -> bytes:
        private, kem_private = self._private, self._kem_private
        self._private = self._kem_private = None
        assert private is not None
        shared = exchange(private, welcome.share)
        if welcome.suite != 1:
            return shared
        try:
            return self._kem.decapsulate(kem_private, welcome.mlkem_ct) + shared
        except ValueError:
            raise HandshakeError("mlkem") from None

    def _check_peer(self, welcome: Welcome, body: Body, public: bytes) -> None:
        """The right key, and the choice that both offers lead to: before we show who we are."""
        if public == self.identity.public:  # a thief of our own key answers us (SR attack 10)
            raise HandshakeError("self")
        if fingerprint(public) != self._peer:
            raise HandshakeError("fingerprint")
        if choose(self.offer, body.offer) != (welcome.version, welcome.suite):
            raise HandshakeError("downgrade")
