"""Who is trusted: pins and denials of trust.toml and trust.d, as one answer per key.

Knows: the newest good state of these files; a deny wins over all. Refuses to know: what a peer says of
itself. Called by: runtime (each handshake, each reload), agent (names to addresses), registry views, cli.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_peer.access.editing import add_pin, deny, remove, share_line
from hermes_peer.access.files import Stamp, stamp
from hermes_peer.access.pins import Deny, Pin, read_tables
from hermes_peer.access.tables import TableError
from hermes_peer.errors import UsageError
from hermes_peer.wire.address import Address

if TYPE_CHECKING:
    from hermes_peer.access.home import Home

Said = tuple[tuple[Pin, ...], tuple[Deny, ...]]

LOOKED_AT = 200  # files of trust.d that a patient look lists in a second, at the most
COMPARED = 20  # and compares, one by one: what a program replaces shows by its number, what a person edits does not
RECENT_NS = 100_000_000  # a folder that changed so lately may change once more without showing it

__all__ = ["Deny", "Grant", "Pin", "Trust", "add_pin", "deny", "remove", "share_line"]


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer for one key. `names` are what it may be called here; `home` if it is an agent of this home.

    `reason` is a sentence for our side; a stranger is told nothing but his own fingerprint. `source` is the file.
    """

    allowed: bool
    names: frozenset[str]
    reason: str
    source: str
    home: bool = False


class Trust:
    """The trust list of one home. A file that breaks while we run keeps its last good content, and `.problem` says
    so.

    At the start a broken trust.toml means nobody, since its denials are unknown; a broken file of trust.d is left
    out.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._main, self._rest = str(home.trust_file), str(home.trust_dir)
        self._good: dict[str, Said] = {}
        self._stamps: dict[str, Stamp | None] = {}
        self._broken: set[str] = set()  # read anew at each look, as somebody must hear of them
        self._folder: Stamp | None = None  # when nothing in it was about to change
        self._list_at = self._compare_at = 0.0
        self._pins: dict[str, list[Pin]] = {}
        self._names: dict[str, list[Pin]] = {}
        self._denied: dict[str, Deny] = {}
        self.problem: str | None = None
        """What is wrong with a file now, as a sentence with the line, or None."""
        self.reload_if_changed()

    def reload_if_changed(self, *, patient: bool = False) -> bool:
        """Reads what changed on disk (one stat per file). True if trust itself changed: then ask `grant` again.

        `patient` is for whoever asks all the time: among hundreds of agents of one home it takes some seconds to see
        the newest of them, and of a file that was edited in place. trust.toml is looked at always. A pin also ends by
        its date, without any change on disk.
        """
        now = time.monotonic()
        if patient and self.problem is None and self._unchanged(now):
            return False
        problems: list[str] = []
        stamps = self._look(now, now >= self._compare_at or not patient, problems)
        if stamps == self._stamps and not problems:
            return False
        good: dict[str, Said] = {}
        broken: set[str] = set()
        for path, version in stamps.items():
            if version is not None and version == self._stamps.get(path) and path not in self._broken:
                good[path] = self._good[path]
                continue
            try:
                good[path] = _read(path, version) if version else read_tables(Path(path))
            except (TableError, UsageError) as error:
                problems.append(str(error).rstrip("."))
                broken.add(path)
                if isinstance(error, UsageError):
                    stamps[path] = None  # it could not be read, so what it says is still to be seen
                if path in self._good:
                    good[path] = self._good[path]
        self._stamps, self._broken = stamps, broken
        kept = "the last good content stays in force" if self._main in good else "nobody is trusted"
        self.problem = f"{'; '.join(problems)}: repair it; until then {kept}." if problems else None
        before = (self._pins, self._denied)
        self._good = good
        self._index(list(good.values()) if self._main in good else [])
        return before != (self._pins, self._denied)

    def grant(self, fingerprint_hex: str, now: float) -> Grant:
        """What the key with this fingerprint (64 hex digits) may be; `now` in seconds since 1970. Never raises."""
        fingerprint = fingerprint_hex.lower()
        short = ascii(fingerprint[:16])[1:-1] + "…"
        if refused := self._denied.get(fingerprint):
            why = f" ({refused.reason})" if refused.reason else ""
            return _no(f"The key {short} is denied by {refused.source}{why}.", refused.source)
        pins = self._pins.get(fingerprint, [])
        if not pins:
            return _no(
                f"The key {short} is in no trust file; if you know it, run: "
                f"hermes-peer trust add {ascii(fingerprint[:64])[1:-1]} name=NAME",
                self._home.trust_file.name,
            )
        live = [pin for pin in pins if pin.not_after is None or now < pin.not_after]
        if not live:
            last = max(pins, key=lambda pin: pin.not_after or 0)
            return _no(
                f"The pin of {last.name} in {last.source} ended ({last.not_after_text}); "
                "give it a later not_after if you still trust the key.",
                last.source,
            )
        names = frozenset(pin.name for pin in live)
        at_home = next((pin for pin in live if _is_home(pin)), None)
        source = (at_home or live[0]).source
        return Grant(
            True,
            names,
            f"{source} pins {short} as {' and '.join(sorted(names))}.",
            source,
            at_home is not None,
        )

    def address(self, name: str) -> list[Address]:
        """Where pins say that agents of this name live, with their fingerprints, in the order of the files."""
        return [pin.at for pin in self._names.get(name, []) if pin.at and pin.fingerprint not in self._denied]

    def fingerprints(self, name: str) -> list[str]:
        """The keys (64 hex digits) that are pinned under this name and not denied."""
        found = [pin.fingerprint for pin in self._names.get(name, [])]
        return [each for each in dict.fromkeys(found) if each not in self._denied]

    def pins(self) -> list[Pin]:
        """All pins, those of trust.toml first."""
        return [pin for pins in self._pins.values() for pin in pins]

    def denials(self) -> list[Deny]:
        """All denials."""
        return list(self._denied.values())

    def _unchanged(self, now: float) -> bool:
        """As far as two looks can tell, or it is not yet time for more."""
        if stamp(self._main) != self._stamps[self._main]:
            return False
        if now < self._list_at:
            return True
        return self._folder is not None and now < self._compare_at and stamp(self._rest) == self._folder

    def _look(self, now: float, compare: bool, problems: list[str]) -> dict[str, Stamp | None]:
        """The version of each file. Without `compare`, one that is there under its name and number is the same."""
        before = stamp(self._rest)
        settled = before is not None and time.time_ns() - before[2] > RECENT_NS
        self._folder = before if settled else None
        stamps = {self._main: stamp(self._main)}
        try:
            with os.scandir(self._rest) as entries:
                found = sorted((each.path, each.inode()) for each in entries if _is_trust_file(each.name))
        except FileNotFoundError:
            found = []
        except OSError as error:  # out of descriptors, say: that takes nobody's trust away
            problems.append(f"{self._rest} cannot be listed ({error.strerror})")
            return stamps | {path: stamp(path) for path in self._stamps if path != self._main}
        for path, number in found:
            old = self._stamps.get(path)
            stamps[path] = old if old is not None and old[0] == number and not compare else stamp(path)
        self._list_at = now + len(found) / LOOKED_AT
        if compare:
            self._compare_at = now + len(found) / COMPARED
        return stamps

    def _index(self, parts: list[tuple[tuple[Pin, ...], tuple[Deny, ...]]]) -> None:
        pins: dict[str, list[Pin]] = {}
        names: dict[str, list[Pin]] = {}
        denied: dict[str, Deny] = {}
        for some, refused in parts:
            for pin in some:
                pins.setdefault(pin.fingerprint, []).append(pin)
                names.setdefault(pin.name, []).append(pin)
            for each in refused:
                denied.setdefault(each.fingerprint, each)
        self._pins, self._names, self._denied = pins, names, denied


def _is_trust_file(name: str) -> bool:
    # A leading dot is a file in the making, or an editor's.
    return name.endswith(".toml") and not name.startswith(".")


@lru_cache(maxsize=4096)
def _read(path: str, version: Stamp) -> Said:
    """Once for all agents of this process. Raises TableError, UsageError."""
    return read_tables(Path(path))


def _is_home(pin: Pin) -> bool:
    return pin.source.startswith("trust.d/")


def _no(reason: str, source: str) -> Grant:
    return Grant(False, frozenset(), reason, source)
