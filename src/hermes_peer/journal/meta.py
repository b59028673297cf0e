"""Which history this is: the row hermes_meta in the database, and the high-water mark in a file beside it.

Knows: epoch, boot and tick counters, how a missing, older or copied database shows. Refuses to know: messages.
Called by: the opening; the SQLite store at its checkpoints.

The database counts `boot` at each opening and `tick` at each idle checkpoint, always before the mark repeats it. A
database that is behind its mark is therefore an older copy. (A snapshot of both together looks like the truth: only
peers can notice that.) The mark also names the inode, so that a copied folder is told from the folder (HPC-045).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hermes_peer.journal.schema import SCHEMA, digest8
from hermes_peer.journal.store import Connection
from hermes_peer.journal.values import Origin


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a database. `sound` is false if the row does not match its checksum."""

    fingerprint: bytes
    epoch: bytes
    boot: int = 0
    tick: int = 0
    clean: bool = False
    schema: int = SCHEMA
    sound: bool = True


class Mark(msgspec.Struct, frozen=True):
    """What the file beside the database says."""

    epoch: str
    boot: int
    tick: int
    inode: str


_COLUMNS = "schema,fingerprint,epoch,boot,tick,clean"
_decode = msgspec.json.Decoder(Mark).decode


def read_meta(db: Connection) -> Meta | None:
    """None if the table is not there."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name='hermes_meta'").fetchone() is None:
        return None
    row = db.execute(f"SELECT {_COLUMNS},sum FROM hermes_meta").fetchone()
    if row is None or row[-1] != digest8(*row[:-1]):
        return Meta(fingerprint=b"", epoch=b"", sound=False)
    schema, fingerprint, epoch, boot, tick, clean, _ = row
    return Meta(schema=schema, fingerprint=fingerprint, epoch=epoch, boot=boot, tick=tick, clean=bool(clean))


def write_meta(db: Connection, meta: Meta) -> None:
    row = (meta.schema, meta.fingerprint, meta.epoch, meta.boot, meta.tick, int(meta.clean))
    db.execute(
        f"INSERT OR REPLACE INTO hermes_meta (id,{_COLUMNS},sum) VALUES (1,?,?,?,?,?,?,?)", (*row, digest8(*row))
    )


def mark_path(path: Path) -> Path:
    return path.with_name(path.name + ".mark")


def read_mark(path: Path) -> Mark | None:
    """None if there is no mark that can be read."""
    try:
        return _decode(mark_path(path).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def write_mark(path: Path, meta: Meta) -> None:
    """Replaces the mark of the database `path` and waits for the disk. Raises OSError."""
    mark = Mark(meta.epoch.hex(), meta.boot, meta.tick, inode(path))
    target = mark_path(path)
    fresh = target.with_name(target.name + ".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(msgspec.json.encode(mark))
        file.flush()
        os.fsync(fd)
    os.replace(fresh, target)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def inode(path: Path) -> str:
    at = os.stat(path)
    return f"{at.st_dev}:{at.st_ino}"


def origin(path: Path, meta: Meta, mark: Mark | None) -> Origin:
    """How the database at `path` continues the history of its mark."""
    if mark is None:
        return Origin.OLDER if meta.boot else Origin.NEW
    if mark.epoch != meta.epoch.hex():
        return Origin.OLDER if meta.boot else Origin.DELETED
    if (meta.boot, meta.tick) < (mark.boot, mark.tick):
        return Origin.OLDER
    return Origin.SAME if mark.inode == inode(path) else Origin.COPIED


NOTICES = {
    Origin.DELETED: "The journal {path} was missing, so an empty one was begun: work that it held is lost, and work"
    " that peers send again may run a second time.",
    Origin.OLDER: "The journal {path} is older than the one last in use here (restored from a copy?): work done since"
    " then may run a second time. It goes on under a new epoch.",
    Origin.COPIED: "The journal {path} is a copy: if the original is in use too, both answer for one key. It goes on"
    " under a new epoch; if this is a second machine, give it a key of its own.",
    Origin.SALVAGED: "The journal {path} was damaged: what could be read went to a new one, under a new epoch, and the"
    " damaged file is kept as {kept}.",
}
