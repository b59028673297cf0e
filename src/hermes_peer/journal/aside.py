"""Rows whose checksum is wrong are set aside: kept for a human, never run and never answered.

Knows: where they go, and how all rows are looked at. Refuses to know: what else is damaged.
Called by: the opening (every row that may run; after a crash every row), the store (a row met in use).
"""

from __future__ import annotations

from hermes_peer.journal.schema import SENT, TAKEN, aside
from hermes_peer.journal.store import Connection, Damaged
from hermes_peer.journal.values import SetAside

INSERT = "INSERT INTO hermes_aside (side,principal,message_id,why,body) VALUES (?,?,?,?,?)"


def put_aside(db: Connection, damaged: Damaged) -> None:
    """Inside a transaction. Indexes hold what the row said before it decayed: they still know whose it was if its key
    is what decayed; then they are made anew.
    """
    table = f"hermes_{damaged.side}"
    side, principal, id, *rest = aside(damaged.side, damaged.row, damaged.why)
    if damaged.side != "items":
        whose = "principal" if damaged.side == "taken" else "x''"
        sql = f"SELECT {whose},message_id FROM {table} INDEXED BY sqlite_autoindex_{table}_1 WHERE +seq=?"
        principal, id = db.execute(sql, (damaged.row[0],)).fetchone() or (principal, id)
    db.execute(INSERT, (side, principal, id, *rest))
    db.execute(f"REINDEX {table}")
    if damaged.side == "items":
        db.execute("DELETE FROM hermes_items WHERE work=? AND first=?", damaged.row[:2])
    else:
        db.execute(f"DELETE FROM {table} WHERE seq=?", (damaged.row[0],))


def find_damaged(db: Connection, all_rows: bool) -> list[Damaged]:
    """Reads every row that may run, or every row."""
    where = "" if all_rows else "WHERE state IN (1,2)"
    found = []
    for side in (SENT, TAKEN):
        for row in db.execute(f"SELECT {side.whole} FROM {side.table} NOT INDEXED {where}"):
            why = side.damage(row)
            if why:
                found.append(Damaged(side.name, row, why))
    return found


def gone(db: Connection) -> list[tuple[str, bytes, bytes]]:
    """(side, principal, message_id) of what was set aside."""
    rows = db.execute("SELECT side,principal,message_id FROM hermes_aside").fetchall()
    return [(side.decode(), principal, id) for side, principal, id in rows]


def listed(db: Connection) -> list[SetAside]:
    """For a human."""
    rows = db.execute("SELECT side,principal,message_id,why FROM hermes_aside ORDER BY id").fetchall()
    return [
        SetAside(side=s.decode(), principal=p, message_id=id.decode(errors="replace"), why=why.decode())
        for s, p, id, why in rows
    ]
