"""A damaged file: what can be read goes on, the damaged file is kept, and somebody is told (attack 73)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.journal.opening import beside
from hermes_peer.journal.values import Origin

from .rig import ONE, a_sent, a_taken, do, op


@pytest.fixture
def whole(path: Path, make: Any) -> bytes:
    """A journal of some pages: rows of both sides, items, a handler's own table."""
    journal = make()
    for i in range(40):
        do(
            journal,
            op.Submit(a_sent(f"m-{i}", payload=b"%d" % i * 300)),
            op.Take(a_taken(f"m-{i}", payload=b"%d" % i * 300)),
        )
    do(journal, op.Run(ONE, "m-7"), op.Append(ONE, "m-7", 0, (b"a", b"b")))
    journal.transaction(lambda sql: sql.execute("CREATE TABLE effects (id TEXT)")).result(5)
    journal.transaction(
        lambda sql: [sql.execute("INSERT INTO effects VALUES (?)", (str(i),)) for i in range(9)]
    ).result(5)
    journal.close()
    return path.read_bytes()


def look(journal: Any) -> tuple[int, int]:
    """How many rows came through; each must be what was stored."""
    sent, taken = journal.find_sent().result(5), journal.find_taken().result(5)
    for row in [*sent, *taken]:
        assert row.payload == row.message_id[2:].encode() * 300
    return len(sent), len(taken)


def test_every_page_in_turn(path: Path, make: Any, whole: bytes) -> None:
    pages = len(whole) // 4096
    assert pages > 12
    salvaged = times = 0
    for page in range(pages):
        damaged = bytearray(whole)
        damaged[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
        for each in path.parent.iterdir():
            if each.name != "journal.mark":
                each.unlink()
        path.write_bytes(damaged)
        journal = make()
        sent, taken = look(journal)
        if page == 0:
            assert (sent, taken) == (0, 0)  # not even the list of tables is left
        elif journal.origin is Origin.SALVAGED:
            assert max(sent, taken) == 40, f"page {page}: {sent} + {taken} rows"
            salvaged += sent + taken
            times += 1
            assert beside(path, "damaged-1").exists() and "damaged-1" in journal.notice
        if (sent, taken) != (40, 40):
            assert journal.notice
        first = journal.commit(op.Take(a_taken("new"))).exception(5)
        journal.close()
        if first is not None:  # a clean journal is not checked as a whole: it stops where it meets the damage
            assert "malformed" in str(first) and "Restart" in str(first)
            journal = make()
            assert journal.origin is Origin.SALVAGED and max(look(journal)) == 40
            do(journal, op.Take(a_taken("new")))
            journal.close()
    assert times > 8 and salvaged > 70 * times, (times, salvaged)  # the worst is the root of one table: half is lost


def test_a_truncated_file(path: Path, make: Any, whole: bytes) -> None:
    for keep in (0.9, 0.5, 0.2):
        for each in path.parent.iterdir():
            if each.name != "journal.mark":
                each.unlink()
        path.write_bytes(whole[: int(len(whole) * keep)])
        journal = make()
        assert journal.origin is Origin.SALVAGED and journal.notice
        look(journal)
        do(journal, op.Take(a_taken("new")))
        journal.close()


def test_only_an_index_is_damaged(path: Path, make: Any, whole: bytes) -> None:
    """All rows, items and the handler's own table come through."""
    db = make()._writer._store.db
    root = db.execute("SELECT rootpage FROM sqlite_master WHERE name='hermes_sent_keep'").fetchone()[0]
    damaged = bytearray(whole)
    damaged[(root - 1) * 4096 : root * 4096] = b"\xa5" * 4096
    target = path.parent / "other" / "journal"
    target.parent.mkdir()
    target.write_bytes(damaged)
    from .rig import raw

    raw(target, "UPDATE hermes_meta SET clean=0")  # touches no damaged page; its sum is wrong now
    journal = make(target)
    assert journal.origin is Origin.SALVAGED and look(journal) == (40, 40)
    assert journal.items(ONE, "m-7", 0).result(5).items == (b"a", b"b")
    assert journal.transaction(lambda sql: sql.execute("SELECT count(*) FROM effects")).result(5) == [(9,)]


def test_junk_instead_of_a_database(path: Path, make: Any) -> None:
    path.write_bytes(b"junk" * 5000)
    journal = make()
    assert journal.origin is Origin.SALVAGED and journal.find_sent().result(5) == []
    assert beside(path, "damaged-1").read_bytes() == b"junk" * 5000


def test_a_crash_in_the_middle_of_a_salvage(
    path: Path, make: Any, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_peer.journal import opening

    path.write_bytes(whole[: len(whole) * 9 // 10])
    for name in ("salvage", "keep_damaged"):
        monkeypatch.setattr(opening, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            make()
        monkeypatch.undo()
    real = opening.keep_damaged

    def moved_and_gone(path: Path) -> str:
        real(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "keep_damaged", moved_and_gone)
    with pytest.raises(KeyboardInterrupt):
        make()
    monkeypatch.undo()
    assert not path.exists()
    journal = make()
    assert sum(look(journal)) > 40 and journal.notice, "the new file was complete, and takes its place"


@pytest.mark.parametrize("sql", ["x'00ff'", "17", "'CREATE TABLE effects (id TEXT)' || char(0)"])
def test_a_schema_that_holds_no_sql_keeps_the_rows(path: Path, make: Any, whole: bytes, sql: str) -> None:
    from .rig import raw

    path.write_bytes(whole)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE hermes_meta SET clean=0")
    db.execute("PRAGMA writable_schema=ON")
    db.execute(f"UPDATE sqlite_master SET sql={sql} WHERE name='effects'")
    db.close()
    journal = make()
    assert journal.origin is Origin.SALVAGED and look(journal) == (40, 40)
    do(journal, op.Take(a_taken("new")))
    journal.close()
    assert raw(path, "SELECT count(*) FROM hermes_taken") == [(41,)]
