"""The Unix socket: the binary form, the system's word on who is there, files that are not ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, LinkError, UsageError
from hermes_peer.doors import unix
from hermes_peer.wire.invoke import HEADER, HEADER_SIZE, Type
from tests.doors.rig import TRACE, Binary, demo, doors, packed
from tests.loops import case, until


async def test_a_call(home: Path) -> None:
    async with doors(home) as door:
        line = await Binary.open(door.socket)
        line.send("calculator", {"expression": "2+2", "task_id": "u1"})
        found = await line.next()
        assert found.meta.msg_type == Type.TASK_RESULT and found.meta.trace_id == TRACE
        assert found.payload == {"task_id": "u1", "status": "success", "result": 4}
        assert door.agent.seen == [(f"door:uid:{os.getuid()}", TRACE, "u1")]
        assert stat.S_IMODE(os.stat(door.socket).st_mode) == 0o600
        await line.close()
    assert not os.path.exists(door.socket)


async def test_streams_asks_and_cancels(home: Path) -> None:
    async with doors(home) as door:
        line = await Binary.open(door.socket)
        line.send("tokens", {"n": 2})
        kinds = [Type((await line.next()).meta.msg_type).name for _ in range(4)]
        assert kinds == ["STREAM_ITEM", "STREAM_ITEM", "STREAM_END", "TASK_RESULT"]
        line.send("ask")
        question = (await line.next(Type.INFO_REQUEST)).payload
        line.send(None, {"info_id": question["info_id"], "result": "blue"}, msg_type=Type.INFO_RESULT)
        assert (await line.next(Type.TASK_RESULT)).payload["result"] == {"answer": "blue"}
        line.send("sleep", {"s": 60})
        await door.agent.begun.wait()
        await line.close()
        await until(lambda: door.agent.ended == ["cancelled"])


@case("HPC-050")
async def test_lengths_and_sizes(home: Path) -> None:
    async with doors(home) as door:
        line = await Binary.open(door.socket)
        for size in (65_535, 65_536, 65_537, 1024 * 1024):
            line.send("echo", {"text": "😀" * (size // 4)})
            assert (await line.next()).payload["result"]["text"] == "😀" * (size // 4)
        for byte in packed("calculator", {"expression": "1"}):
            line.writer.write(bytes([byte]))
            await line.writer.drain()
            await asyncio.sleep(0)
        assert (await line.next()).payload["result"] == 1
        line.writer.write(packed("calculator", {"expression": "1"}) + packed("calculator", {"expression": "2"}))
        assert [(await line.next()).payload["result"] for _ in range(2)] == [1, 2]
        head = HEADER.pack(0x12, 1, 0, bytes(16), bytes(16), 30, bytes(16), 4 * 1024**3 - 1, 0)
        line.writer.write(head)
        refused = await line.next()
        assert refused.meta.msg_type == Type.ERROR and refused.payload["reason"] == "payload_too_large"
        assert await line.reader.read() == b""  # what follows could not be told from anything
        await line.close()


@case("HPC-052")
async def test_what_cannot_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix, "REST_S", 0.1)
    async with doors(home) as door:
        line = await Binary.open(door.socket)
        for body, reason in ((b"{", "invalid_json"), (b"[]", "payload_not_object"), (b"", "invalid_json")):
            line.writer.write(HEADER.pack(0x12, 1, 0, bytes(16), bytes(16), 30, bytes(16), len(body), 0) + body)
            answer = await line.next()
            assert (answer.meta.msg_type, answer.payload["reason"]) == (Type.ERROR, reason)
        for kind, zero, reason in ((99, 0, "unknown_type"), (1, 7, "reserved")):
            line.writer.write(HEADER.pack(0x12, kind, zero, bytes(16), bytes(16), 30, bytes(16), 2, 0) + b"{}")
            assert (await line.next()).payload["reason"] == reason
        line.send("calculator", {"expression": "1"})
        assert (await line.next()).payload["result"] == 1  # all of these left it open
        line.writer.write(packed("incr", {"task_id": "half"})[:-1])
        assert (await line.next()).payload["reason"] == "slow_message"
        assert await line.reader.read() == b""
        await line.close()
        early = await Binary.open(door.socket)
        early.writer.write(packed("incr", {"task_id": "half"})[: HEADER_SIZE + 3])
        await early.close()
        for text in (b"POST /hermes/v1/invoke HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 64, bytes(64)):
            web = await Binary.open(door.socket)
            web.writer.write(text)
            assert (await web.next()).payload["reason"] == "unsupported_version"
            with contextlib.suppress(ConnectionError):
                assert await web.reader.read() == b""
            await web.close()
        assert door.agent.counts == {}


async def opened(home: Path, path: Any) -> None:
    async with demo(home, socket=path):
        pass


@pytest.mark.attack(68, 69)
async def test_what_lies_at_the_path(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "door"
    path.write_text("a file")
    with pytest.raises(LinkError, match="no socket of this user"):
        await opened(home, path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LinkError, match="no socket of this user"):
        await opened(home, path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(LinkError, match="another program listens"):
            await opened(home, path)
    await opened(home, path)  # a dead one is replaced
    assert not path.exists()
    with pytest.raises(LinkError, match="cannot listen"):
        await opened(home, tmp_path / "no" / "folder")
    with pytest.raises(UsageError, match="at most 100"):
        await opened(home, "/tmp/" + "x" * 100)
    with pytest.raises(UsageError, match="takes a path"):
        await opened(home, {"paht": "x"})
    await opened(home, {"path": path, "mode": 0o660})


async def test_the_mode_is_there_from_the_beginning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    bind = socket.socket.bind

    def watched(self: socket.socket, address: Any) -> None:
        bind(self, address)
        if self.family == socket.AF_UNIX and "door" in str(address):
            modes.append(stat.S_IMODE(os.stat(address).st_mode))

    monkeypatch.setattr(socket.socket, "bind", watched)
    agent = HermesAgent("x", home=home, listen=False, socket={"path": home.parent / "door", "mode": 0o660})
    async with agent:
        assert modes == [0o660]


def test_no_word_of_the_system_is_nobody() -> None:
    with socket.socket(socket.AF_INET) as plain:
        assert unix.peer_uid(plain) in (None, 0xFFFFFFFF, -1, 4294967295)
