"""Which history this is: old copies, lost files, clones (attack 74, HPC-045)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.journal.meta import mark_path, read_mark
from hermes_peer.journal.values import Origin

from .rig import a_sent, do, op

FILES = ("", "-wal", ".mark")


def copy(path: Path, to: Path, names: tuple[str, ...] = FILES) -> None:
    for name in names:
        if Path(f"{path}{name}").exists():
            shutil.copyfile(f"{path}{name}", f"{to}{name}")


def test_the_same_history_is_silent(make: Any) -> None:
    first = make()
    assert (first.origin, first.notice) == (Origin.NEW, "")
    first.close()
    for _ in range(3):
        again = make()
        assert (again.origin, again.notice, again.epoch) == (Origin.SAME, "", first.epoch)
        again.close()


def test_deleted(path: Path, make: Any) -> None:
    first = make()
    first.close()
    path.unlink()
    again = make()
    assert again.origin is Origin.DELETED and again.epoch != first.epoch
    assert "was missing" in again.notice and str(path) in again.notice
    again.close()
    assert make().origin is Origin.SAME, "said once"


def test_an_older_copy_of_the_database(path: Path, make: Any, tmp_path: Path) -> None:
    first = make()
    do(first, op.Submit(a_sent()))
    first.close()
    copy(path, tmp_path / "old", ("",))
    second = make()
    do(second, op.MarkDone("m-1", b"out"))
    second.close()
    copy(tmp_path / "old", path, ("",))
    again = make()
    assert again.origin is Origin.OLDER and again.epoch != first.epoch and "older" in again.notice
    assert again.sent("m-1").result(5) is not None, "its rows are kept; what to make of them is the caller's decision"
    again.close()
    assert make().origin is Origin.SAME


def test_an_older_copy_within_one_boot(path: Path, make: Any, tmp_path: Path) -> None:
    """Each idle checkpoint moves the mark, so that a snapshot of a running journal shows as well."""
    first = make(idle_s=0.0)
    do(first, op.Submit(a_sent()))
    first.gauges()
    do(first)
    copy(path, tmp_path / "old", ("", "-wal"))
    do(first, op.Submit(a_sent("m-2")))
    while read_mark(path).tick < 2:  # type: ignore[union-attr]
        do(first, op.Postpone("m-1", 1))
    first.close()
    copy(tmp_path / "old", path, ("", "-wal"))
    if not Path(f"{tmp_path / 'old'}-wal").exists():
        Path(f"{path}-wal").unlink(missing_ok=True)
    assert make().origin is Origin.OLDER


def test_a_lost_mark(path: Path, make: Any) -> None:
    make().close()
    mark_path(path).unlink()
    again = make()
    assert again.origin is Origin.OLDER and again.notice
    again.close()
    mark_path(path).write_bytes(b"junk")
    assert make().origin is Origin.OLDER


def test_a_copied_folder(path: Path, make: Any, tmp_path: Path) -> None:
    first = make()
    first.close()
    (tmp_path / "clone").mkdir()
    copy(path, tmp_path / "clone" / "journal")
    clone = make(tmp_path / "clone" / "journal")
    assert clone.origin is Origin.COPIED and clone.epoch != first.epoch and "is a copy" in clone.notice
    assert make().origin is Origin.SAME, "the original is what it was"


def test_a_crash_between_the_first_commits_is_not_a_lost_mark(
    path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_peer.journal import meta

    real, calls = meta.write_mark, [0]

    def at_second(*arguments: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(meta, "write_mark", at_second)
    with pytest.raises(KeyboardInterrupt):
        make()
    monkeypatch.undo()
    assert make().origin is Origin.SAME
