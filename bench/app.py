"""What every peer of the bench shares: payloads, the three functions of the server, certificates.

Knows: the work. Refuses to know: who carries it, how it is timed.
Called by: bench.peers.*, bench.workloads, bench.run.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

try:
    import orjson

    dumps, loads = orjson.dumps, orjson.loads
except ImportError:  # the core dependency does it too, a little slower
    import msgspec

    dumps, loads = msgspec.json.encode, msgspec.json.decode

HOST = "127.0.0.1"
MIB = 1 << 20


def payload(size: int) -> dict[str, Any]:
    """A request as an agent sends it, of exactly `size` bytes of JSON."""
    body: dict[str, Any] = {
        "id": 271828,
        "tool": "weather.forecast",
        "arguments": {"place": "Reykjavik", "days": 3, "unit": "celsius", "detail": [1, 2.5, True, None]},
        "text": "",
    }
    body["text"] = "x" * (size - len(dumps(body)))
    return body


SMALL = payload(256)
BLOB = b"hermes.." * (MIB // 8)


# the application


async def echo(request: dict[str, Any]) -> dict[str, Any]:
    return request


async def tokens(n: int, spread: bool = False) -> AsyncIterator[dict[str, Any]]:
    """`n` tokens of 24 bytes of JSON. `spread`: let the loop turn before each, as a model's answer does."""
    for i in range(n):
        if spread:
            await asyncio.sleep(0)
        yield {"i": 10000 + i, "t": " hello"}


def upload(blob: bytes | memoryview | str) -> dict[str, int]:
    return {"n": len(blob)}


class Inbox:
    """An async iterator that a callback fills; one reader, no bound. Least that a stream can cost."""

    END = object()

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Any:
        while not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        item = self._items.popleft()
        if item is Inbox.END:
            raise StopAsyncIteration
        return item


# TLS 1.3 with certificates on both sides, P-256


def folder() -> Path:
    """Where this run keeps its certificates and homes."""
    return Path(os.environ["HERMES_BENCH_DIR"])


def make_certificates(where: Path) -> None:
    """ca.pem, server.pem, server.key, client.pem, client.key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.datetime.now(datetime.UTC)
    issuer_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench-ca")])
    issuer_key = ec.generate_private_key(ec.SECP256R1())

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey, use: x509.ObjectIdentifier | None) -> bytes:
        is_ca = use is None
        usage = {"digital_signature": True, "key_cert_sign": is_ca, "crl_sign": is_ca}
        unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        usage |= dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
        ours, theirs = key.public_key(), issuer_key.public_key()
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer_name)
            .public_key(ours)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=7))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ours), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(theirs), critical=False)
        )
        if use is not None:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
            made = made.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        return made.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (where / "ca.pem").write_bytes(certificate(issuer_name, issuer_key, None))
    sides = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}
    for side, use in sides.items():
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, side)])
        (where / f"{side}.pem").write_bytes(certificate(name, key, use))
        (where / f"{side}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )


def tls(side: str) -> ssl.SSLContext:
    """A context for "server" or "client"; both show a certificate and ask for one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if side == "server" else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(folder() / f"{side}.pem", folder() / f"{side}.key")
    context.load_verify_locations(folder() / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context
