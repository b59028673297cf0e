"""The second act: who is killed, what is counted, and that a process which ends by itself ends the act.

Knows: events and the worker's journal. Refuses to know: screens. The whole act is run by test_command.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.cli.demo import kills, processes
from hermes_peer.cli.demo.reporter import FOUND
from hermes_peer.cli.demo.screen import Screen
from hermes_peer.cli.demo.worker import FILED
from hermes_peer.errors import CallError

from .test_planner import make_tree


def test_effects_are_counted_in_the_worker_s_own_table(tmp_path: Path) -> None:
    journal = tmp_path / "agents" / "worker" / "1" / "journal.db"
    journal.parent.mkdir(parents=True)
    with sqlite3.connect(journal) as db:
        db.execute("CREATE TABLE other (x)")
    assert kills.effects(tmp_path) == 0
    with sqlite3.connect(journal) as db:
        db.execute(f"CREATE TABLE {FILED} (work TEXT, report TEXT)")
        db.executemany(f"INSERT INTO {FILED} VALUES (?, '')", [("a",), ("a",)])
    db.close()
    assert kills.effects(tmp_path) == 2


def test_a_planner_that_ends_early_ends_the_act_and_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, home = make_tree(tmp_path / "tree", 40), str(tmp_path / "home")
    start = processes.start

    async def broken(role: str, *arguments: str) -> processes.Process:
        return await start(role, *(arguments if role == "worker" else ("--nonsense",)))

    async def main() -> None:
        worker = await start("worker", "--home", home)
        await processes.event(worker)
        monkeypatch.setattr(processes, "start", broken)
        act = kills.Kills(home, [root], worker, [], Screen(40))
        with pytest.raises(CallError, match="ended early"):
            await act.run()
        assert worker.returncode == 0

    asyncio.run(main())
    assert "second act: a report of" in capsys.readouterr().err


def test_a_finding_that_was_kept_twice_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is of what lies in the planner's file in the end, and of nothing else."""
    root, home = make_tree(tmp_path / "tree", 40), str(tmp_path / "home")
    monkeypatch.setattr(kills, "SECONDS", 1.0)
    kill = processes.kill
    file = Path(home, FOUND)

    async def and_double_a_line(process: processes.Process) -> bool:
        died = await kill(process)
        if act.kills == 1:  # the planner's turn
            whole = file.read_text().rpartition("\n")[0] + "\n"  # what it wrote last may be half a line
            file.write_text(whole + whole.splitlines()[0] + "\n")
        return died

    async def main() -> dict[str, Any]:
        nonlocal act
        worker = await processes.start("worker", "--home", home)
        await processes.event(worker)
        monkeypatch.setattr(processes, "kill", and_double_a_line)
        act = kills.Kills(home, [root], worker, [], Screen(40))
        return await act.run()

    act: kills.Kills
    second = asyncio.run(main())
    assert (second["kills"], second["duplicated"], second["effects"]) == (2, 1, 1)
    assert second["lost"] in (0, 1)  # one more line moves where it reads on by one, unless it had read all
