"""The registry record: what a node says of itself, signed by its own key.

Knows: its members, limits and signature. Refuses to know: where it was found and whether its key is trusted.
Called by: the agent layer (sign), views (read), any registry back end that wants to look inside.

On disk and on the wire a record is two lines: the JSON bytes that were signed, then the signature in hex.
The bytes are verified as they stand and never re-serialised, so no canonical form is needed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hermes_peer.errors import UsageError
from hermes_peer.wire.address import Address

if TYPE_CHECKING:
    from hermes_peer.crypto.keys import Identity

BLOB_MAX = 64 * 1024
LEASE = 60.0
RENEW = 20.0
LEASE_MAX = 24 * 3600.0
# Two machines' clocks may differ; a record from further ahead would outlive its lease.
SKEW = 300.0
SEQ_MAX = 2**64 - 1


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`key`: 64 hex digits of the raw Ed25519 public key; `addresses`: texts as `Address` writes them; `seq`: rises
    with every record of a key, see `next_seq`; `issued_ms`: milliseconds since 1970; `lease_s`: seconds from then
    on; `load`: work in flight, a hint; `methods`: what the agent offers to anybody who may ask, may be empty.
    """

    agent_id: str
    instance_id: str
    key: str
    addresses: list[str]
    capabilities: list[str]
    seq: int
    issued_ms: int
    lease_s: float
    load: int = 0
    methods: list[str] = []

    @property
    def fingerprint(self) -> str:
        """64 hex digits: the principal. The key is its only source."""
        from hermes_peer.crypto.keys import fingerprint

        return fingerprint(bytes.fromhex(self.key)).hex()

    @property
    def expires(self) -> float:
        """Seconds since 1970 at which the lease ends."""
        return self.issued_ms / 1000 + self.lease_s

    def places(self) -> list[Address]:
        """The addresses, with this record's fingerprint."""
        return [Address.parse(each).with_fingerprint(self.fingerprint) for each in self.addresses]


_decoder = msgspec.json.Decoder(Record)


def next_seq(last: int, now: float) -> int:
    """The number for the next record: above `last` (0 if unknown) and, so that a restart needs no memory, not below
    the clock in milliseconds. `now` in seconds since 1970.
    """
    return max(last + 1, int(now * 1000))


def sign_record(identity: Identity, record: Record) -> bytes:
    """The two lines. Raises UsageError if the record breaks a rule or bears another key than `identity`."""
    from hermes_peer.crypto.keys import Context

    if record.key != identity.public.hex():
        raise UsageError("The record's key is not the key that signs it; set key=identity.public.hex().")
    try:
        _check(record)
    except ValueError as error:
        raise UsageError(f"The registry record cannot be signed: {error}.") from None
    data = msgspec.json.encode(record)
    blob = data + b"\n" + identity.sign(Context.RECORD, data).hex().encode() + b"\n"
    if len(blob) > BLOB_MAX:
        raise UsageError("The registry record is larger than 64 KiB; announce fewer methods or capabilities.")
    return blob


def open_record(blob: bytes) -> Record:
    """The record, if its form and signature are right; whether its lease still runs is for `check_lease`.

    Raises ValueError with the reason and nothing else, whatever the bytes are.
    """
    from hermes_peer.crypto.keys import Context, check_public, verify

    if len(blob) > BLOB_MAX:
        raise ValueError("it is larger than 64 KiB")
    data, newline, last = blob.removesuffix(b"\n").rpartition(b"\n")
    if not newline or len(last) != 128:
        raise ValueError("it is not a line of JSON and a line with a signature")
    try:
        signature = bytes.fromhex(last.decode("ascii"))
        record = _decoder.decode(data)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise ValueError(f"it cannot be read: {error}") from None
    _check(record)
    public = bytes.fromhex(record.key)
    try:
        check_public(public)
    except Exception as error:
        raise ValueError(f"its key is unusable: {error}") from None
    if not verify(Context.RECORD, public, data, signature):
        raise ValueError("its signature is wrong")
    return record


def check_lease(record: Record, now: float) -> None:
    """Raises ValueError if the lease is over at `now` (seconds since 1970), or if the record is from the future."""
    if now >= record.expires:
        raise ValueError(f"its lease ended {now - record.expires:.0f} s ago")
    if record.issued_ms / 1000 > now + SKEW:
        raise ValueError("it was issued in the future: a clock is wrong, here or there")


def _check(record: Record) -> None:
    _line(record.agent_id, "agent_id", 64)
    _line(record.instance_id, "instance_id", 128)
    try:
        key_bytes = bytes.fromhex(record.key) if record.key.isascii() else b""
    except ValueError:
        key_bytes = b""
    if len(key_bytes) != 32 or record.key != key_bytes.hex():
        raise ValueError("its key is not 64 lower-case hex digits")
    for texts, what, most in (
        (record.addresses, "address", 16),
        (record.capabilities, "capability", 256),
        (record.methods, "method", 1024),
    ):
        if len(texts) > most:
            raise ValueError(f"it has more than {most} entries of the kind {what}")
        for text in texts:
            _line(text, what, 256)
    for text in record.addresses:
        try:
            place = Address.parse(text)
        except UsageError as error:
            raise ValueError(f"its address is wrong: {str(error).rstrip('.')}") from None
        if place.fingerprint not in ("", record.fingerprint):
            raise ValueError("its address names another key")
    if not 0 <= record.seq <= SEQ_MAX:
        raise ValueError("its seq is not a 64-bit number")
    if not 0 <= record.issued_ms < 2**53 or not 0 <= record.load < 2**53:
        raise ValueError("its issued_ms or load is out of range")
    if not (math.isfinite(record.lease_s) and 0 < record.lease_s <= LEASE_MAX):
        raise ValueError("its lease is not between 0 and 86,400 s")


def _line(text: str, what: str, most: int) -> None:
    if not 0 < len(text) <= most or not text.isprintable():
        raise ValueError(f"its {what} is empty, longer than {most} characters or not printable")
