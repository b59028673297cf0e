"""Opening a journal's file: lock, settings, identity, checks.

Knows: SQLite's settings, the order of the checks, what a damaged or strange file means. Refuses to know: operations.
Called by: the SQLite store, once.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from hermes_peer.errors import JournalError
from hermes_peer.journal import meta as identity
from hermes_peer.journal import schema
from hermes_peer.journal.aside import find_damaged, gone, put_aside
from hermes_peer.journal.lock import Lock
from hermes_peer.journal.meta import Meta
from hermes_peer.journal.room import PAGE
from hermes_peer.journal.salvage import salvage
from hermes_peer.journal.store import Connection
from hermes_peer.journal.values import Limits, Origin

Connect = Callable[[str], Connection]
CORRUPT, CONSTRAINT, NOT_A_DATABASE = 11, 19, 26
WAL_LIMIT = 16 << 20


def _text(data: bytes) -> str:
    """Our own columns hold no text, but a flipped bit can turn one into text: that must not be an error of SQLite."""
    return data.decode(errors="surrogateescape")


def connect(path: str) -> Connection:
    """The connection of the standard library, in autocommit mode."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    db.text_factory = _text
    return cast(Connection, db)


class Opened:
    """An open, checked, locked journal file. `kept` is the name of the damaged one if there was one."""

    def __init__(
        self, path: Path, fingerprint: bytes, entropy: Callable[[int], bytes], limits: Limits, to: Connect
    ) -> None:
        if sqlite3.sqlite_version_info < (3, 37):
            raise JournalError(f"The journal needs SQLite 3.37 or newer; this Python has {sqlite3.sqlite_version}.")
        self.path, self.kept, self.damaged = path, "", 0
        self._limits, self._connect, self._entropy = limits, to, entropy
        self.lock = Lock(path)
        try:
            self._open(fingerprint)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise JournalError(f"The journal {path} cannot be opened: {error}.") from error
            raise

    def _open(self, fingerprint: bytes) -> None:
        self._finish_salvage()
        mark = identity.read_mark(self.path)
        self.db, meta = self._sound(fingerprint)
        if self.kept:
            self.origin = Origin.SALVAGED
        else:
            self.origin = identity.origin(self.path, meta, mark)
        if self.origin is Origin.NEW:
            identity.write_mark(self.path, meta)  # before the first boot: a crash must not look like a lost mark
        elif self.origin is not Origin.SAME:
            meta = replace(meta, epoch=self._entropy(8))
        boot = max(meta.boot, mark.boot if mark else 0) + 1
        self.meta = replace(meta, boot=boot, clean=False)
        self.notice = identity.NOTICES.get(self.origin, "").format(path=self.path, kept=self.kept)
        if self.damaged:
            sentence = f"{self.damaged} damaged rows of the journal {self.path} were set aside and will not run."
            self.notice = f"{self.notice} {sentence}".strip()
        self.db.execute("BEGIN IMMEDIATE")
        identity.write_meta(self.db, self.meta)
        self.db.execute("COMMIT")
        identity.write_mark(self.path, self.meta)

    def _sound(self, fingerprint: bytes) -> tuple[Connection, Meta]:
        """A connection to a database whose structure is sound: this one, or what was saved of it."""
        try:
            self.db = connection = settled(self._connect, self.path, self._limits)
            meta = self._identity(fingerprint)
            if not meta.sound:
                raise Unsound("its first row is damaged")
            if not meta.clean and meta.boot:
                check(connection)
            gone(connection)
            damaged = find_damaged(connection, all_rows=not meta.clean)
            if damaged:
                connection.execute("BEGIN IMMEDIATE")
                for each in damaged:
                    put_aside(connection, each)
                connection.execute("COMMIT")
                self.damaged = len(damaged)
            return connection, meta
        except (Unsound, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and code(error) not in (CORRUPT, NOT_A_DATABASE, CONSTRAINT):
                raise
        self._close()
        return self._saved(fingerprint)

    def _identity(self, fingerprint: bytes) -> Meta:
        meta = identity.read_meta(self.db)
        if meta is None:
            meta = create(self.db, fingerprint, self._entropy(8))
            identity.sync_folder(self.path.parent)
        if meta.sound and meta.schema != schema.SCHEMA:
            raise JournalError(
                f"The journal {self.path} has schema {meta.schema}, and this version of Hermes Peer knows"
                f" {schema.SCHEMA}: use the version that wrote it, or move the file away."
            )
        if meta.sound and meta.fingerprint != fingerprint:
            raise JournalError(
                f"The journal {self.path} belongs to the key {meta.fingerprint.hex()[:16]}…, not to"
                f" {fingerprint.hex()[:16]}…: use the key that made it, or move the file away."
            )
        return meta

    def _saved(self, fingerprint: bytes) -> tuple[Connection, Meta]:
        """What can be read, in a new file that takes the place of the damaged one once it is complete."""
        fresh, whole = beside(self.path, "salvaging"), beside(self.path, "salvaged")
        for rest in ("", "-wal", "-shm"):
            Path(f"{fresh}{rest}").unlink(missing_ok=True)
        new = settled(self._connect, fresh, self._limits)
        try:
            meta = create(new, fingerprint, self._entropy(8))
            salvage(self._connect(str(self.path)), new)
            new.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            new.close()
        os.replace(fresh, whole)
        self.kept = keep_damaged(self.path)
        self._finish_salvage()
        self.db = settled(self._connect, self.path, self._limits)
        return self.db, meta

    def _finish_salvage(self) -> None:
        """Also after a crash between the two renamings."""
        whole = beside(self.path, "salvaged")
        if whole.exists():
            if self.path.exists():
                whole.unlink()
            else:
                os.replace(whole, self.path)
            identity.sync_folder(self.path.parent)

    def close(self) -> None:
        """The store could not be made after all."""
        self._close()
        self.lock.release()

    def _close(self) -> None:
        db = self.__dict__.pop("db", None)
        if db is not None:
            try:
                db.close()
            except sqlite3.Error:
                pass


class Unsound(Exception):
    """The structure of the database is damaged."""


def beside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.name}.{word}")


def keep_damaged(path: Path) -> str:
    """Moves the file and its log out of the way; answers its new name."""
    number = 1
    while (kept := beside(path, f"damaged-{number}")).exists():
        number += 1
    os.replace(path, kept)
    for rest in ("-wal", "-shm"):
        if os.path.exists(f"{path}{rest}"):
            os.replace(f"{path}{rest}", f"{kept}{rest}")
    return kept.name


def code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def settled(to: Connect, path: Path, limits: Limits) -> Connection:
    """A connection with the settings of protocol, section 6. Makes the file, with mode 0600."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(fd).st_mode & 0o077:
        os.fchmod(fd, 0o600)
    os.close(fd)
    db = to(str(path))
    try:
        for pragma in (
            f"page_size={PAGE}",
            "locking_mode=EXCLUSIVE",
            "auto_vacuum=INCREMENTAL",
            "journal_mode=WAL",
            "synchronous=FULL",
            "wal_autocheckpoint=0",
            f"journal_size_limit={WAL_LIMIT}",
            "mmap_size=0",
            "trusted_schema=OFF",
            "cell_size_check=ON",
            "cache_size=-8192",
            f"max_page_count={max(limits.size // PAGE, 64)}",
            *(("fullfsync=1", "checkpoint_fullfsync=1") if sys.platform == "darwin" else ()),
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2)):
            if (found := db.execute(f"PRAGMA {pragma}").fetchone()[0]) != value:
                raise JournalError(f"The journal {path} cannot be kept there: SQLite gives {pragma} = {found}.")
    except BaseException:
        db.close()
        raise
    return db


def create(db: Connection, fingerprint: bytes, epoch: bytes) -> Meta:
    """The tables of a new journal, in one commit."""
    if db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise JournalError("The file is a database, but not a journal of Hermes Peer.")
    meta = Meta(fingerprint=fingerprint, epoch=epoch)
    db.execute("BEGIN IMMEDIATE")
    for statement in schema.TABLES.split(";"):
        if statement.strip():
            db.execute(statement)
    db.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
    identity.write_meta(db, meta)
    db.execute("COMMIT")
    return meta


def check(db: Connection) -> None:
    """After a crash: SQLite's own check of the structure. Raises Unsound."""
    found = db.execute("PRAGMA quick_check(1)").fetchone()
    if found[0] != "ok":
        raise Unsound(found[0])
