"""The worker of the demo: runs the tools, streams what they find, asks back for what the plan left out.

Knows: the audit's tools and, with --model, how to read a model's tokens. Refuses to know: proxies, kills, screens.
Called by: `hermes-peer demo`, as a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from hermes_peer import Final, HermesAgent, ProgressEvent, Request, TaskEnvelope
from hermes_peer.cli.demo import audit
from hermes_peer.cli.demo.model import tokens_of
from hermes_peer.core.config import Config

# Short heartbeats, so that a silent line is found out while somebody watches.
CONFIG = Config(idle_s=1.0, busy_s=0.4)
FILED = "demo_filed"  # the table of filed reports, in the worker's own journal


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, **more}), flush=True)  # noqa: T201


def make_worker(home: str, model: str | None = None) -> HermesAgent:
    """The agent `worker` with its task and its durable report, listening on a free TCP port."""
    agent = HermesAgent("worker", home=home, listen="hermes://127.0.0.1:0", config=CONFIG)

    @agent.task("audit")
    async def run(task: TaskEnvelope, request: Request) -> AsyncIterator[ProgressEvent | Final]:
        """Audit files: each step's findings one by one, then a summary."""
        counts: Counter[str] = Counter()
        known: dict[str, Any] = {}
        for number, step in enumerate(task.steps):
            for name in audit.missing(step):
                if name not in known:
                    known[name] = await request.info(name, f"which links should step {step['id']} leave out?")
                step = step | {name: known[name]}
            for finding in audit.findings(step["root"], step):
                counts[finding["what"]] += 1
                yield ProgressEvent("finding", partial=finding, step=number)
                await asyncio.sleep(0)
            yield ProgressEvent("step done", step=number)
        spent = 0
        if model:
            prompt = f"In two sentences, what do these audit counts say about a code base? {json.dumps(counts)}"
            async for token in tokens_of(model, prompt):
                spent += 1
                yield ProgressEvent("summary", tokens_used=spent, partial=token)
        yield Final({"findings": dict(counts), "tokens": spent})

    @agent.method("report.make", contract="transactional")
    async def make(steps: list[dict[str, Any]], pause: float, request: Request) -> AsyncIterator[Any]:
        """Audit, finding by finding; then file the report. What is logged already is not sent again."""
        first = request.emitted  # of an earlier run, which was killed
        say("run", attempt=request.attempt, emitted=first)
        findings = (finding for step in steps for finding in audit.findings(step["root"], step))
        counts: Counter[str] = Counter()
        for number, finding in enumerate(findings):
            counts[finding["what"]] += 1
            if number >= first:
                yield finding
                await asyncio.sleep(pause)
        async with request.transaction() as db:  # this and the outcome are one commit: both, or neither
            await db.execute(f"CREATE TABLE IF NOT EXISTS {FILED} (work TEXT, report TEXT)")
            await db.execute(f"INSERT INTO {FILED} VALUES (?, ?)", (request.message_id, json.dumps(counts)))
        yield Final({"findings": dict(counts), "attempt": request.attempt})

    return agent


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", required=True)
    parser.add_argument("--model")
    options = parser.parse_args()
    agent = make_worker(options.home, options.model)
    async with agent:
        address = next(a for a in agent.addresses if a.startswith("hermes://"))
        say("ready", address=address)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the demo lets go


if __name__ == "__main__":
    asyncio.run(main())
