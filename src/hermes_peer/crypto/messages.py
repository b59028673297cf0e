"""The three handshake messages as bytes, and back, strictly (spec: handshake, messages).

Knows: layouts, and every refusal that needs neither key nor state. Refuses to know: proofs and secrets.
Called by: authblock, dialler, acceptor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from hermes_peer.crypto.kem import CT_SIZE, EK_SIZE
from hermes_peer.crypto.outcome import HandshakeError
from hermes_peer.crypto.schedule import v8, v16
from hermes_peer.errors import UsageError

MAX_BODY = 16_384
MAX_CAPS = 4096
TO_SIZE = 16
BLOCK = 256  # AuthBlock bodies are padded to a multiple of this, so that lengths of names do not show


class Kind(IntEnum):
    """The type byte of a handshake message's own header."""

    HELLO = 1
    WELCOME = 2
    READY = 3


SUITES = (1, 2)  # best first: X25519 with ML-KEM-768, X25519 alone


@dataclass(frozen=True, slots=True)
class Offer:
    """Versions and suites that a node accepts; in any order. Unknown suites are carried (grease)."""

    versions: tuple[int, ...] = (1,)
    suites: tuple[int, ...] = (1,)

    def check(self) -> None:
        """UsageError unless this can be sent and holds a suite that we speak."""
        if not 0 < len(self.versions) < 128 or not all(0 <= v < 2**16 for v in self.versions):
            raise UsageError("an offer has 1 to 127 versions below 65536")
        if len(self.suites) > 255 or not all(0 <= s < 256 for s in self.suites):
            raise UsageError("an offer has at most 255 suites below 256")
        if not set(SUITES) & set(self.suites):
            raise UsageError(f"an offer has at least one of the suites {SUITES}")

    def encode(self) -> bytes:
        """`v8(versions: u16…) | v8(suites: u8…)`, the same in Hello and AuthBlock."""
        return v8(b"".join(v.to_bytes(2, "big") for v in self.versions)) + v8(bytes(self.suites))


def choose(mine: Offer, peer: Offer) -> tuple[int | None, int | None]:
    """The best (version, suite) that both offers hold, the same from both sides; None where there is none."""
    version = max(set(mine.versions) & set(peer.versions), default=None)
    suite = next((s for s in SUITES if s in mine.suites and s in peer.suites), None)
    return version, suite


@dataclass(frozen=True, slots=True)
class Hello:
    """The body of message 1, without `to`."""

    offer: Offer
    random: bytes
    share: bytes
    mlkem_ek: bytes
    resume_id: bytes


@dataclass(frozen=True, slots=True)
class Welcome:
    """The clear part of message 2; `sealed` is the acceptor's AuthBlock, `clear` the bytes before it."""

    version: int
    suite: int
    resumed: bool
    random: bytes
    share: bytes
    mlkem_ct: bytes
    clear: bytes = b""
    sealed: bytes = b""


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an AuthBlock. Certificate type 0, a bare SPKI, is the only one so far."""

    certificate: bytes
    caps: bytes
    offer: Offer
    session: bytes
    time_ms: int


def frame(kind: Kind, body: bytes) -> bytes:
    """`u8 type | u24 length | body`."""
    return kind.to_bytes(1, "big") + len(body).to_bytes(3, "big") + body


def unframe(kind: Kind, message: bytes) -> bytes:
    """The body of a message that must be of `kind` and exactly as long as it says."""
    body = message[4:]
    if len(body) > MAX_BODY or message[:4] != kind.to_bytes(1, "big") + len(body).to_bytes(3, "big"):
        raise HandshakeError("parse")
    return body


class _Reader:
    """Takes fields off the front; running short is a HandshakeError."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> bytes:
        piece = self.data[self.at : self.at + n]
        if len(piece) != n:
            raise HandshakeError("parse")
        self.at += n
        return piece

    def number(self, n: int) -> int:
        return int.from_bytes(self.take(n), "big")

    def v8(self) -> bytes:
        return self.take(self.number(1))

    def v16(self) -> bytes:
        return self.take(self.number(2))

    def offer(self) -> Offer:
        versions, suites = self.v8(), self.v8()
        if not versions or len(versions) % 2 or not suites:
            raise HandshakeError("parse")
        pairs = zip(versions[::2], versions[1::2], strict=True)
        return Offer(tuple(high << 8 | low for high, low in pairs), tuple(suites))

    def end(self) -> None:
        if self.at != len(self.data):
            raise HandshakeError("parse")


def encode_hello(hello: Hello, tag: Callable[[bytes], bytes]) -> bytes:
    """The whole Hello; `tag` makes `to` from the body before it."""
    body = hello.offer.encode() + hello.random + hello.share + v16(hello.mlkem_ek) + v8(hello.resume_id)
    return frame(Kind.HELLO, body + tag(body))


def decode_hello(message: bytes) -> Hello:
    """A strict Hello: no odd length, nothing after it, an ML-KEM key exactly if suite 1 is offered."""
    read = _Reader(unframe(Kind.HELLO, message)[:-TO_SIZE])
    hello = Hello(read.offer(), read.take(32), read.take(32), read.v16(), read.v8())
    read.end()
    if len(hello.resume_id) not in (0, 16):
        raise HandshakeError("parse")
    if len(hello.mlkem_ek) != (EK_SIZE if 1 in hello.offer.suites else 0):
        raise HandshakeError("mlkem")
    return hello


def encode_welcome(welcome: Welcome) -> bytes:
    """The clear part of WELCOME."""
    head = welcome.version.to_bytes(2, "big") + bytes((welcome.suite, welcome.resumed))
    return head + welcome.random + welcome.share + v16(welcome.mlkem_ct)


def decode_welcome(message: bytes) -> Welcome:
    """A strict WELCOME: an ML-KEM ciphertext exactly if the suite is 1; the rest is the sealed AuthBlock."""
    body = unframe(Kind.WELCOME, message)
    read = _Reader(body)
    version, suite, resumed = read.number(2), read.number(1), read.number(1)
    random, share, ct = read.take(32), read.take(32), read.v16()
    if resumed > 1:
        raise HandshakeError("parse")
    if len(ct) != (CT_SIZE if suite == 1 else 0):
        raise HandshakeError("mlkem")
    return Welcome(version, suite, resumed == 1, random, share, ct, body[: read.at], body[read.at :])


def encode_body(body: Body) -> bytes:
    """The AuthBlock's body, zeros at its end up to a multiple of 256 bytes."""
    data = b"\0" + v16(body.certificate) + v16(body.caps) + body.offer.encode() + body.session
    data += body.time_ms.to_bytes(8, "big")
    return data + v16(bytes(-(len(data) + 2) % BLOCK))


def decode_body(data: bytes) -> Body:
    """A strict AuthBlock body. Another certificate type is refused by that name."""
    read = _Reader(data)
    kind = read.number(1)
    body = Body(read.v16(), read.v16(), read.offer(), read.take(16), read.number(8))
    zeros = read.v16()
    read.end()
    if any(zeros) or len(data) % BLOCK or len(body.caps) > MAX_CAPS:
        raise HandshakeError("parse")
    if kind != 0:
        raise HandshakeError("certificate type")
    return body
