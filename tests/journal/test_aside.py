"""A row with any wrong column is set aside at opening; the rest runs (attack 73)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.journal.schema import SENT, TAKEN, Side
from hermes_peer.journal.values import Kind, Origin

from .rig import ONE, a_sent, a_taken, do, flipped, op, raw

COLUMNS = [(side, column) for side in (SENT, TAKEN) for column in side.whole.split(",")]


@pytest.mark.parametrize(("side", "column"), COLUMNS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_each_column_of_one_row(side: Side, column: str, path: Path, make: Any) -> None:
    journal = make()
    for id in ("m-1", "m-2", "m-3"):
        do(journal, op.Submit(a_sent(id)), op.Take(a_taken(id, idempotency_key=id)))
    journal.close()
    value = raw(path, f"SELECT {column} FROM {side.table} ORDER BY seq LIMIT 1")[0][0]
    raw(path, f"UPDATE {side.table} SET {column}=? WHERE message_id=?", flipped(value, 6), b"m-1")
    again = make()
    rows = again.find_sent().result(5) if side is SENT else again.find_taken().result(5)
    other = again.find_taken().result(5) if side is SENT else again.find_sent().result(5)
    assert len(rows) == 2 and len(other) == 3
    assert [each.side for each in again.set_aside().result(5)] == [side.name]
    assert again.gauges().set_aside == 1
    if column != "state":
        assert "1 damaged rows" in again.notice
    db = again._writer._store.db
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok", "the indexes do not dangle"


def test_bits_flipped_in_the_file(path: Path, make: Any, tmp_path: Path) -> None:
    """Every seventh bit of one row as it lies in the file. Whatever happens: it opens, no row is ever answered that was
    not stored, and the other rows are all there. HERMES_FLIPS=1 flips every bit.
    """
    journal = make()
    rows = [a_taken(f"m-{i}", payload=b"payload-%d" % i * 4) for i in range(5)]
    for row in rows:
        do(journal, op.Take(row), op.Run(ONE, row.message_id))
    stored = {row.message_id: row for row in journal.find_taken().result(5)}
    journal.close()
    whole = path.read_bytes()
    mark = Path(f"{path}.mark").read_bytes()
    end = whole.index(rows[2].payload) + len(rows[2].payload)
    start = whole.rindex(ONE, 0, end) - 14  # with the header of the record
    folder = Path("/dev/shm") / f"flips-{os.getpid()}" if os.access("/dev/shm", os.W_OK) else tmp_path / "flips"
    target = folder / "journal"
    quiet = loud = 0
    for bit in range(start * 8, end * 8, int(os.environ.get("HERMES_FLIPS", "7"))):
        folder.mkdir()
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        target.write_bytes(damaged)
        Path(f"{target}.mark").write_bytes(mark)
        again = make(target)
        found = {row.message_id: row for row in again.find_taken().result(5)}
        assert all(stored[id] == row for id, row in found.items()), f"bit {bit}"
        assert found.keys() >= stored.keys() - {"m-2"}, f"bit {bit}: {found.keys()}, {again.notice}"
        if "m-2" in found:
            quiet += 1  # a bit that says nothing
        else:
            loud += 1
            assert again.set_aside().result(5) or "damaged" in again.notice, f"bit {bit}"
            verdict = do(again, op.Take(rows[2]))[0]
            if again.origin is not Origin.SALVAGED:
                assert verdict.kind is Kind.REFUSED, f"bit {bit}: it would run a second time"
            checked = again._writer._store.db.execute("PRAGMA integrity_check").fetchone()[0]
            assert checked == "ok", f"bit {bit}: {checked}"
        again.close()
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
    assert loud > quiet * 10, (loud, quiet)
