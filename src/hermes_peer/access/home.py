"""The home folder: one OS user's trust list, policy, registry and agents, made at first use.

Knows: where things lie and that only this user may write there. Refuses to know: what the files say.
Called by: the agent layer at start, the command line, trust and policy for their paths.

One OS user is one trust domain: whoever can write here can be any agent of this home.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from hermes_peer.access.files import check_dir, locked, make_dir, read_checked, write_whole
from hermes_peer.access.names import AGENT, shown
from hermes_peer.access.slot import Slot, occupied, take_slot
from hermes_peer.access.templates import POLICY, TRUST
from hermes_peer.errors import UsageError

SOCKET_PATH_MAX = 100


class Home:
    """One opened home. `.created` tells whether this call made it, so that the caller can tell the user."""

    def __init__(self, path: Path, *, created: bool = False) -> None:
        self.path = path
        self.created = created
        self.trust_file = path / "trust.toml"
        self.trust_dir = path / "trust.d"
        self.policy_file = path / "policy.toml"
        self.registry_dir = path / "registry"
        self.agents_dir = path / "agents"
        self.lock_file = path / "lock"

    @classmethod
    def open(cls, path: str | Path | None = None) -> Home:
        """Opens the home at `path`, else `$HERMES_PEER_HOME`, else the platform's data folder; makes it if new.

        Folders get mode 0700, files 0600. Raises UsageError if it cannot be made or if others can write to it.
        """
        home = cls(Path(os.path.abspath(Path(path).expanduser() if path else default_path())))
        make_dir(home.path, "The home")
        for folder in (home.trust_dir, home.registry_dir, home.agents_dir):
            make_dir(folder, "The folder")
        # trust.toml is written last: while it is missing, the home is not finished, whoever died making it.
        if not home.trust_file.exists():
            home.created = bool(home.restore())
        return home

    def restore(self) -> list[Path]:
        """Writes the first trust.toml and policy.toml where they are missing; returns what it wrote."""
        made = []
        with locked(self.lock_file):
            for file, text in ((self.policy_file, POLICY), (self.trust_file, TRUST)):
                if not os.path.lexists(file):
                    write_whole(file, text.encode())
                    made.append(file)
        return made

    @property
    def realm(self) -> bytes:
        """The 32-byte network secret of the handshake: from the file `realm` (64 hex digits), else zeros.

        Raises UsageError if the file exists and is not that, or if others can read it.
        """
        file = self.path / "realm"
        data = read_checked(file, "The network secret", secret=True)
        if data is None:
            return bytes(32)
        text = data.strip()
        try:
            if len(text) == 64:
                return bytes.fromhex(text.decode("ascii"))
        except ValueError:
            pass
        raise UsageError(
            f"The network secret {file} must be 64 hex digits and nothing else; copy it again from another "
            "agent of your network, or move it away to use none."
        )

    def slot(self, name: str, *, secret_key_path: str | Path | None = None, number: int | None = None) -> Slot:
        """Takes the lowest free slot `agents/NAME/N` (N from 1) for a running instance; see `Slot`.

        With `secret_key_path` the instance uses that PEM file; it must exist. Raises UsageError.
        """
        return take_slot(self, name, None if secret_key_path is None else Path(secret_key_path).expanduser(), number)

    def slots(self) -> list[tuple[str, int, str, bool]]:
        """Every slot as (name, number, fingerprint or "" if it has no key yet, whether an instance runs in it)."""
        found = []
        for folder in sorted(self.agents_dir.iterdir()):
            if AGENT.fullmatch(folder.name) is None or not folder.is_dir():
                continue
            numbers = sorted(int(sub.name) for sub in folder.iterdir() if sub.name.isascii() and sub.name.isdigit())
            found += [(folder.name, number, *occupied(folder, number)) for number in numbers]
        return found

    def socket_path(self, fingerprint: str) -> Path:
        """Where the agent with this key (64 hex digits) listens: short, in a folder of mode 0700 that is ours.

        Raises UsageError if somebody else planted the folder or the socket (attacks 68, 69).
        """
        name = f"{fingerprint[:16]}.sock"
        path = _runtime_dir(len(name) + 1) / name
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return path
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise UsageError(f"{shown(str(path))} is not a socket of yours; remove it and start again.")
        return path


def default_path() -> Path:
    """`$HERMES_PEER_HOME`, else the platform's data folder."""
    if chosen := os.environ.get("HERMES_PEER_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "hermes-peer"
    # The XDG specification: a relative path there is to be ignored.
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "hermes-peer"


def _runtime_dir(room: int) -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime) / "hermes-peer"
    # After su or in a cron job the variable may be absent, stale, or another user's folder.
    usable = os.path.isabs(runtime) and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.geteuid()
    if not usable or len(os.fsencode(folder)) + room > SOCKET_PATH_MAX:
        folder = Path(f"/tmp/hermes-peer-{os.geteuid()}")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise UsageError(
            f"The socket folder {folder} cannot be made ({error.strerror}); set XDG_RUNTIME_DIR to a folder of yours."
        ) from None
    try:
        check_dir(folder, "The socket folder", private=True)
    except UsageError as error:
        raise UsageError(f"{error} (XDG_RUNTIME_DIR chooses another place.)") from None
    return folder
