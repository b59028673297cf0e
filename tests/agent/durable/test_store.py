"""Opening at first use, after an earlier process, and when it fails; gauges; the crash tests' hook."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.agent.durable import store
from hermes_peer.errors import JournalError
from tests.agent.durable.rig import empty, left, planner, two, worker


async def test_an_agent_without_durable_work_has_no_journal(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        assert await me.call("worker", "plain") == "ran"
        assert not me._running().durable.path.exists() and not served._running().durable.path.exists()
        assert me.status()["durable"] == {"open": False, "problem": None}


async def test_gauges_and_limits(home: Path) -> None:
    async with two(home) as (me, served):
        assert await (await me.submit("worker", "plain", {})).result() == "ran"
        await empty(me, served)
        for agent in (me, served):
            seen = agent.status()["durable"]
            assert seen["open"] and seen["problem"] is None and seen["bytes"] > 0 and seen["commits"] > 0
            assert seen["limits"] == {
                "bytes": 1 << 30,
                "rows_per_peer": 10_000,
                "body": 1 << 20,
                "handlers": 64,
                "on_the_way_per_peer": 64,
            }
        assert left(me) == {}


async def test_a_journal_that_cannot_be_opened_is_told_and_tried_again(home: Path, caplog: Any) -> None:
    async with planner(home) as me, worker(home) as served:
        path = served._running().durable.path
        path.mkdir()
        ticket = await me.submit("worker", "plain", {}, ttl=30)
        assert await served.call("planner", "hermes.ping")
        while not served.status()["durable"]["problem"]:
            await served.call("planner", "hermes.ping")
        with pytest.raises(JournalError):
            await served.submit("planner", "hermes.ping")
        assert await me.call("worker", "plain") == "ran"
        path.rmdir()
        for entry in me._running().durable.outbox.entries.values():  # type: ignore[union-attr]
            entry.next_try = 0.0
        me._running().durable.outbox.wake_all()  # type: ignore[union-attr]
        assert await ticket.result() == "ran"
        assert served.status()["durable"]["problem"] is None
    caplog.clear()


async def test_a_journal_that_was_taken_away_is_told_at_the_start(home: Path) -> None:
    async with planner(home) as me:
        await me.submit("worker", "plain", {})
        path = me._running().durable.path
    for each in path.parent.glob("journal.db*"):
        if not each.name.endswith(".mark"):
            each.unlink()
    async with planner(home) as me:
        assert "missing" in me.status()["durable"]["problem"]


async def test_an_end_in_the_middle_of_the_opening_leaves_the_slot_free(home: Path) -> None:
    for _ in range(3):
        async with planner(home) as me:
            me._running().spawn(me._running().durable.open())
    async with planner(home) as me:
        assert await me.submit("worker", "plain", {})


async def test_a_first_submission_at_the_end_is_refused_in_a_sentence(home: Path) -> None:
    refused: list[JournalError] = []
    async with planner(home) as me, worker(home) as ends:

        @ends.lifespan
        async def late(_: Any) -> AsyncIterator[None]:
            yield
            with pytest.raises(JournalError, match="submit again") as caught:
                await ends.submit("planner", "x", {})
            refused.append(caught.value)

        await ends.aclose()
        await ends.__aenter__()
        assert await me.call("worker", "plain") == "ran"
    assert refused[0].ran == "no"


def test_the_hook_kills_at_the_nth_pass() -> None:
    code = "from hermes_peer.agent.durable.store import failpoint; f = failpoint(); f('a'); f('b'); f('a'); print(1)"
    for point, alive in (("a:2", False), ("a:3", True), ("b", False), ("", True)):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"HERMES_PEER_FAILPOINT": point, "PYTHONPATH": str(Path(store.__file__).parents[3])},
            capture_output=True,
        )
        assert ran.returncode == (0 if alive else -signal.SIGKILL), (point, ran.stderr)
