"""Opening: settings, modes, strange files, wrong keys."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.values import Limits, Origin

from .rig import KEY, a_sent, do, op, raw


def test_the_settings(make: Any) -> None:
    journal = make(limits=Limits(size=64 << 20, ballast=0))
    db = journal._writer._store.db
    found = {
        name: db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in (
            "journal_mode",
            "synchronous",
            "locking_mode",
            "wal_autocheckpoint",
            "mmap_size",
            "trusted_schema",
            "auto_vacuum",
            "max_page_count",
            "journal_size_limit",
        )
    }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "wal_autocheckpoint": 0,
        "mmap_size": 0,
        "trusted_schema": 0,
        "auto_vacuum": 2,
        "max_page_count": (64 << 20) // 4096,
        "journal_size_limit": 16 << 20,
    }


def test_files_are_for_the_owner_only(path: Path, make: Any) -> None:
    journal = make(limits=Limits(ballast=4096))
    do(journal, op.Submit(a_sent()))
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["journal", "journal-wal", "journal.ballast", "journal.lock", "journal.mark"]
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
    journal.close()
    os.chmod(path, 0o644)
    make().close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_key(path: Path, make: Any) -> None:
    make().close()
    with pytest.raises(JournalError, match=r"belongs to the key 6b6b6b.*, not to 787878"):
        make(key=b"x" * 32)
    assert make(key=KEY).origin is Origin.SAME, "and nothing was changed by the attempt"


def test_another_schema(path: Path, make: Any) -> None:
    from hermes_peer.journal.schema import digest8

    make().close()
    row = raw(path, "SELECT fingerprint,epoch,boot,tick,clean FROM hermes_meta")[0]
    raw(path, "UPDATE hermes_meta SET schema=9, sum=?", digest8(9, *row))
    with pytest.raises(JournalError, match="has schema 9, and this version of Hermes Peer knows 1"):
        make()


def test_a_database_of_somebody_else(path: Path, make: Any) -> None:
    raw(path, "CREATE TABLE t (x)")
    with pytest.raises(JournalError, match="not a journal of Hermes Peer"):
        make()
    assert raw(path, "SELECT name FROM sqlite_master") == [("t",)]


def test_a_symbolic_link_is_not_followed(path: Path, make: Any, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="cannot be opened"):
        make()
    assert not (tmp_path / "elsewhere").exists()


def test_a_failed_opening_leaves_no_lock(path: Path, make: Any) -> None:
    make().close()
    for _ in range(3):
        with pytest.raises(JournalError, match="belongs to"):
            make(key=b"x" * 32)


def test_a_place_without_a_write_ahead_log(path: Path, make: Any) -> None:
    class NoWal(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> Any:
            return super().execute("PRAGMA journal_mode" if sql == "PRAGMA journal_mode=WAL" else sql, *parameters)

    def connect(path: str) -> Any:
        return sqlite3.connect(path, factory=NoWal, isolation_level=None, check_same_thread=False)

    with pytest.raises(JournalError, match="journal_mode = delete"):
        make(connect=connect)


def test_only_an_unclean_one_is_checked(path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_peer.journal import opening

    checks: list[int] = []
    monkeypatch.setattr(opening, "check", lambda db: checks.append(1))
    make().close()
    make().close()
    assert checks == []
    crashed = (
        "from tests.journal.rig import *; import sys, os; from pathlib import Path;"
        " opened(Path(sys.argv[1])); os._exit(1)"
    )
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", crashed, str(path)])
    make().close()
    assert checks == [1]
