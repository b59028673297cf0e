"""One process per journal.

Knows: flock and a pid. Refuses to know: what is locked. Called by: the opening and the closing of the SQLite store.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hermes_peer.errors import JournalError


class Lock:
    """Holds `path`.lock until `release`, or until the process is gone. Raises JournalError if another holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalError(f"The journal {path} cannot be opened: {error.strerror}.") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 20, 0).decode(errors="replace").strip()
            os.close(self._fd)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise JournalError(f"The journal {path} is in use by {who}; a journal serves one process.") from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """The file stays: removing it would let two hold it."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
