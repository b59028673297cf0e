"""The planner of the demo's second act: submits a report as durable work and reads its findings, whoever dies.

Knows: its ticket, and a file of its own with what it has read. Refuses to know: that somebody kills it and the worker.
Called by: `hermes-peer demo`, as a process of its own; says what happens as JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from hermes_peer import HermesAgent
from hermes_peer.cli.demo import audit
from hermes_peer.cli.demo.planner import count, make_plan
from hermes_peer.cli.demo.worker import CONFIG, say

REPORT = "report-1"  # the planner's own name for the work: whoever submits it again gets what is there
FOUND = "findings.jsonl"
FINDINGS = 400  # about so many, so that it can be watched and yet ends


def short_plan(roots: list[str], most: int = FINDINGS) -> list[dict[str, Any]]:
    """The first steps of the plan, up to about `most` findings, with nothing left to ask for."""
    steps: list[dict[str, Any]] = []
    n = 0
    for step in make_plan(roots):
        if n >= most:
            break
        step = {name: audit.ANSWERS[name] for name in audit.missing(step)} | step
        steps.append(step)
        n += sum(1 for _ in audit.findings(step["root"], step))
    return steps


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that a killed process may have left in the middle of one; that one is cut off."""
    if not path.exists():
        return []
    text = path.read_text()
    kept = text[: text.rfind("\n") + 1]
    if kept != text:
        os.truncate(path, len(kept.encode()))
    return kept.splitlines()


async def read(agent: HermesAgent, folder: Path, steps: list[dict[str, Any]], pause: float) -> None:
    """Submit the report, or find it again; read on where our own file ends; say what came of it."""
    path = folder / FOUND
    have = len(whole_lines(path))
    ticket = await agent.submit("worker", "report.make", {"steps": steps, "pause": pause}, message_id=REPORT, ttl=600)
    say("reading", have=have)
    with path.open("a") as file:
        async for finding in ticket.items(offset=have):
            file.write(json.dumps(finding) + "\n")
            file.flush()
            have += 1
            say("kept", items=have, file=finding["file"], text=finding["text"])
    result = await ticket.result()
    found = [json.loads(line) for line in whole_lines(path)]
    say("done", result=result, **count(found, steps))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", required=True)
    parser.add_argument("--pause", type=float, required=True)
    parser.add_argument("roots", nargs="+")
    options = parser.parse_args()
    agent = HermesAgent("planner", home=options.home, listen=False, config=CONFIG)
    async with agent:
        await read(agent, Path(options.home), short_plan(options.roots), options.pause)


if __name__ == "__main__":
    asyncio.run(main())
