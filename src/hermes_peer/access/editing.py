"""Editing trust.toml by command without spoiling what its owner wrote there.

Knows: how to append and cut out tables, and to check the result before it replaces the file. Refuses to
know: policy, running agents (they see the new file by themselves). Called by: the command line, through
trust.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_peer.access.files import locked, read_checked, write_whole
from hermes_peer.access.names import check_agent_name
from hermes_peer.access.pins import KINDS, NOTE_MAX, Deny, Pin, check_fingerprint, parse_tables
from hermes_peer.access.tables import TableError, Tables
from hermes_peer.errors import UsageError
from hermes_peer.wire.address import FINGERPRINT, Address

if TYPE_CHECKING:
    from hermes_peer.access.home import Home
    from hermes_peer.access.slot import Slot

_NOWHERE = ("0.0.0.0", "::")


def add_pin(home: Home, fingerprint: str, name: str, at: str | Address | None = None) -> None:
    """Appends a pin to trust.toml. Raises UsageError: bad or weak key, bad name or address, denied, already there."""
    key = _key(fingerprint)
    check_agent_name(name)
    place = None
    if at is not None:
        place = at if isinstance(at, Address) else Address.parse(at)
        if place.fingerprint not in ("", key):
            raise UsageError("The address names another key than the one to pin; use one of the two fingerprints.")
    with locked(home.lock_file):
        text = _read(home)
        pins, denials = _parse(home, text)
        if any(each.fingerprint == key for each in denials):
            raise UsageError(
                f"trust.toml denies {key[:16]}…, and a deny wins over every pin; "
                f"run first: hermes-peer trust remove {key}"
            )
        for pin in pins:
            if (pin.fingerprint, pin.name) == (key, name):
                raise UsageError(
                    f"trust.toml pins {key[:16]}… as {name} already; to change it, run first: "
                    f"hermes-peer trust remove {key}"
                )
        table = {"fingerprint": key, "name": name}
        if place is not None:
            table["at"] = str(place.endpoint)
        _append(home, text, "pin", table)


def deny(home: Home, fingerprint: str, reason: str = "") -> None:
    """Appends a denial to trust.toml; pins of the key may stay, the deny wins. Raises UsageError."""
    key = _shape(fingerprint)
    if not reason.isprintable() or len(reason) > NOTE_MAX:
        raise UsageError(f"The reason must be one line of text with at most {NOTE_MAX} characters.")
    with locked(home.lock_file):
        text = _read(home)
        if any(each.fingerprint == key for each in _parse(home, text)[1]):
            raise UsageError(f"trust.toml denies {key[:16]}… already; nothing was changed.")
        table = {"fingerprint": key}
        if reason:
            table["reason"] = reason
        _append(home, text, "deny", table)


def remove(home: Home, fingerprint: str) -> int:
    """Cuts every pin and denial of this key out of trust.toml; returns how many (0: there were none).

    Raises UsageError if the key is an agent of this home (its pin would come back), or if the file is written in a
    way that cannot be cut safely.
    """
    key = _shape(fingerprint)
    with locked(home.lock_file):
        text = _read(home)
        _parse(home, text)
        tables = Tables(home.trust_file, text.encode(), KINDS)
        doomed = [
            (kind, index)
            for kind in KINDS
            for index, table in enumerate(tables.of(kind))
            if str(table.get("fingerprint", "")).lower() == key
        ]
        if not doomed:
            if (home.trust_dir / f"{key}.toml").exists():
                raise UsageError(
                    f"{key[:16]}… is an agent of this home, which pins itself at each start; "
                    f"run instead: hermes-peer trust deny {key}"
                )
            return 0
        expected = {
            kind: [table for index, table in enumerate(tables.of(kind)) if (kind, index) not in doomed]
            for kind in KINDS
        }
        lines = text.splitlines(keepends=True)
        for first, last in sorted((tables.span(*each) for each in doomed), reverse=True):
            # Without this, the blank line before and the one after the table would both stay.
            if first and not lines[first - 1].strip() and (last == len(lines) or not lines[last].strip()):
                first -= 1
            del lines[first:last]
        _replace(home, "".join(lines), expected)
        return len(doomed)


def share_line(slot: Slot, addresses: Iterable[str | Address] = ()) -> str:
    """The one line that the other side runs to trust this instance and, if it listens on TCP, to reach it."""
    line = f"hermes-peer trust add {slot.fingerprint} name={slot.name}"
    for each in addresses:
        place = (each if isinstance(each, Address) else Address.parse(each)).endpoint
        # A socket file, "any address" and "any port" mean nothing on another machine.
        if place.scheme == "tcp" and place.host not in _NOWHERE and place.port:
            return f"{line} at={place}"
    return line


def _key(fingerprint: str) -> str:
    try:
        return check_fingerprint(fingerprint)
    except UsageError as error:
        sentence = str(error)
        raise UsageError(sentence[0].upper() + sentence[1:]) from None


def _shape(fingerprint: str) -> str:
    key = fingerprint.lower() if fingerprint.isascii() else ""
    if FINGERPRINT.fullmatch(key) is None:
        raise UsageError("A fingerprint must be 64 hex digits; `hermes-peer trust list` shows those you know.")
    return key


def _read(home: Home) -> str:
    data = read_checked(home.trust_file, "The trust file", secret=False) or b""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("trust.toml is not UTF-8 text; repair it first, nothing was changed.") from None


def _parse(home: Home, text: str) -> tuple[tuple[Pin, ...], tuple[Deny, ...]]:
    try:
        return parse_tables(home.trust_file, text.encode())
    except TableError as error:
        raise UsageError(f"{error}: repair it first, nothing was changed.") from None


def _append(home: Home, text: str, kind: str, table: dict[str, str]) -> None:
    old = Tables(home.trust_file, text.encode(), KINDS)
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    added = f"[[{kind}]]\n" + "".join(f"{word} = {_quote(value)}\n" for word, value in table.items())
    expected = {each: list(old.of(each)) for each in KINDS}
    expected[kind].append(table)
    _replace(home, text + gap + added, expected)


def _replace(home: Home, text: str, expected: dict[str, list[dict[str, str]]]) -> None:
    """Writes the new text, but only if it says exactly what was meant: an unusual layout must not change trust."""
    try:
        result = Tables(home.trust_file, text.encode(), KINDS)
        right = all(result.of(kind) == expected[kind] for kind in KINDS)
    except TableError:
        right = False
    if not right:
        raise UsageError(
            "trust.toml is laid out in a way that cannot be edited by command; "
            f"edit {home.trust_file} by hand, nothing was changed."
        )
    # A linked trust.toml (kept among somebody's dot files) stays a link.
    write_whole(Path(os.path.realpath(home.trust_file)), text.encode())


def _quote(value: str) -> str:
    # JSON's escapes are TOML's; DEL alone must be escaped in TOML and is not in JSON.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
