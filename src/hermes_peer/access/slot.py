"""One running instance of an agent: a numbered folder, locked, with the instance's key.

Knows: locks, keys on disk, the pin that makes agents of one home trust each other. Refuses to know: what the
instance does. Called by: home.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import weakref
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

SLOTS_MAX = 1024


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
        _held.add(self)

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
_held: weakref.WeakSet[Slot] = weakref.WeakSet()


def _forget_in_child() -> None:
    for slot in list(_held):
        with contextlib.suppress(OSError):
            slot.release()


os.register_at_fork(after_in_child=_forget_in_child)


def take_slot(home: Home, name: str, key_file: Path | None, wanted: int | None = None) -> Slot:
    """The lowest free slot of this name; see `Home.slot`."""
    check_agent_name(name)
    folder = home.agents_dir / name
    make_dir(folder, "The agent's folder")
    # One at a time per name, so that "lowest" holds and a look by `occupied` is never taken for an instance.
    with locked(folder / ".lock"):
        for number in range(1, SLOTS_MAX + 1) if wanted is None else (wanted,):
            path = folder / str(number)
            make_dir(path, "The slot")
            lock = open_lock(path / "lock")
            try:
                if not try_lock(lock):
                    os.close(lock)
                    continue
                identity = _own_key(path / "key.pem") if key_file is None else _given_key(key_file)
                if not _is(path / "fingerprint", identity.hex.encode()):
                    write_whole(path / "fingerprint", identity.hex.encode() + b"\n")
                _leave_pin(home, identity.hex, name, number)
                return Slot(home, name, number, lock, identity)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.close(lock)
                raise
    if wanted is not None:
        raise UsageError(f"Slot {wanted} of {name} is taken by a running instance; ask that one, or stop it.")
    raise UsageError(f"{SLOTS_MAX} instances of {name} run already in {home.path}; stop some or use another home.")


def occupied(folder: Path, number: int) -> tuple[str, bool]:
    """(fingerprint or "", whether a process holds the slot `folder/number`)."""
    path = folder / str(number)
    held = False
    with locked(folder / ".lock"):
        if (path / "lock").exists():
            lock = open_lock(path / "lock")
            held = not try_lock(lock)
            os.close(lock)
    try:
        text = (path / "fingerprint").read_text("ascii").strip()
    except (OSError, ValueError):
        text = ""
    return text if len(text) == 64 else "", held


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
