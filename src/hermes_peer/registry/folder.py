"""The registry of one machine: a folder, one file per key.

Knows: atomic renames, and which files in the folder are ours. Refuses to know: whether a record is true;
names and tags are read only to sort out what was not asked for. Called by: the agent layer, as the home's
registry.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import NamedTuple

import msgspec

from hermes_peer.errors import UsageError
from hermes_peer.registry.record import BLOB_MAX

SUFFIX = ".record"
_NAME = re.compile(r"[0-9a-f]{64}\.record")


class _Label(msgspec.Struct):
    agent_id: str
    capabilities: list[str]


class _Kept(NamedTuple):
    stamp: tuple[int, int, int]
    blob: bytes
    label: _Label | None


_label = msgspec.json.Decoder(_Label)


class FolderRegistry:
    """A `Registry` in the folder `path` (made with mode 0700 if absent). Files are FINGERPRINT.record; others are
    ignored.

    Unchanged files are not read twice: a look-up costs one stat per record.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._kept: dict[str, _Kept] = {}

    def announce(self, blob: bytes, fingerprint: str) -> None:
        """See `Registry.announce`. Made anew even if the whole folder was lost (case HPC-070)."""
        target = self._file(fingerprint)
        if len(blob) > BLOB_MAX:
            raise UsageError("The registry record is larger than 64 KiB; announce fewer methods or capabilities.")
        os.makedirs(self.path, 0o700, exist_ok=True)
        fresh = self.path / f".{fingerprint}.{os.getpid()}.{threading.get_ident()}"
        try:
            fresh.unlink(missing_ok=True)
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(blob)
                file.flush()
                os.fsync(fd)
            os.replace(fresh, target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def withdraw(self, fingerprint: str) -> None:
        """See `Registry.withdraw`."""
        self._file(fingerprint).unlink(missing_ok=True)

    def find(self, name: str | None = None, capability: str | None = None) -> list[bytes]:
        """See `Registry.find`. A folder that does not exist holds nothing."""
        kept: dict[str, _Kept] = {}
        try:
            entries = list(os.scandir(self.path))
        except FileNotFoundError:
            entries = []
        for entry in sorted(entries, key=lambda each: each.name):
            if _NAME.fullmatch(entry.name) and (found := self._look(entry)):
                kept[entry.name] = found
        self._kept = kept
        return [
            each.blob
            for each in kept.values()
            if each.label
            and (name is None or each.label.agent_id == name)
            and (capability is None or capability in each.label.capabilities)
        ]

    def _file(self, fingerprint: str) -> Path:
        # The file is named by hex digits only, never by anything that a peer may choose freely (attack 53).
        if not isinstance(fingerprint, str) or _NAME.fullmatch(fingerprint + SUFFIX) is None:
            raise UsageError("A record is filed under a fingerprint of 64 lower-case hex digits.")
        return self.path / (fingerprint + SUFFIX)

    def _look(self, entry: os.DirEntry[str]) -> _Kept | None:
        try:
            found = entry.stat(follow_symlinks=False)
            if not entry.is_file(follow_symlinks=False) or found.st_size > BLOB_MAX:
                return None
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            old = self._kept.get(entry.name)
            if old and old.stamp == stamp:
                return old
            blob = Path(entry.path).read_bytes()
        except OSError:  # withdrawn while we looked, or not ours to read
            return None
        try:
            label = _label.decode(blob.partition(b"\n")[0])
        except (ValueError, RecursionError):
            label = None
        return _Kept(stamp, blob, label)
