"""Transcript hash and key schedule of `hermes-link/1` (spec: handshake, notation and key schedule).

Knows: which secret comes from which, and what each is bound to. Refuses to know: messages, node keys, time.
Called by: authblock, dialler, acceptor; `expand` also by seal.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

PROTOCOL = b"hermes-link/1"
ZERO = bytes(32)

_SHA256 = SHA256()


def v8(data: bytes) -> bytes:
    """One length byte and `data`."""
    return len(data).to_bytes(1, "big") + data


def v16(data: bytes) -> bytes:
    """Two length bytes and `data`."""
    return len(data).to_bytes(2, "big") + data


def mac(key: bytes, data: bytes) -> bytes:
    """HMAC-SHA256."""
    return hmac.digest(key, data, "sha256")


def extract(salt: bytes, secret: bytes) -> bytes:
    """HKDF-Extract."""
    return HKDF.extract(_SHA256, salt, secret)


def expand(secret: bytes, label: bytes, context: bytes = b"", n: int = 32) -> bytes:
    """HKDF-Expand with the label and the length in its info, as TLS 1.3 does: the spec's `X`."""
    info = n.to_bytes(2, "big") + v8(b"hermes1 " + label) + v8(context)
    return HKDFExpand(_SHA256, n, info).derive(secret)


class Transcript:
    """A running hash of all that both sides have said; `value` is `th`."""

    __slots__ = ("value",)

    def __init__(self, binding: bytes) -> None:
        self.value = hashlib.sha256(PROTOCOL + v16(binding)).digest()

    def mix(self, data: bytes) -> None:
        self.value = hashlib.sha256(self.value + len(data).to_bytes(4, "big") + data).digest()


def to_tag(realm: bytes, fingerprint: bytes, body: bytes) -> bytes:
    """The 16 bytes by which a node sees that a Hello is for it, before any other work."""
    key = hashlib.sha256(PROTOCOL + b" to" + realm + fingerprint).digest()
    return mac(key, body)[:16]


@dataclass(frozen=True, slots=True, repr=False)
class HandshakeKeys:
    """The secrets of the two AuthBlocks and the root of the traffic secrets."""

    dialler: bytes
    acceptor: bytes
    master: bytes


def handshake_keys(realm: bytes, psk: bytes, shared: bytes, th1: bytes) -> HandshakeKeys:
    """From realm, psk (zeros if none) and shared secret; `th1` binds Hello and WELCOME's clear part."""
    early = extract(realm, psk)
    root = extract(expand(early, b"derived"), shared)
    return HandshakeKeys(
        dialler=expand(root, b"i hs", th1),
        acceptor=expand(root, b"r hs", th1),
        master=extract(expand(root, b"derived"), ZERO),
    )


@dataclass(frozen=True, slots=True, repr=False)
class TrafficKeys:
    """What a finished handshake leaves, bound to both identities by the last transcript value."""

    dialler: bytes
    acceptor: bytes
    exporter: bytes
    psk: bytes


def traffic_keys(master: bytes, th_final: bytes) -> TrafficKeys:
    """From `master` and the transcript after the dialler's `fin`."""
    return TrafficKeys(
        dialler=expand(master, b"i ap", th_final),
        acceptor=expand(master, b"r ap", th_final),
        exporter=expand(master, b"exp", th_final),
        psk=expand(master, b"res", th_final),
    )


def resume_id(psk: bytes, dialler_is_originator: bool, attempt: int) -> bytes:
    """The 16 bytes that name `psk` in a Hello; another for each side and for eight attempts in a row.

    So an observer cannot see that two dials belong together, and the acceptor indexes sixteen ids a psk.
    """
    role = 1 if dialler_is_originator else 2
    return expand(psk, b"resume id", bytes((role, attempt % 8)), 16)


def host_tag(boot_id: bytes, realm: bytes, session: bytes, role: int) -> bytes:
    """16 bytes that tell two processes of one machine that they share it, and nobody else which it is."""
    return mac(boot_id, b"hermes host" + realm + session + bytes((role,)))[:16]
