"""Files that decide over trust: written whole or not at all, read only if nobody else could change them.

Knows: owners, mode bits, symlinks, fsync, flock. Refuses to know: what the files say.
Called by: home, slots, trust, policy.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_peer.errors import UsageError

FILE_MAX = 1 << 20

# (inode, size, mtime, ctime): an atomic rename changes the first, an edit in place one of the others.
Stamp = tuple[int, int, int, int]


def stamp(path: Path | str) -> Stamp | None:
    """What tells one version of a file from the next, or None if there is no file. One stat call."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def make_dir(path: Path, what: str) -> None:
    """Makes `path` with mode 0700 if absent; refuses a foreign owner and a folder that others can write to.

    Raises UsageError; `what` is its name in the sentence ("The home").
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be made ({error.strerror}); make it or choose another place.") from None
    check_dir(path, what, private=False)


def check_dir(path: Path, what: str, *, private: bool) -> None:
    """Refuses a folder that others could have filled (attack 69). `private`: nor may they read it, nor be it a link."""
    try:
        found = os.lstat(path) if private else os.stat(path)
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be used ({error.strerror}); move it away.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{what} {path} is not a folder; move it away.")
    # A folder of root is as safe as one of ours: root can read our memory anyway.
    if found.st_uid != os.geteuid() and (private or found.st_uid != 0):
        raise UsageError(
            f"{what} {path} belongs to user {found.st_uid}, not to you (user {os.geteuid()}); "
            "remove it or choose another place."
        )
    if found.st_mode & (0o077 if private else 0o022):
        raise UsageError(
            f"{what} {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); "
            f"run: chmod 700 {shlex.quote(str(path))}"
        )


def read_checked(path: Path, what: str, *, secret: bool) -> bytes | None:
    """The bytes of a file of ours, or None if it does not exist.

    `secret` files (keys) may be neither symlinks nor readable by others; the rest only must not be writable by
    others. At most 1 MiB. Raises UsageError with the command that cures it.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if secret else 0)
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(f"{what} {path} is a symbolic link to nowhere; put the file itself there.") from None
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise UsageError(f"{what} {path} is a symbolic link; put the file itself there.") from None
        raise UsageError(
            f"{what} {path} cannot be read ({error.strerror}); check who owns it with: ls -l {shlex.quote(str(path))}"
        ) from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{what} {path} is not a regular file; move it away.")
        if found.st_uid != os.geteuid() and (secret or found.st_uid != 0):
            raise UsageError(
                f"{what} {path} belongs to user {found.st_uid}, not to you (user {os.geteuid()}); "
                f"run: chown {os.geteuid()} {shlex.quote(str(path))}"
            )
        if found.st_mode & (0o077 if secret else 0o022):
            verb = "read" if secret else "change"
            raise UsageError(
                f"Other users can {verb} {what[0].lower() + what[1:]} {path} "
                f"(mode {stat.S_IMODE(found.st_mode):04o}); "
                f"run: chmod {'600' if secret else 'go-w'} {shlex.quote(str(path))}"
            )
        with open(fd, "rb", closefd=False) as file:
            data = file.read(FILE_MAX + 1)
    finally:
        os.close(fd)
    if len(data) > FILE_MAX:
        raise UsageError(f"{what} {path} is larger than 1 MiB; this cannot be right, move it away.")
    return data


def write_whole(path: Path, data: bytes) -> None:
    """Puts `data` at `path` with mode 0600: temporary file, fsync, rename, fsync of the folder (attack 70).

    A crash leaves the old file or the new one. The caller holds a lock, so one temporary name is enough, and what a
    killed writer left there is swept away. Raises UsageError if the disk refuses.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(fresh, path)
        sync_dir(path.parent)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); make room or check who owns it.") from None


def sync_dir(path: Path) -> None:
    """Makes a rename in this folder survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_lock(path: Path) -> int:
    """A file descriptor to flock. Close-on-exec, so that no child process keeps the lock. Raises UsageError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UsageError(f"The lock {path} cannot be opened ({error.strerror}); check who owns the folder.") from None


def try_lock(fd: int) -> bool:
    """Takes the exclusive flock if nobody has it. It ends with the process, however that ends."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the flock of `path` (made if absent) for a short change; waits for others who do the same."""
    fd = open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
