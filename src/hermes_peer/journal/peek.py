"""Looking into the journal of an agent that does not run, and leaving it as it is.

Knows: SQLite's way to open a file for reading only, the submitted rows. Refuses to know: locks, epochs, salvage.
Called by: the command line, to find out in which slot a ticket lies.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from urllib.parse import quote

from hermes_peer.errors import JournalError
from hermes_peer.journal.schema import SENT, sent_of
from hermes_peer.journal.values import Sent, SentState

BUSY_S = 0.5  # somebody opens or checkpoints it at this moment


def peek(path: Path, *, message_id: str = "", state: SentState | None = None) -> list[Sent]:
    """The submitted rows of the journal `path`, oldest first: the one with this id, or those in this state.

    Rows whose checksum is wrong are passed over. Raises JournalError if it cannot be read, also while a process has it.
    """
    where = "message_id=?" if message_id else "state=?" if state is not None else "1"
    parameters = (message_id.encode(),) if message_id else (int(state),) if state is not None else ()
    try:
        db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None)
        with contextlib.closing(db):
            rows = db.execute(
                f"SELECT {SENT.whole} FROM {SENT.table} WHERE {where} ORDER BY seq", parameters
            ).fetchall()
    except sqlite3.Error as error:
        raise JournalError(f"The journal {path} cannot be read: {error}.") from error
    return [sent_of(row) for row in rows if not SENT.damage(row)]
