"""The desk: who this agent is in meta, what a payload's own members are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError
from hermes_peer.agent.local import LocalCall
from hermes_peer.doors.desk import Desk, task_id_of
from hermes_peer.wire.invoke import BadMessage, Message, Meta, Type, stable_agent_id
from hermes_peer.wire.messages import Kind
from tests.doors.rig import demo, doors


async def test_the_id_of_an_agent_is_stable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_PEER_ENV", raising=False)
    agent = demo(home)
    assert Desk(agent).uuid == stable_agent_id("calculator", "prod", socket.gethostname())
    monkeypatch.setenv("HERMES_PEER_ENV", "staging")
    assert Desk(agent).uuid == stable_agent_id("calculator", "staging", socket.gethostname()) != ""


async def test_an_agent_that_does_not_run(home: Path) -> None:
    desk = Desk(demo(home))
    message = Message(Meta(Type.TASK_REQUEST, ttl=5), {})
    for wrong in (lambda: desk.begin("door:x", message), lambda: desk.description("door:x")):
        with pytest.raises(CallError) as stopped:
            wrong()
        assert stopped.value.code == 9 and stopped.value.retryable


def test_task_ids() -> None:
    payload = {"task_id": "x", "y": 1}
    assert task_id_of(payload) == "x" and payload == {"y": 1}
    assert task_id_of({}) == "" and task_id_of({"task_id": None}) == ""
    for bad in ("", " \n", 1, [], "x" * 129, "é"):
        with pytest.raises(BadMessage):
            task_id_of({"task_id": bad})


async def test_the_items_of_durable_work_are_its_principals(home: Path) -> None:
    """From any index on, and while it runs; nobody else finds it."""
    async with doors(home) as door:
        gate = asyncio.Event()

        @door.agent.method("words", public=True)
        async def words() -> AsyncIterator[str]:
            for word in ("a", "b", "c"):
                yield word
            await gate.wait()
            yield "d"

        reader = door.agent.serve("door:loopback", "words", message_id="w", durable=True)
        assert await reader.next_message() == bytes([Kind.ACCEPTED])
        early = door.agent.serve("door:loopback", "hermes.resume", b'{"message_id":"w","offset":1}')
        items = [item async for item in _some(early, 2)]
        gate.set()
        assert items == ["b", "c"] and [item async for item in early] == ["d"] and await reader.result() is None
        stranger = door.agent.serve("door:other", "hermes.resume", b'{"message_id":"w"}')
        with pytest.raises(CallError, match="no work w of yours"):
            await stranger.result()
        for who, gone in (("door:other", 0), ("door:loopback", 1)):
            assert await door.agent.serve(who, "hermes.settle", b'{"ids":["w"]}').result() == gone


async def _some(call: LocalCall, count: int) -> AsyncIterator[Any]:
    async for item in call:
        yield item
        count -= 1
        if not count:
            return


async def test_durable_on_request(home: Path) -> None:
    """Durable work is the journal's: taken by its id, done once, answered again."""
    async with doors(home) as door:
        order = {"task_id": "keep", "hermes": {"durable": True}}
        first = await door.call("incr", order)
        again = await door.call("incr", order)
        assert first["result"] == again["result"] == 1 and door.agent.counts == {"keep": 1}
