"""The planner of the demo: its plan, its count, and the lines that it says, as the process that it is.

Knows: JSON lines. Refuses to know: screens. Called by: pytest.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from hermes_peer.cli.demo.planner import count, make_plan
from hermes_peer.cli.demo.worker import make_worker


def make_tree(folder: Path, files: int) -> str:
    folder.mkdir()
    for n in range(files):
        (folder / f"m{n}.py").write_text(f"x = {n}  # TODO: {n}\n")
    return str(folder)


def test_steps_know_their_folder_and_have_names_of_their_own(tmp_path: Path) -> None:
    roots = [make_tree(tmp_path / "one", 2), make_tree(tmp_path / "two", 2)]
    steps = make_plan(roots)
    assert {step["root"] for step in steps} == set(roots)
    assert len({step["id"] for step in steps}) == len(steps) >= 6


def test_the_count_notices_what_is_lost_doubled_and_out_of_order(tmp_path: Path) -> None:
    from hermes_peer.cli.demo import audit

    steps = make_plan([make_tree(tmp_path / "one", 5), make_tree(tmp_path / "two", 5)])
    good = [finding for step in steps for finding in audit.findings(step["root"], step)]
    assert count(good, steps)["items"] == len(good)
    assert not any(value for name, value in count(good, steps).items() if name != "items")
    assert count(good[1:], steps)["lost"] == 1
    assert count([*good, good[0]], steps)["duplicated"] == 1
    assert count([good[1], good[0], *good[2:]], steps)["out_of_order"] == 1
    changed = count([good[0] | {"value": -1}, *good[1:]], steps)
    assert (changed["lost"], changed["unexpected"]) == (1, 1)


def test_it_says_what_happens_line_by_line(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "tree", 8)
    home = tmp_path / "home"

    async def main() -> list[dict[str, object]]:
        async with make_worker(str(home)) as worker, asyncio.timeout(30):
            address = next(a for a in worker.addresses if a.startswith("hermes://"))
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hermes_peer.cli.demo.planner",
                "--home",
                str(home),
                "--worker",
                address,
                root,
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await child.communicate()
            assert child.returncode == 0
            return [json.loads(line) for line in out.splitlines()]

    events = asyncio.run(main())
    assert events[0]["event"] == "plan" and events[0]["files"] == 8
    findings = [event for event in events if event["event"] == "finding"]
    assert [event["items"] for event in findings] == list(range(1, len(findings) + 1))
    done = next(event for event in events if event["event"] == "done")  # after it the link is put away
    assert done["items"] == len(findings)
    assert (done["lost"], done["duplicated"], done["out_of_order"], done["unexpected"]) == (0, 0, 0, 0)
    assert (done["breaks"], done["resumes"]) == (0, 0)
