"""The planner of the demo: splits the audit into steps, hands them over, counts what comes back.

Knows: the plan and what it should yield. Refuses to know: that somebody breaks the line.
Called by: `hermes-peer demo`, as a process of its own; says what happens as JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from typing import Any

from hermes_peer import HermesAgent, RequestInfo, TaskEnvelope
from hermes_peer.cli.demo import audit
from hermes_peer.cli.demo.worker import CONFIG, say


def make_plan(roots: list[str]) -> list[dict[str, Any]]:
    """Steps over all folders; each knows its root."""
    return [step | {"root": root, "id": f"{root}:{step['id']}"} for root in roots for step in audit.plan(root)]


def count(found: list[dict[str, Any]], steps: list[dict[str, Any]]) -> dict[str, int]:
    """audit.check over all roots."""
    total: dict[str, int] = {}
    for root in {step["root"] for step in steps}:
        mine = [step for step in steps if step["root"] == root]
        ids = {step["id"] for step in mine}
        for name, value in audit.check([f for f in found if f["step"] in ids], root, mine).items():
            total[name] = total.get(name, 0) + value
    return total


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("roots", nargs="+")
    options = parser.parse_args()
    steps = make_plan(options.roots)
    agent = HermesAgent("planner", home=options.home, listen=False, config=CONFIG)

    @agent.on_link
    def line(peer: str, what: str, reason: str, seconds: float) -> None:
        say(what, peer=peer, reason=reason, ms=round(seconds * 1000, 1))

    def answer(info: RequestInfo) -> Any:
        say("asked", name=info.name, question=info.question, answer=audit.ANSWERS[info.name])
        return audit.ANSWERS[info.name]

    async with agent:
        say("plan", steps=len(steps), files=len({f for step in steps for f in step["files"]}))
        found: list[dict[str, Any]] = []
        envelope = TaskEnvelope(steps=steps, context={"roots": options.roots}, timeout=600)
        async with agent.task(options.worker, "audit", envelope, on_request_info=answer) as task:
            async for progress in task:
                if progress.state == "finding":
                    found.append(progress.partial)
                    say("finding", items=len(found), file=progress.partial["file"], text=progress.partial["text"])
                elif progress.state == "summary":
                    say("token", text=progress.partial, tokens=progress.tokens_used)
            result = await task.result()
        links = agent.status()["links"]
        recoveries = [ms for link in links for ms in link["recovery_ms"]]
        say(
            "done",
            result=result.result,
            breaks=sum(link["breaks"] for link in links),
            resumes=sum(link["links"] - 1 for link in links),
            recovery_ms={
                "median": round(statistics.median(recoveries), 1) if recoveries else 0,
                "max": max(recoveries, default=0),
            },
            **count(found, steps),
        )


if __name__ == "__main__":
    asyncio.run(main())
