"""The tokens of the plain door: who is called what, by the hash of a secret that was shown once.

Knows: tokens.toml. Refuses to know: requests, and what a name may do (policy.toml: "door:NAME").
Called by: the doors, `hermes-peer token`. A token has 256 random bits, so that one SHA-256 is hash enough.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_peer.access.files import Stamp, locked, read_checked, stamp, write_whole
from hermes_peer.access.names import check_agent_name, shown
from hermes_peer.access.tables import TableError, Tables
from hermes_peer.errors import UsageError

if TYPE_CHECKING:
    from hermes_peer.access.home import Home

FILE = "tokens.toml"
PREFIX = "hp_"
SHAPE = re.compile(r"hp_[A-Za-z0-9_-]{43}")
KINDS = {"token": frozenset({"name", "sha256", "made"})}
RESERVED = frozenset({"loopback", "uid"})
_HEX64 = re.compile(r"[0-9a-f]{64}")
_HEAD = """\
# Tokens of the plain door. Made and taken away by: hermes-peer token add NAME | list | revoke NAME
# Only hashes are here; a token itself was shown once, when it was made.
"""


@dataclass(frozen=True, slots=True)
class Token:
    """One entry; `made` is a date (UTC), for people."""

    name: str
    sha256: str
    made: str


class Tokens:
    """The tokens of one home, read again when the file changes. A broken file lets nobody in; `.problem` says so."""

    def __init__(self, home: Home) -> None:
        self._file = home.path / FILE
        self._stamp: Stamp | None = None
        self._read = False
        self._names: dict[str, str] = {}
        self.problem: str | None = None

    def name_of(self, token: str) -> str | None:
        """Whose token this is; None for one that is not known. Costs a stat and a hash."""
        self._reload()
        if SHAPE.fullmatch(token) is None:
            return None
        return self._names.get(_hash(token))

    def __len__(self) -> int:
        self._reload()
        return len(self._names)

    def _reload(self) -> None:
        now = stamp(self._file)
        if self._read and now == self._stamp:
            return
        self._stamp, self._read, self._names, self.problem = now, True, {}, None
        try:
            self._names = {each.sha256: each.name for each in _parse(self._file)}
        except UsageError as error:
            self.problem = f"{str(error).rstrip('.')}: repair it; until then no token is good."


def tokens(home: Home) -> list[Token]:
    """What the file has, in its order. Raises UsageError."""
    return _parse(home.path / FILE)


def add_token(home: Home, name: str, now: float) -> str:
    """Make a token for `name` and return it: it is nowhere else. Raises UsageError for a name that is taken or bad."""
    import secrets

    check_agent_name(name)
    if name in RESERVED:
        raise UsageError(f"{shown(name)} cannot be a token's name: door:{name} means something else; choose another.")
    token = PREFIX + secrets.token_urlsafe(32)
    with locked(home.lock_file):
        have = tokens(home)
        if any(each.name == name for each in have):
            raise UsageError(f"There is a token named {name} already; run first: hermes-peer token revoke {name}")
        made = datetime.fromtimestamp(now, UTC).date().isoformat()
        _write(home, [*have, Token(name, _hash(token), made)])
    return token


def revoke_token(home: Home, name: str) -> bool:
    """Take a token away; False if there is none of that name. Doors see it with the next request. Raises UsageError."""
    with locked(home.lock_file):
        have = tokens(home)
        left = [each for each in have if each.name != name]
        if len(left) == len(have):
            return False
        _write(home, left)
    return True


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _parse(path: Path) -> list[Token]:
    data = read_checked(path, "The token file", secret=True)
    if data is None:
        return []
    found: list[Token] = []
    try:
        tables = Tables(path, data, KINDS)
        for index, table in enumerate(tables.of("token")):
            name, sha, made = (table.get(word, "") for word in ("name", "sha256", "made"))
            if not (isinstance(name, str) and isinstance(sha, str) and _HEX64.fullmatch(sha)):
                raise tables.error("token", index, "a token has a name and, in sha256, 64 hex digits")
            check_agent_name(name)
            if name in RESERVED or any(each.name == name or each.sha256 == sha for each in found):
                raise tables.error("token", index, f"{shown(name)} cannot be used here, or stands twice")
            found.append(Token(name, sha, str(made)))
    except TableError as error:
        raise UsageError(f"{error}: repair {path}.") from None
    return found


def _write(home: Home, entries: list[Token]) -> None:
    parts = [f'\n[[token]]\nname = "{e.name}"\nsha256 = "{e.sha256}"\nmade = "{e.made}"\n' for e in entries]
    write_whole(home.path / FILE, (_HEAD + "".join(parts)).encode())
