"""Conversations: many tasks, asks back, items both ways, heartbeats, slow readers, goodbyes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from hermes_peer.access.tokens import add_token
from hermes_peer.agent import local
from hermes_peer.doors import talk as talks
from hermes_peer.wire.invoke import Type
from tests.doors.rig import TRACE, Binary, Talk, demo, doors, http, message
from tests.doors.test_websocket import closed, handshake
from tests.loops import until


async def test_a_stream_with_progress(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        await talk.send("tokens", {"n": 3, "task_id": "s"})
        kinds = []
        while True:
            found = await talk.next()
            kinds.append(Type(found["meta"]["msg_type"]).name)
            assert found["payload"]["task_id"] == "s" and found["meta"]["trace_id"] == TRACE
            if kinds[-1] == "TASK_RESULT":
                break
        assert kinds == ["STREAM_ITEM"] * 3 + ["STREAM_END", "TASK_RESULT"]
        assert found["payload"]["result"] == {"n": 3}


async def test_a_task_asks_back(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        await talk.send("ask", {"task_id": "a"})
        assert (await talk.next(Type.TASK_PROGRESS))["payload"] == {"task_id": "a", "state": "asking", "tokens_used": 3}
        asked = await talk.next(Type.INFO_REQUEST)
        assert asked["meta"]["trace_id"] == TRACE
        assert asked["payload"] | {"info_id": ""} == {
            "task_id": "a",
            "info_id": "",
            "tool": "what.colour",
            "payload": {"of": "sky"},
        }
        await talk.send(None, {"info_id": asked["payload"]["info_id"], "result": "blue"}, msg_type=7)
        assert (await talk.next(Type.TASK_ACK))["payload"]["status"] == "success"
        assert (await talk.result())["result"] == {"answer": "blue"}


async def test_an_ask_that_is_answered_by_an_error(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        await talk.send("ask")
        info_id = (await talk.next(Type.INFO_REQUEST))["payload"]["info_id"]
        error = {"info_id": info_id, "status": "error", "error_code": 10, "reason": "colour_blind", "detail": "no idea"}
        await talk.send(None, error, msg_type=7)
        result = await talk.result()
        assert (result["error_code"], result["reason"], result["detail"]) == (10, "colour_blind", "no idea")
        await talk.send(None, {"info_id": "q0"}, msg_type=7)
        assert (await talk.result())["reason"] == "unknown_question"


async def test_a_question_is_for_its_own_principal(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        await talk.send("ask")
        info_id = (await talk.next(Type.INFO_REQUEST))["payload"]["info_id"]
        token = add_token(door.agent._life.home, "other", 0)
        answer = await door.post(  # another principal knows the id, and may not answer
            message(None, {"info_id": info_id, "result": "red"}, msg_type=7), Authorization=f"Bearer {token}"
        )
        assert answer.payload["reason"] == "unknown_question"
        await talk.send(None, {"info_id": info_id, "result": "blue"}, msg_type=7)
        assert (await talk.result())["result"] == {"answer": "blue"}


async def test_items_go_up(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        await talk.send("sum", {"task_id": "u", "hermes": {"items": True}})
        for n in range(5):
            await talk.send(None, {"task_id": "u", "item": n}, msg_type=12)
        await talk.send(None, {"task_id": "u"}, msg_type=13)
        assert (await talk.result())["result"] == 10
        await talk.send(None, {"task_id": "u", "item": 1}, msg_type=12)
        assert (await talk.result())["reason"] == "unknown_task"
        await talk.send("sleep", {"s": 60, "task_id": "v", "hermes": {"items": True}})
        await talk.send(None, {"task_id": "v"}, msg_type=12)
        assert (await talk.next(Type.ERROR))["payload"]["details"]["field"] == "payload.item"
        await talk.send(None, {"task_id": "v", "item": "x" * (local.FEED_MAX + 1)}, msg_type=12)
        result = await talk.result()
        assert (result["error_code"], result["reason"]) == (6, "items_unread")


async def test_many_tasks_on_one_connection(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "TASKS_MAX", 3)
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        for n in range(4):
            await talk.send("sleep", {"s": 60, "task_id": f"m{n}"})
        refused = await talk.result()
        assert refused["task_id"] == "m3" and refused["error_code"] == 6 and refused["retryable"] is True
        assert refused["details"] == {"resource": "tasks", "used": 3, "total": 3}
        await talk.send("calculator", {"expression": "1"}, msg_type=8)  # a heartbeat is no task
        await talk.next(Type.HEARTBEAT_ACK)
        await talk.send(None, {"task_id": "m1"}, msg_type=4)
        assert (await talk.result())["reason"] == "cancelled"
        await talk.send("calculator", {"expression": "1"})
        assert (await talk.result())["result"] == 1


async def test_two_of_one_id_have_one_outcome(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        for _ in range(2):
            await talk.send("sleep", {"s": 0.05, "task_id": "two"})
        assert [(await talk.result())["result"] for _ in range(2)] == ["slept", "slept"]


async def test_a_slow_reader_pauses_its_own_generator_only(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        line.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.send(
            http("POST", "/hermes/v1/invoke", message("forever", {"size": 4000}), {"Accept": "text/event-stream"})
        )
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await door.agent.begun.wait()
        seen = -1
        while seen != door.agent.sent:  # until it rests
            seen = door.agent.sent
            await asyncio.sleep(0.1)
        # Kernel buffers, uvicorn's 64 KiB and our window: some megabytes, and no more.
        assert 4000 * seen < 12 * 1024 * 1024
        assert (await door.call("calculator", {"expression": "1+1"}))["result"] == 2
        line.writer.transport.abort()
        await until(lambda: door.agent.ended == ["forever"])


async def test_heartbeats_and_the_dead(home: Path) -> None:
    async with doors(home, http={"heartbeat_s": 0.05, "dead_s": 60}) as door, door.websocket() as line:
        talk = Talk(line)
        for _ in range(2):
            beat = await talk.next(Type.HEARTBEAT)
            assert beat["payload"] == {"agent": "calculator"}
            await talk.send(msg_type=9)  # HEARTBEAT_ACK: heard, and no answer to it
        await talk.send(msg_type=8)
        assert (await talk.next(Type.HEARTBEAT_ACK))["meta"]["msg_type"] == 9


async def test_who_gives_no_sign_is_dead(home: Path) -> None:
    async with doors(home, http={"heartbeat_s": 0.1, "dead_s": 0.3}) as door:
        line = await handshake(door)  # it answers neither pings nor heartbeats
        assert await closed(line) in (talks.DEAD, 1011)


async def test_silence_is_death_where_there_are_no_pings(home: Path) -> None:
    home.mkdir()
    agent = demo(home, socket={"path": home / "s", "heartbeat_s": 0.05, "dead_s": 0.3})
    async with agent:
        silent, lively = [await Binary.open(str(home / "s")) for _ in range(2)]
        assert (await silent.next(Type.HEARTBEAT)).meta.msg_type == 8
        heard = 0
        while not silent.reader.at_eof():
            await lively.next(Type.HEARTBEAT)
            lively.send(msg_type=Type.HEARTBEAT_ACK)
            heard += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(silent.reader.read(65536), 0.001)
        lively.send("calculator", {"expression": "1"})
        assert (await lively.next(Type.TASK_RESULT)).payload["result"] == 1 and heard > 2
        await silent.close()
        await lively.close()


async def test_goodbye_waits_for_what_runs(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        talk = Talk(line)
        await talk.send("sleep", {"s": 0.1, "task_id": "g"})
        await door.agent.begun.wait()
        await talk.send(msg_type=16)
        await talk.send("calculator", {"expression": "1"})
        assert (await talk.result())["reason"] == "goodbye"
        assert (await talk.result())["result"] == "slept"
        await talk.next(Type.GOODBYE)
        with pytest.raises(ConnectionClosed) as ended:
            await line.recv()
        assert ended.value.rcvd is not None and ended.value.rcvd.code == 1000


async def test_what_said_detach_outlives_its_connection(home: Path) -> None:
    async with doors(home) as door:
        async with door.websocket() as line:
            await Talk(line).send("sleep", {"s": 0.2, "task_id": "d", "hermes": {"detach": True}})
            await door.agent.begun.wait()
        async with door.websocket() as line:
            talk = Talk(line)
            await talk.send("sleep", {"s": 0.2, "task_id": "d", "hermes": {"detach": True}})
            assert (await talk.result())["result"] == "slept"
        assert door.agent.ended == []


async def test_events_over_it(home: Path) -> None:
    async with doors(home) as door, door.websocket() as line:
        await line.send(json.dumps(message("changed", {"what": "x"}, msg_type=14)))
        found = await Talk(line).next()
        assert found["meta"]["msg_type"] == 5 and found["payload"]["status"] == "success"
