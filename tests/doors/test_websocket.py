"""The WebSocket: handshakes, both forms, limits, how it ends (HPC-059, HPC-062)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from hermes_peer.access.tokens import add_token, revoke_token
from hermes_peer.doors import guard
from hermes_peer.wire.invoke import Type, decode_binary
from tests.doors.rig import TRACE, Line, Rig, Talk, doors, message, packed
from tests.loops import case, until


async def test_text_frames(home: Path) -> None:
    async with doors(home) as door, door.websocket() as socket:
        talk = Talk(socket)
        await talk.send("calculator", {"expression": "2+2", "task_id": "w1"})
        found = await talk.next()
        assert found["meta"]["msg_type"] == 2 and found["meta"]["trace_id"] == TRACE
        assert found["payload"] == {"task_id": "w1", "status": "success", "result": 4}


async def test_binary_frames(home: Path) -> None:
    async with doors(home) as door, door.websocket() as socket:
        await socket.send(packed("calculator", {"expression": "2+2", "task_id": "w1"}))
        found = decode_binary(await socket.recv())  # type: ignore[arg-type]
        assert found.meta.msg_type == 2 and found.meta.trace_id == TRACE
        assert found.payload == {"task_id": "w1", "status": "success", "result": 4}
        await socket.send(json.dumps(message("calculator", {"expression": "1"})))
        assert json.loads(await socket.recv())["payload"]["result"] == 1  # each in its own form


def masked(opcode: int, data: bytes, *, fin: bool = True, size: int | None = None) -> bytes:
    """A frame as a client writes it; `size` is what it announces."""
    length = len(data) if size is None else size
    head = bytes([(0x80 if fin else 0) | opcode])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 65536:
        head += struct.pack(">BH", 0xFE, length)
    else:
        head += struct.pack(">BQ", 0xFF, length)
    return head + bytes(4) + data  # a mask of zeros changes nothing


async def handshake(door: Rig, **headers: str) -> Line:
    line = await door.line()
    fields = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    line.send(f"GET /hermes/v1/invoke HTTP/1.1\r\n{head}\r\n".encode())
    assert (await line.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return line


async def frame(line: Line) -> tuple[int, bytes]:
    first, second = await asyncio.wait_for(line.reader.readexactly(2), 10)
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(await line.reader.readexactly(2 if size == 126 else 8), "big")
    return first & 0x0F, await line.reader.readexactly(size)


async def closed(line: Line) -> int:
    """The code with which the door closes."""
    while True:
        opcode, data = await frame(line)
        if opcode == 8:
            return int.from_bytes(data[:2], "big")


def pieces(data: bytes, count: int) -> bytes:
    size = -(-len(data) // count)
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(masked(0 if i else 1, part, fin=i == len(parts) - 1) for i, part in enumerate(parts))


MIB = 1024 * 1024


@case("HPC-059")
async def test_the_limit_is_of_the_whole_message(home: Path) -> None:
    async with doors(home, http={"body_max": MIB}) as door:
        empty = len(json.dumps(message("large", {"n": 1, "x": ""})))
        line = await handshake(door)
        fits = json.dumps(message("echo", {"n": 1, "x": "y" * (MIB - empty + 1)})).encode()
        assert len(fits) == MIB
        for count in (1, 2, 1024):
            line.send(pieces(fits, count))
            opcode, data = await frame(line)
            assert opcode == 1 and json.loads(data)["payload"]["result"]["n"] == 1, count
        line.send(pieces(fits + b" ", 1025))
        assert await closed(line) == 1009
        for announced in (1 << 62, 4 << 30):
            line = await handshake(door)
            line.send(masked(1, b"", size=announced))
            assert await closed(line) == 1009
        line = await handshake(door)
        line.send(masked(1, b"", fin=False) + masked(0, b"", fin=False) * (guard.FRAGMENTS_MAX + 1))
        assert await closed(line) == 1009
        with_compression = await handshake(door, **{"Sec-WebSocket-Extensions": "permessage-deflate"})
        with_compression.send(bytes([0xC1, 0x80]) + bytes(4))  # a compressed frame, though nothing was agreed on
        assert await closed(with_compression) == 1002


@case("HPC-059")
async def test_half_a_message_times_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MESSAGE_S", 0.05)
    async with doors(home) as door, door.websocket() as other:
        for half in (masked(1, b"{", fin=False), masked(1, b"{", size=100)):
            line = await handshake(door)
            line.send(half)
            assert await closed(line) == 1008
        talk = Talk(other)  # which goes on undisturbed
        await talk.send("calculator", {"expression": "3"})
        assert (await talk.result())["result"] == 3


@case("HPC-062")
async def test_plain_ends_are_calm(home: Path) -> None:
    async with doors(home) as door:
        line = await handshake(door)
        line.send(masked(8, b""))  # a browser's close() without arguments
        assert await frame(line) == (8, b"")
        assert await line.ended() == b""
        for end in ("close", "fin", "rst"):
            door.agent.ended.clear()
            door.agent.begun.clear()
            line = await handshake(door)
            line.send(masked(1, json.dumps(message("forever")).encode()))
            await door.agent.begun.wait()
            if end == "close":
                line.send(masked(8, b""))
            elif end == "fin":
                line.writer.write_eof()
            else:
                line.writer.transport.abort()
            await until(lambda: door.agent.ended == ["forever"])
        # A call right before the close runs once or not at all.
        line = await handshake(door)
        line.send(masked(1, json.dumps(message("incr", {"task_id": "last"})).encode()) + masked(8, b""))
        await line.ended()
        assert door.agent.counts.get("last", 0) in (0, 1)


@case("HPC-062")
async def test_bad_documents_leave_it_open(home: Path) -> None:
    async with doors(home) as door, door.websocket() as socket:
        talk = Talk(socket)
        for bad in ('""', "[]", "null", '"x"', "{}", "", '{"meta":{}}{"meta":{}}', '{"payload": {}}', "\x00"):
            await socket.send(bad)
            found = await talk.next()
            assert found["meta"]["msg_type"] == 15 and found["payload"]["error_code"] == 2, bad
            assert found["payload"]["detail"] and found["payload"]["hint"]
        for garbage in (b'{"meta":{}}', b"\x00" * 64, os.urandom(200), b""):
            await socket.send(garbage)
            answer = decode_binary(await socket.recv())  # type: ignore[arg-type]
            assert answer.meta.msg_type == 15 and answer.payload["error_code"] == 2
        await talk.send("incr", {"task_id": "again"})
        await talk.send("incr", {"task_id": "again"})
        assert [(await talk.result())["result"] for _ in range(2)] == [1, 1]  # an id used again on one socket
        await talk.send("value", {"what": "nan"})
        assert (await talk.result())["error_code"] == 7  # HPC-048: the socket stays up


@case("HPC-050")
async def test_sizes_and_single_bytes(home: Path) -> None:
    async with doors(home) as door:
        line = await handshake(door)
        for size in (65_535, 65_536, 65_537, MIB - 1):
            text = "😀" * (size // 4) + "x" * (size % 4)
            line.send(masked(1, json.dumps(message("echo", {"text": text}), ensure_ascii=False).encode()))
            assert json.loads((await frame(line))[1])["payload"]["result"]["text"] == text
        for byte in masked(1, json.dumps(message("calculator", {"expression": "1"})).encode()):
            line.send(bytes([byte]))
            await line.writer.drain()
            await asyncio.sleep(0)
        assert json.loads((await frame(line))[1])["payload"]["result"] == 1
        line.send(masked(1, b"x" * 100, size=4 << 30))
        assert await closed(line) == 1009


async def test_who_is_not_let_in_gets_no_socket(home: Path) -> None:
    async with doors(home, http={"origins": ["https://good.example"]}) as door:
        token = add_token(door.agent._life.home, "page", 0)

        async def status(**headers: str) -> int:
            with pytest.raises(InvalidStatus) as refused:
                await door.websocket(additional_headers=headers, origin=headers.pop("Origin", None))
            body = json.loads(refused.value.response.body)
            assert body["payload"]["status"] == "error"
            return refused.value.response.status_code

        assert await status(Origin="https://evil.example") == 403
        assert await status(Origin="https://good.example") == 401
        assert await status(Authorization="Bearer hp_" + "A" * 43) == 401
        async with door.websocket(
            origin="https://good.example", subprotocols=["hermes.v1", f"token.{token}"]
        ) as socket:
            assert socket.subprotocol == "hermes.v1"
            talk = Talk(socket)
            await talk.send("calculator", {"expression": "1"})
            assert (await talk.result())["error_code"] == 8  # the token has a name, and no rule yet


async def test_a_revoked_token_ends_the_socket(home: Path) -> None:
    async with doors(home, http={"heartbeat_s": 0.05, "dead_s": 30}) as door:
        token = add_token(door.agent._life.home, "page", 0)
        async with door.websocket(additional_headers={"Authorization": f"Bearer {token}"}) as socket:
            revoke_token(door.agent._life.home, "page")
            with pytest.raises(ConnectionClosed) as ended:
                await asyncio.wait_for(_drained(socket), 5)
            assert ended.value.rcvd is not None and ended.value.rcvd.code == 1008


async def test_other_upgrades_and_plain_gets(home: Path) -> None:
    async with doors(home) as door:
        plain = await door.request("GET")
        assert plain.status == 405 and plain.headers["allow"] == "POST, OPTIONS"
        other = await door.request("GET", headers={"Connection": "Upgrade", "Upgrade": "h2c"})
        assert other.status == 405
        wrong = await door.request("GET", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
        assert wrong.status == 400


async def test_the_agent_s_end_says_goodbye(home: Path) -> None:
    async with doors(home) as door, door.websocket() as socket:
        talk = Talk(socket)
        await talk.send(msg_type=8)
        assert (await talk.next(Type.HEARTBEAT_ACK))["payload"]["state"] == "ready"
        closing = asyncio.ensure_future(door.agent.aclose())
        assert (await talk.next(Type.GOODBYE))["payload"]["reason"] == "the agent ends"
        with pytest.raises(ConnectionClosed) as ended:
            await socket.recv()
        assert ended.value.rcvd is not None and ended.value.rcvd.code == 1001
        await closing


async def _drained(socket: ClientConnection) -> None:
    while True:
        await socket.recv()
