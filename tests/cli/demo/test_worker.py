"""The worker of the demo, called by a real agent over a real socket.

Knows: plans and what they should find. Refuses to know: faults. Called by: pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, HermesAgent, ProgressEvent, RequestInfo, TaskEnvelope
from hermes_peer.cli.demo import audit
from hermes_peer.cli.demo.planner import count, make_plan
from hermes_peer.cli.demo.worker import make_worker

from .server import WORDS, ModelServer


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    for n in range(12):
        (folder / f"m{n}.py").write_text(f"def f{n}():\n    return {n}  # TODO: {n}\n")
        (folder / f"p{n}.md").write_text(f"[gone](nowhere{n}.md) [page](x{n}.html)\n")
    return folder


async def run_task(
    home: Path, steps: list[dict[str, Any]], answer: Callable[[RequestInfo], Any], model: str | None = None
) -> tuple[list[ProgressEvent], Any]:
    events = []
    async with (
        make_worker(str(home), model) as worker,
        HermesAgent("planner", home=home, listen=False) as me,
        asyncio.timeout(20),
    ):
        address = next(a for a in worker.addresses if a.startswith("hermes://"))
        async with me.task(address, "audit", TaskEnvelope(steps=steps, timeout=20), on_request_info=answer) as task:
            async for event in task:
                events.append(event)
            return events, await task.result()


def test_it_finds_everything_in_order_and_asks_for_what_is_missing_once(tmp_path: Path, tree: Path) -> None:
    steps = make_plan([str(tree)])
    asked = []

    def answer(info: RequestInfo) -> Any:
        asked.append(info.name)
        return audit.ANSWERS[info.name]

    events, result = asyncio.run(run_task(tmp_path / "home", steps, answer))
    found = [event.partial for event in events if event.state == "finding"]
    assert count(found, steps) == {
        "items": len(found),
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "unexpected": 0,
    }
    assert asked == ["ignore"]
    assert sum(event.state == "step done" for event in events) == len(steps)
    assert sum(result.result["findings"].values()) == len(found)
    assert result.result["findings"]["broken link"] == 12  # the *.html ones were to be left out
    assert result.result["tokens"] == 0


def test_a_model_writes_the_summary_token_by_token(tmp_path: Path, tree: Path) -> None:
    pytest.importorskip("httpx2")

    async def main() -> None:
        async with ModelServer() as server:
            steps = [step for step in make_plan([str(tree)]) if step["kind"] == "todos"]
            events, result = await run_task(tmp_path / "home", steps, lambda info: None, server.url)
            summary = [event for event in events if event.state == "summary"]
            assert tuple(event.partial for event in summary) == WORDS
            assert [event.tokens_used for event in summary] == list(range(1, len(WORDS) + 1))
            assert result.result["tokens"] == len(WORDS)
            assert '"TODO": 12' in server.asked[0]["messages"][0]["content"]

    asyncio.run(main())


def test_a_step_that_leaves_its_folder_fails_the_task_and_reads_nothing(tmp_path: Path, tree: Path) -> None:
    steps = [{"id": "x", "kind": "stats", "files": ["../secret"], "root": str(tree)}]
    (tmp_path / "secret").write_text("secret\n")

    async def main() -> None:
        with pytest.raises(CallError):
            await run_task(tmp_path / "home", steps, lambda info: None)

    asyncio.run(main())
