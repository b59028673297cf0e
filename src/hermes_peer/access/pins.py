"""Pins and denials: the two things a trust file can say.

Knows: their words and what makes one invalid. Refuses to know: who asks, and which of two files wins.
Called by: trust, editing, slot.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from hermes_peer.access.files import read_checked
from hermes_peer.access.names import check_agent_name
from hermes_peer.access.tables import TableError, Tables
from hermes_peer.errors import UsageError
from hermes_peer.wire.address import FINGERPRINT, Address

KINDS = {
    "pin": frozenset({"fingerprint", "name", "at", "not_after", "note", "slot"}),
    "deny": frozenset({"fingerprint", "reason"}),
}
NOTE_MAX = 200


@dataclass(frozen=True, slots=True)
class Pin:
    """This key is called `name` here. `at` may say where; `not_after` is in seconds since 1970 (None: for good)."""

    fingerprint: str
    name: str
    at: Address | None = None
    not_after: float | None = None
    not_after_text: str = ""
    note: str = ""
    slot: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """This key is refused, whatever else is said about it."""

    fingerprint: str
    reason: str
    source: str = ""


def read_tables(path: Path) -> tuple[tuple[Pin, ...], tuple[Deny, ...]]:
    """The pins and denials of one file; none if it does not exist. Raises TableError or UsageError (mode, owner)."""
    data = read_checked(path, "The trust file", secret=False)
    if data is None:
        return (), ()
    return parse_tables(path, data)


def parse_tables(path: Path, data: bytes) -> tuple[tuple[Pin, ...], tuple[Deny, ...]]:
    """The same, from bytes."""
    tables = Tables(path, data, KINDS)
    found: dict[str, list[Any]] = {"pin": [], "deny": []}
    for kind, build in (("pin", _pin), ("deny", _deny)):
        for index, table in enumerate(tables.of(kind)):
            try:
                found[kind].append(build(table, tables.name))
            except (TableError, UsageError) as error:
                raise tables.error(kind, index, str(error).rstrip(".")) from None
    return tuple(found["pin"]), tuple(found["deny"])


def check_fingerprint(text: Any) -> str:
    """64 lower-case hex digits, or UsageError. Refuses the fingerprints of keys that anybody can sign with (attack
    8).
    """
    lower = text.lower() if isinstance(text, str) and text.isascii() else ""
    if FINGERPRINT.fullmatch(lower) is None:
        raise UsageError(
            "a fingerprint must be 64 hex digits; `hermes-peer trust show` on the other machine prints it."
        )
    if lower in weak_fingerprints():
        raise UsageError(
            f"the key {lower[:16]}… is weak: anybody can sign with it; the other side must make a new key."
        )
    return lower


@cache
def weak_fingerprints() -> frozenset[str]:
    """The fingerprints of all small-order and non-canonical Ed25519 keys, with either sign bit."""
    # Computed here from RFC 8032's numbers, without the crypto room, so that reading a trust file loads no
    # OpenSSL.
    p = 2**255 - 19
    order_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    ys = [0, 1, p - 1, order_8, p - order_8, *range(p, 2**255)]
    prefix = bytes.fromhex("302a300506032b6570032100")
    keys = [(y | sign << 255).to_bytes(32, "little") for y in ys for sign in (0, 1)]
    return frozenset(hashlib.sha256(prefix + key).hexdigest() for key in keys)


def _pin(table: dict[str, Any], source: str) -> Pin:
    fingerprint = check_fingerprint(table.get("fingerprint"))
    if "name" not in table:
        raise TableError('a pin needs name = "…"')
    name = check_agent_name(table["name"])
    at = None
    if "at" in table:
        at = Address.parse(table["at"])
        if at.fingerprint not in ("", fingerprint):
            raise TableError("the fingerprint in `at` is another than the pin's")
        at = at.with_fingerprint(fingerprint)
    not_after = _end(table["not_after"]) if "not_after" in table else None
    slot = table.get("slot", 0)
    if type(slot) is not int or slot < 0:
        raise TableError("slot must be a number")
    return Pin(
        fingerprint,
        name,
        at,
        not_after,
        str(table.get("not_after", "")),
        _text(table, "note"),
        slot,
        source,
    )


def _deny(table: dict[str, Any], source: str) -> Deny:
    # A weak key may well be denied; only the shape is checked.
    fingerprint = table.get("fingerprint")
    if not isinstance(fingerprint, str) or FINGERPRINT.fullmatch(fingerprint.lower()) is None:
        raise TableError("a fingerprint must be 64 hex digits")
    return Deny(fingerprint.lower(), _text(table, "reason"), source)


def _text(table: dict[str, Any], word: str) -> str:
    value = table.get(word, "")
    if not isinstance(value, str) or not value.isprintable() or len(value) > NOTE_MAX:
        raise TableError(f"{word} must be one line of text with at most {NOTE_MAX} characters")
    return value


def _end(value: Any) -> float:
    """A day counts to its end in UTC; a time without a zone is UTC."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value) if len(value) > 10 else date.fromisoformat(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, date):
            return (datetime.combine(value, time(), UTC) + timedelta(days=1)).timestamp()
    except (ValueError, OverflowError):
        pass
    raise TableError('not_after must be a day such as "2027-01-01"')
