"""A second `hermes-link/1`, written from the spec with bare primitives, in which every field can lie.

Knows: the spec, none of our code. Refuses to know: what should be refused.
Called by: the attack tests (as a hostile or stolen peer) and the vectors (as a witness).
"""

from __future__ import annotations

import hashlib
import hmac
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

P = b"hermes-link/1"
Z = bytes(32)
SPKI = bytes.fromhex("302a300506032b6570032100")
DIALLER, ACCEPTOR = b" initiator sig", b" responder sig"


def H(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def HM(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def v8(x: bytes) -> bytes:
    return bytes([len(x)]) + x


def v16(x: bytes) -> bytes:
    return len(x).to_bytes(2, "big") + x


def X(secret: bytes, label: bytes, context: bytes = b"", n: int = 32) -> bytes:
    return HM(secret, n.to_bytes(2, "big") + v8(b"hermes1 " + label) + v8(context) + b"\1")[:n]


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def offer(versions: tuple[int, ...], suites: tuple[int, ...]) -> bytes:
    return v8(b"".join(v.to_bytes(2, "big") for v in versions)) + v8(bytes(suites))


def to(fp: bytes, body: bytes, realm: bytes = Z) -> bytes:
    return HM(H(P + b" to" + realm + fp), body)[:16]


def retag(hello: bytes, fp: bytes, realm: bytes = Z) -> bytes:
    """The same Hello body with length and `to` made right again: any outsider who knows the fingerprint can."""
    body = hello[4:-16]
    return message(1, body + to(fp, body, realm))


def read_hello(data: bytes) -> SimpleNamespace:
    at = 4
    nv = data[at]
    versions = data[at + 1 : at + 1 + nv]
    at += 1 + nv
    ns = data[at]
    suites = data[at + 1 : at + 1 + ns]
    at += 1 + ns
    random, share = data[at : at + 32], data[at + 32 : at + 64]
    at += 64
    n = int.from_bytes(data[at : at + 2], "big")
    ek = data[at + 2 : at + 2 + n]
    at += 2 + n
    rid = data[at + 1 : at + 1 + data[at]]
    return SimpleNamespace(
        versions=tuple(int.from_bytes(versions[i : i + 2], "big") for i in range(0, nv, 2)),
        suites=tuple(suites),
        random=random,
        share=share,
        ek=ek,
        rid=rid,
    )


class Other:
    """One side of one run. Give lies by name; what is left out is done as the spec says."""

    def __init__(
        self,
        seed: bytes,
        *,
        ephemeral: bytes = bytes(range(7, 39)),
        random: bytes = bytes(range(9, 41)),
        realm: bytes = Z,
        psk: bytes = Z,
        binding: bytes = b"",
    ) -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self.key.public_key().public_bytes_raw()
        self.fp = H(SPKI + self.public)
        self.private = X25519PrivateKey.from_private_bytes(ephemeral)
        self.share = self.private.public_key().public_bytes_raw()
        self.random, self.realm, self.psk = random, realm, psk
        self.th = H(P + v16(binding))
        self.kem_private: MLKEM768PrivateKey | None = None

    def mix(self, data: bytes) -> None:
        self.th = H(self.th + len(data).to_bytes(4, "big") + data)

    def keys(self, ss: bytes) -> None:
        self.ss, self.th1 = ss, self.th
        hs = HM(X(HM(self.realm, self.psk), b"derived"), ss)
        self.i_hs, self.r_hs = X(hs, b"i hs", self.th), X(hs, b"r hs", self.th)
        self.master = HM(X(hs, b"derived"), Z)

    def finish(self) -> None:
        self.th_final = self.th
        self.i_ap, self.r_ap, self.exporter, self.next_psk = (
            X(self.master, label, self.th) for label in (b"i ap", b"r ap", b"exp", b"res")
        )

    def hello(
        self,
        fp: bytes,
        *,
        versions: tuple[int, ...] = (1,),
        suites: tuple[int, ...] = (2,),
        ek: bytes | None = None,
        rid: bytes = b"",
        tail: bytes = b"",
        share: bytes | None = None,
    ) -> bytes:
        if ek is None:
            ek = b""
            if 1 in suites:
                self.kem_private = MLKEM768PrivateKey.generate()
                ek = self.kem_private.public_key().public_bytes_raw()
        self.versions, self.suites = versions, suites
        body = offer(versions, suites) + self.random + (share or self.share) + v16(ek) + v8(rid) + tail
        data = message(1, body + to(fp, body, self.realm))
        self.mix(data)
        return data

    def block(
        self,
        secret: bytes,
        role: bytes,
        *,
        cert_type: int = 0,
        cert: bytes | None = None,
        caps: bytes = b"",
        versions: tuple[int, ...],
        suites: tuple[int, ...],
        session: bytes,
        time: int = 0,
        zeros: bytes | None = None,
        tail: bytes = b"",
        sign: Any = None,
        fin: Any = None,
        short: bytes | None = None,
    ) -> bytes:
        """`sign(context, th)` and `fin(th)` replace the honest ones; `short` replaces the whole plaintext."""
        aad = self.th
        body = bytes([cert_type]) + v16(SPKI + self.public if cert is None else cert) + v16(caps)
        body += offer(versions, suites) + session + time.to_bytes(8, "big")
        body += v16(bytes(-(len(body) + 2 + len(tail)) % 256) if zeros is None else zeros) + tail
        self.mix(body)
        sig = sign(P + role + b"\0", self.th) if sign else self.key.sign(P + role + b"\0" + self.th)
        self.mix(sig)
        tag = fin(self.th) if fin else HM(X(secret, b"fin"), self.th)
        self.mix(tag)
        plain = body + sig + tag if short is None else short
        return AESGCM(X(secret, b"key")).encrypt(X(secret, b"iv", n=12), plain, aad)

    def open(self, secret: bytes, sealed: bytes) -> bytes:
        """The peer's AuthBlock in clear, believed without a look."""
        plain = AESGCM(X(secret, b"key")).decrypt(X(secret, b"iv", n=12), sealed, self.th)
        for piece in (plain[:-96], plain[-96:-32], plain[-32:]):
            self.mix(piece)
        return plain

    def welcome(
        self,
        hello: bytes,
        *,
        version: int = 1,
        suite: int = 2,
        resumed: int = 0,
        ct: bytes | None = None,
        random: bytes | None = None,
        share: bytes | None = None,
        kem_shared: bytes = b"",
        **block: Any,
    ) -> bytes:
        seen = read_hello(hello)
        self.mix(hello)
        if ct is None:
            kem_shared, ct = MLKEM768PublicKey.from_public_bytes(seen.ek).encapsulate() if suite == 1 else (b"", b"")
        head = version.to_bytes(2, "big") + bytes([suite, resumed])
        self.clear = head + (random or self.random) + (share or self.share) + v16(ct)
        self.mix(self.clear)
        self.keys(kem_shared + self.private.exchange(X25519PublicKey.from_public_bytes(seen.share)))
        block = {"versions": seen.versions, "suites": seen.suites, "session": bytes(16)} | block
        return message(2, self.clear + self.block(self.r_hs, ACCEPTOR, **block))

    def read_welcome(self, data: bytes) -> bytes:
        """Goes through WELCOME, believing all of it; returns the acceptor's session id."""
        n = int.from_bytes(data[72:74], "big")
        clear, sealed, ct = data[4 : 74 + n], data[74 + n :], data[74 : 74 + n]
        self.mix(clear)
        ss = self.private.exchange(X25519PublicKey.from_public_bytes(data[40:72]))
        if ct:
            assert self.kem_private is not None
            ss = self.kem_private.decapsulate(ct) + ss
        self.keys(ss)
        body = self.open(self.r_hs, sealed)
        at = 3 + 44
        at += 2 + int.from_bytes(body[at : at + 2], "big")
        at += 1 + body[at]
        at += 1 + body[at]
        return body[at : at + 16]

    def ready(self, welcome: bytes, **block: Any) -> bytes:
        session = self.read_welcome(welcome)
        block = {"versions": self.versions, "suites": self.suites, "session": session} | block
        data = message(3, self.block(self.i_hs, DIALLER, **block))
        self.finish()
        return data

    def read_ready(self, data: bytes) -> bytes:
        plain = self.open(self.i_hs, data[4:])
        self.finish()
        return plain
