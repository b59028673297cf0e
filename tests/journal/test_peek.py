"""Looking into a journal that nobody has open: what it says, and that it is left as it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.peek import peek
from hermes_peer.journal.values import Origin, SentState

from .rig import a_sent, do, op


def test_what_lies_there_is_seen_and_left_alone(path: Path, make: Any) -> None:
    first = make()
    do(first, op.Submit(a_sent()))
    do(first, op.Submit(a_sent(message_id="m-2")))
    do(first, op.MarkDead("m-2", "no"))
    first.close()
    before = path.read_bytes()
    assert [row.message_id for row in peek(path)] == ["m-1", "m-2"]
    assert [row.why for row in peek(path, state=SentState.DEAD)] == ["no"]
    (one,) = peek(path, message_id="m-1")
    assert one.payload == a_sent().payload and one.state is SentState.WAITING
    assert peek(path, message_id="m-9") == []
    assert path.read_bytes() == before
    again = make()
    assert (again.origin, again.notice) == (Origin.SAME, "")
    assert again.sent("m-1").result(5) is not None
    again.close()


def test_what_a_killed_process_left_in_the_log_is_seen_too(path: Path, make: Any, tmp_path: Path) -> None:
    first = make()
    do(first, op.Submit(a_sent()))
    left = tmp_path / "left" / "journal.db"
    left.parent.mkdir()
    for rest in ("", "-wal"):
        shutil.copyfile(f"{path}{rest}", f"{left}{rest}")
    first.close()
    assert Path(f"{left}-wal").stat().st_size > 0
    assert [row.message_id for row in peek(left)] == ["m-1"]


def test_while_a_process_has_it_nothing_is_seen(path: Path, make: Any) -> None:
    first = make()
    do(first, op.Submit(a_sent()))
    with pytest.raises(JournalError, match="cannot be read"):
        peek(path)
    first.close()


def test_no_file_and_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError):
        peek(tmp_path / "nothing.db")
    (tmp_path / "text.db").write_text("not a database at all, but long enough to look like something" * 20)
    with pytest.raises(JournalError):
        peek(tmp_path / "text.db")
    assert not (tmp_path / "nothing.db").exists()


def test_a_damaged_row_is_passed_over(path: Path, make: Any) -> None:
    first = make()
    do(first, op.Submit(a_sent(payload=b'{"find": "me-here"}')))
    do(first, op.Submit(a_sent(message_id="m-2")))
    first.close()
    data = path.read_bytes()
    assert data.count(b"me-here") == 1
    path.write_bytes(data.replace(b"me-here", b"me-hers"))
    assert [row.message_id for row in peek(path)] == ["m-2"]
