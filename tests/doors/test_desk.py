"""The desk: who this agent is in meta, what a payload's own members are."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hermes_peer import CallError
from hermes_peer.doors.desk import Desk, task_id_of
from hermes_peer.wire.invoke import BadMessage, Message, Meta, Type, stable_agent_id
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


async def test_durable_on_request(home: Path) -> None:
    """Durable work is the journal's: taken by its id, done once, answered again."""
    async with doors(home) as door:
        order = {"task_id": "keep", "hermes": {"durable": True}}
        first = await door.call("incr", order)
        again = await door.call("incr", order)
        assert first["result"] == again["result"] == 1 and door.agent.counts == {"keep": 1}
