"""One running instance of an agent: a numbered folder, locked, with the instance's key.

Knows: locks, keys on disk, the pin that makes agents of one home trust each other, that a command may be a guest in
the slot of an agent that does not run. Refuses to know: what the instance does. Called by: home; the command line, as
a guest.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_peer.access.files import (
    locked,
    make_dir,
    open_lock,
    read_checked,
    try_lock,
    write_whole,
)
from hermes_peer.access.names import check_agent_name
from hermes_peer.errors import UsageError

if TYPE_CHECKING:
    from hermes_peer.access.home import Home
    from hermes_peer.crypto.keys import Identity

log = logging.getLogger("hermes_peer.access")
SLOTS_MAX = 1024
GUEST_S = 5.0  # how long an agent waits for its slot while a command is a guest in it
LOOK_S = 0.05


class SlotTaken(UsageError):
    """Somebody else has the one slot that was asked for."""


class Slot:
    """The place of one running instance. It is held until `release` or until the process ends, however it ends.

    `.name`, `.number` (from 1), `.path` (the folder, mode 0700), `.identity`, `.fingerprint` (64 hex digits).
    """

    def __init__(self, home: Home, name: str, number: int, lock: int, identity: Identity) -> None:
        self.home = home
        self.name = name
        self.number = number
        self.path = home.agents_dir / name / str(number)
        self.identity = identity
        self.fingerprint: str = identity.hex
        self._lock = lock
        _slots.add(self)

    @property
    def socket_path(self) -> Path:
        """Where this instance listens, at most 100 bytes. Makes the folder. Raises UsageError; see
        `Home.socket_path`.
        """
        return self.home.socket_path(self.fingerprint)

    @property
    def released(self) -> bool:
        """True after `release`, and in a forked child: only the parent holds the slot."""
        return self._lock < 0

    def release(self) -> None:
        """Frees the slot for the next instance; a second call does nothing. Key and pin stay."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


# A child made by fork without exec shares the lock and would keep it after our death: it closes its copy.
_slots: weakref.WeakSet[Slot] = weakref.WeakSet()


def _forget_in_child() -> None:
    for slot in list(_slots):
        with contextlib.suppress(OSError):
            slot.release()


os.register_at_fork(after_in_child=_forget_in_child)


def take_slot(home: Home, name: str, key_file: Path | None, wanted: int | None = None) -> Slot:
    """The lowest free slot of this name; see `Home.slot`.

    A slot that only a guest has is waited for, at most GUEST_S, as the next one has another key and none of its works.
    """
    check_agent_name(name)
    make_dir(home.agents_dir / name, "The agent's folder")
    until = None
    while True:
        found = _take(home, name, key_file, wanted, wait=until is None or time.monotonic() < until)
        if isinstance(found, Slot):
            return found
        if until is None:
            log.warning("%s; it is waited for, %g s at most", found, GUEST_S)
            until = time.monotonic() + GUEST_S
        time.sleep(LOOK_S)


def _take(home: Home, name: str, key_file: Path | None, wanted: int | None, *, wait: bool) -> Slot | str:
    """The lowest free slot; with `wait`, a sentence instead if a guest has a lower one."""
    folder = home.agents_dir / name
    passed = ""
    # One at a time per name, so that "lowest" holds and a look by `occupied` is never taken for an instance.
    with locked(folder / ".lock"):
        for number in range(1, SLOTS_MAX + 1) if wanted is None else (wanted,):
            path = folder / str(number)
            make_dir(path, "The slot")
            if process := _guest(path):
                passed = passed or f"{name}/{number} is in use by a command of yours (process {process})"
                if wait:
                    return passed
                continue
            lock = open_lock(path / "lock")
            try:
                if not try_lock(lock):
                    os.close(lock)
                    continue
                _sign(lock)
                identity = _own_key(path / "key.pem") if key_file is None else _given_key(key_file)
                if not _is(path / "fingerprint", identity.hex.encode()):
                    write_whole(path / "fingerprint", identity.hex.encode() + b"\n")
                _leave_pin(home, identity.hex, name, number)
                if passed:
                    log.warning("%s, so this is %s/%d, which knows nothing of its works", passed, name, number)
                return Slot(home, name, number, lock, identity)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.close(lock)
                raise
    if passed:
        raise SlotTaken(f"{passed}; wait for its end, or end it.")
    if wanted is not None:
        raise SlotTaken(f"Slot {wanted} of {name} is taken by a running instance; ask that one, or stop it.")
    raise UsageError(f"{SLOTS_MAX} instances of {name} run already in {home.path}; stop some or use another home.")


@contextlib.contextmanager
def guest(path: Path) -> Iterator[None]:
    """This process may take the slot `path`, in its agent's place, and that agent waits meanwhile. Raises SlotTaken.

    The mark is a file with a lock: it counts until the end of this process, however that ends.
    """
    agent = path.parent.name
    with locked(path.parent / ".lock"):
        if process := _guest(path):
            raise SlotTaken(f"{agent}/{path.name} is in use by another command of yours (process {process}).")
        if _held(path / "lock"):
            raise SlotTaken(f"{agent}/{path.name} runs since a moment ago; ask that one.")
        mark = open_lock(path / "guest")
        try_lock(mark)
        _sign(mark)
        _rooms.add(path)
    try:
        yield
    finally:
        with locked(path.parent / ".lock"):  # so that nobody locks the file that is just taken away
            _rooms.discard(path)
            (path / "guest").unlink(missing_ok=True)
            os.close(mark)


def guest_in(path: Path) -> int:
    """The process of the guest in the slot `path`; 0 if there is none, or if it is this one."""
    with locked(path.parent / ".lock"):
        return _guest(path)


def holder_of(path: Path) -> int:
    """The process that took the slot `path` last; 0 if it cannot be told."""
    try:
        return int((path / "lock").read_text("ascii"))
    except (OSError, ValueError):
        return 0


def occupied(folder: Path, number: int) -> tuple[str, bool]:
    """(fingerprint or "", whether a process holds the slot `folder/number`)."""
    path = folder / str(number)
    with locked(folder / ".lock"):
        held = _held(path / "lock")
    try:
        text = (path / "fingerprint").read_text("ascii").strip()
    except (OSError, ValueError):
        text = ""
    return text if len(text) == 64 else "", held


_rooms: set[Path] = set()  # the slots in which this process is a guest


def _guest(path: Path) -> int:
    mark = path / "guest"
    if path in _rooms or not _held(mark):
        return 0
    try:
        return int(mark.read_text("ascii"))
    except (OSError, ValueError):
        return -1


def _held(path: Path) -> bool:
    """Whether a process has the lock of this file. The caller holds the lock of the name."""
    if not path.exists():
        return False
    lock = open_lock(path)
    held = not try_lock(lock)
    os.close(lock)
    return held


def _sign(lock: int) -> None:
    """Who has it, for whoever is told to wait."""
    with contextlib.suppress(OSError):  # on a full disk it is held all the same
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)


def _own_key(path: Path) -> Identity:
    from hermes_peer.crypto.keys import Identity

    data = read_checked(path, "The key", secret=True)
    if data is None:
        identity = Identity.generate(os.urandom)
        write_whole(path, identity.pem())
        return identity
    return _parse(data, path, f"or move it away to get a new one: mv {shlex.quote(str(path))} /tmp/")


def _given_key(path: Path) -> Identity:
    data = read_checked(path, "The key", secret=True)
    if data is None:
        raise UsageError(f"There is no key {path}; leave secret_key_path= out and the agent makes its own.")
    return _parse(data, path, "or leave secret_key_path= out and the agent makes its own.")


def _parse(data: bytes, path: Path, otherwise: str) -> Identity:
    from hermes_peer.crypto.keys import Identity, check_public

    try:
        identity = Identity.from_pem(data)
        check_public(identity.public)
        return identity
    except Exception as error:  # whatever the key reader finds, the user can only replace the file
        reason = str(error).rstrip(".") or type(error).__name__
        raise UsageError(f"The key {path} is unusable ({reason}); put a good copy back, {otherwise}") from None


def _is(path: Path, text: bytes) -> bool:
    try:
        return path.read_bytes().strip() == text
    except OSError:
        return False


def _leave_pin(home: Home, fingerprint: str, name: str, number: int) -> None:
    """trust.d/FP.toml: how the other agents of this home know this key. It stays, as the key stays."""
    from hermes_peer.access.pins import read_tables

    path = home.trust_dir / f"{fingerprint}.toml"
    with locked(home.lock_file):
        old: dict[str, int] = {}
        with contextlib.suppress(UsageError, ValueError):  # a broken pin of our own is simply written anew
            old = {pin.name: pin.slot for pin in read_tables(path)[0] if pin.fingerprint == fingerprint}
        # One key may serve two names (secret_key_path=): a second name is added, none is taken away.
        if old.get(name) == number:
            return
        tables = [
            f'[[pin]]\nfingerprint = "{fingerprint}"\nname = "{each}"\nslot = {at}\n'
            for each, at in sorted({**old, name: number}.items())
        ]
        write_whole(path, ("# Left by an agent of this home.\n" + "\n".join(tables)).encode())
