"""The whole demo, with its two processes and its proxy, on a small folder and with quick faults.

Knows: the last line on stdout and the exit code. Refuses to know: what the screen looks like. Called by: pytest.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.cli.demo import chaos, command, kills, processes
from hermes_peer.errors import CallError, UsageError

from .server import ModelServer

QUICK = ("reset", "half-closed", "cut in the middle of a frame", "closed")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    for n in range(40):
        (folder / f"m{n}.py").write_text(f"def f{n}():\n    return {n}  # TODO: {n}\n")
        (folder / f"p{n}.md").write_text(f"[gone](nowhere{n}.md)\n")
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, chaos.Fault] = {name: (name, strike) for name, strike in chaos.FAULTS}
    monkeypatch.setattr(chaos, "FAULTS", tuple(seen[name] for name in QUICK))
    monkeypatch.setattr(command, "SECONDS", 2.0)
    monkeypatch.setattr(kills, "SECONDS", 1.5)


@pytest.mark.usefixtures("quick")
def test_nothing_is_lost_and_its_last_line_says_so(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.demo([tree]) == 0
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 1
    last: dict[str, Any] = json.loads(out)
    assert last["faults"] == len(QUICK)
    assert last["breaks"] >= 3 and last["resumes"] >= 3  # two may strike at once
    assert (last["lost"], last["duplicated"], last["out_of_order"], last["unexpected"]) == (0, 0, 0, 0)
    assert last["items"] > 400
    assert last["recovery_ms"]["max"] >= last["recovery_ms"]["median"] > 0
    assert "every finding arrived once and in order" in err
    assert "Traceback" not in err
    second = last["act2"]
    assert (second["kills"], second["effects"], second["lost"], second["duplicated"]) == (2, 1, 0, 0)
    assert second["items"] > 300
    assert set(second["recovery_ms"]) == {"worker", "planner"}
    assert err.index("the worker is killed") < err.index("the planner is killed") < err.index("filed once")
    assert "filed once: the report is whole" in err


@pytest.mark.usefixtures("quick")
def test_with_a_model_its_tokens_come_too(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("httpx2")
    monkeypatch.setattr(chaos, "FAULTS", ())

    async def main() -> tuple[int, int]:
        async with ModelServer() as server:
            code = await asyncio.to_thread(command.demo, [tree], server.url)
            return code, len(server.asked)

    assert asyncio.run(main()) == (0, 1)
    assert json.loads(capfd.readouterr().out)["faults"] == 0


def test_it_wants_folders_with_something_in_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        command.demo([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="only 0 findings"):
        command.demo([tmp_path])


def test_a_process_that_ends_early_ends_the_demo_and_the_other_process(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = processes.start

    async def broken(role: str, *arguments: str) -> Any:
        child = await start(role, *(arguments if role == "worker" else ("--nonsense",)))
        started.append(child)
        return child

    monkeypatch.setattr(processes, "start", broken)
    with pytest.raises(CallError, match="ended early"):
        command.demo([tree])
    assert [child.returncode for child in started] == [0, 2]


CLEAN = dict.fromkeys(("lost", "duplicated", "out_of_order", "unexpected"), 0)
FIRST = CLEAN | {"items": 3, "breaks": 0, "resumes": 0, "faults": 0, "recovery_ms": {"median": 0, "max": 0}}
SECOND = CLEAN | {"items": 3, "kills": 2, "effects": 1, "recovery_ms": {"worker": 1, "planner": 1}}


@pytest.mark.parametrize("bad", CLEAN)
def test_any_finding_lost_or_doubled_is_exit_code_1(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command._report(FIRST, SECOND) == 0
    assert command._report(FIRST | {bad: 1}, SECOND) == 1
    assert "LOST OR DOUBLED" in capsys.readouterr().err
    assert command._report(FIRST, SECOND | {bad: 1}) == 1
    assert "NOT WHOLE" in capsys.readouterr().err


@pytest.mark.parametrize(("effects", "kills"), [(0, 2), (2, 2), (1, 1)])
def test_a_report_filed_never_or_twice_or_a_kill_that_missed_is_exit_code_1(
    effects: int, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command._report(FIRST, SECOND | {"effects": effects, "kills": kills}) == 1
    last = json.loads(capsys.readouterr().out)
    assert (last["act2"]["effects"], last["act2"]["kills"], last["items"]) == (effects, kills, 3)


def test_the_default_is_the_project_that_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command._default() == [Path(command.__file__).resolve().parents[2]]
    (tmp_path / "src").mkdir()
    assert command._default() == [Path("src")]
