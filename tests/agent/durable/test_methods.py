"""hermes.ticket and hermes.dead, over a line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError
from hermes_peer.cli import submitters
from tests.agent.durable.rig import empty, ended, planner, two, worker
from tests.loops import case


async def test_a_ticket_is_shown_and_waited_for(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        served.gate.set()
        ticket = await me.submit("worker", "held_again", {"x": 1}, ttl=60)
        view = await served.call("planner", "hermes.ticket", {"message_id": ticket.message_id, "wait": True})
        assert (view["state"], view["result"], view["target"], view["method"]) == (
            "done",
            "waited",
            "worker",
            "held_again",
        )
        assert view["offset"] == 0
        for wait in (False, True):
            with pytest.raises(CallError) as unknown:
                await served.call("planner", "hermes.ticket", {"message_id": "none", "wait": wait})
            assert unknown.value.reason == "unknown_ticket"


@pytest.mark.parametrize("way", ["method", "command"])
async def test_a_view_is_of_one_moment(home: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Work that ends while it is looked at is shown as open, or as done with its result."""
    async with two(home) as (me, served):
        ticket = await me.submit("worker", "held", {})
        await served.begun.wait()
        _, outbox = await me._running().durable.open()
        read, entry = outbox.row, outbox.entries[ticket.message_id]

        async def and_then_it_ends(message_id: str) -> Any:
            row = await read(message_id)
            served.gate.set()
            await asyncio.shield(entry.done)
            return row

        monkeypatch.setattr(outbox, "row", and_then_it_ends)
        for _ in range(2):
            if way == "method":
                view = await served.call("planner", "hermes.ticket", {"message_id": ticket.message_id})
            else:
                view = await submitters.own_view(me, ticket.message_id)
            assert (view["state"] == "done") == ("result" in view)


async def test_an_agent_without_a_rule_is_refused(home: Path) -> None:
    async with planner(home) as me, planner(home, name="other") as other:
        ticket = await me.submit("worker", "plain", {})
        (home / "policy.toml").write_text("")
        other._running().directory.reload()
        me._running().directory.reload()
        me._running().server.recheck()
        for method, payload in (
            ("hermes.ticket", {"message_id": ticket.message_id}),
            ("hermes.dead", {"action": "list"}),
        ):
            with pytest.raises(PermissionError):
                await other.call("planner", method, payload)


@case("HPC-016")
async def test_dead_letters_are_listed_shown_replayed_and_discarded(home: Path) -> None:
    async with two(home) as (me, served):

        async def dead(action: str, **more: Any) -> Any:
            return await served.call("planner", "hermes.dead", {"action": action, **more})

        assert await dead("list") == []
        served.broken = CallError("nope", "broken")
        for id in ("m-3", "m-4"):
            await ended(await me.submit("worker", "breaks", {}, message_id=id))
        assert [row["message_id"] for row in await dead("list")] == ["m-3", "m-4"]
        view = await dead("show", message_id="m-3")
        assert view["error"]["reason"] == "nope" and view["payload"] == "{}" and view["state"] == "dead"
        served.broken = None
        view = await dead("replay", message_id="m-3")
        assert view["requeued_by"] == "worker" and view["requeued_ms"] and view["attempts"] == 0
        assert await me.ticket("m-3").result() == "repaired"
        assert await dead("discard", message_id="m-4") == {"message_id": "m-4", "discarded": True}
        assert await dead("list") == []
        for action in ("replay", "discard", "show"):
            with pytest.raises(CallError) as none:
                await dead(action, message_id="m-9")
            assert none.value.reason == "no_dead_letter"


async def test_a_stopped_journal_is_unavailable(home: Path) -> None:
    async with planner(home) as me, worker(home) as served:
        await (await me.submit("worker", "plain", {})).result()
        await empty(me, served)
        for agent in (me, served):
            agent._running().durable.journal._writer._stop(OSError("EIO"))  # type: ignore[union-attr]
        with pytest.raises(CallError) as failed:
            await me.call("worker", "hermes.settle", {"ids": ["x"]})
        assert failed.value.reason == "journal"
        with pytest.raises(CallError) as failed:
            async with me.stream("worker", "hermes.resume", {"message_id": "x"}) as items:
                _ = [item async for item in items]
        assert failed.value.reason == "journal"
