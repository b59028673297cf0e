"""The planner of the second act: its short plan, its file, and that it goes on where the file ends.

Knows: the worker's report. Refuses to know: kills. Called by: pytest.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hermes_peer import HermesAgent
from hermes_peer.cli.demo import audit, reporter
from hermes_peer.cli.demo.kills import effects
from hermes_peer.cli.demo.worker import make_worker

from .test_planner import make_tree


def test_the_short_plan_has_whole_steps_and_nothing_to_ask_for(tmp_path: Path) -> None:
    roots = [make_tree(tmp_path / "one", 60), make_tree(tmp_path / "two", 60)]
    steps = reporter.short_plan(roots, 100)
    found = sum(1 for step in steps for _ in audit.findings(step["root"], step))
    assert 100 <= found < 250
    assert not any(audit.missing(step) for step in steps)


@pytest.mark.parametrize(
    ("text", "lines", "left"),
    [("", [], ""), ("a\nb\n", ["a", "b"], "a\nb\n"), ("a\nb", ["a"], "a\n"), ("ab", [], ""), ("é\nü", ["é"], "é\n")],
)
def test_a_line_that_was_cut_off_by_a_kill_is_taken_back(
    tmp_path: Path, text: str, lines: list[str], left: str
) -> None:
    path = tmp_path / "found"
    path.write_text(text)
    assert reporter.whole_lines(path) == lines
    assert path.read_text() == left
    assert reporter.whole_lines(tmp_path / "nothing") == []


def test_killed_or_not_every_finding_is_read_once_and_the_report_filed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = reporter.short_plan([make_tree(tmp_path / "tree", 8)])
    total = sum(1 for step in steps for _ in audit.findings(step["root"], step))
    home, file = tmp_path / "home", tmp_path / reporter.FOUND

    async def until(lines: int) -> None:
        """Read until there are so many lines in the file, and stop without a word."""
        async with HermesAgent("planner", home=home, listen=False) as me, asyncio.timeout(20):
            reading = asyncio.ensure_future(reporter.read(me, tmp_path, steps, 0.01))
            while not reading.done() and len(reporter.whole_lines(file)) < lines:
                await asyncio.sleep(0.001)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def main() -> None:
        async with make_worker(str(home)):
            await until(10)
            with file.open("a") as half:
                half.write('{"half')
            await until(total + 1)

    asyncio.run(main())
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    have = [event["have"] for event in events if event["event"] == "reading"]
    assert have[0] == 0 and 10 <= have[1] < total
    assert [event["items"] for event in events if event["event"] == "kept"] == list(range(1, total + 1))
    done = events[-1]
    assert (done["event"], done["items"], done["lost"], done["duplicated"]) == ("done", total, 0, 0)
    assert done["result"]["attempt"] == 1
    assert effects(home) == 1
