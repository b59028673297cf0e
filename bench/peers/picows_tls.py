"""picows: WebSocket in Cython. Echo is answered inside the callback, with no task: its upper bound, no fair server."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from picows import WSListener, WSMsgType, ws_connect, ws_create_server

from bench import app
from bench.peers._calls import Calls

_running: list[Any] = []


class _Side(WSListener):
    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()
        self.may_write.set()

    def on_ws_connected(self, transport: Any) -> None:
        self.transport = transport

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()


class _Server(_Side):
    def __init__(self) -> None:
        super().__init__()
        self.tasks: set[asyncio.Task[None]] = set()

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            number, kind, body = app.loads(frame.get_payload_as_memoryview())
            if kind == "echo":
                transport.send(WSMsgType.TEXT, app.dumps([number, body]))
                return
            task = asyncio.get_running_loop().create_task(self._tokens(number, *body))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        elif frame.msg_type == WSMsgType.BINARY:
            blob = frame.get_payload_as_memoryview()
            answer = [int.from_bytes(blob[:4], "big"), app.upload(blob[4:])]
            transport.send(WSMsgType.TEXT, app.dumps(answer))
        elif frame.msg_type == WSMsgType.CLOSE:
            transport.send_close()
            transport.disconnect()

    async def _tokens(self, number: int, n: int, spread: bool) -> None:
        async for token in app.tokens(n, spread):
            self.transport.send(WSMsgType.TEXT, app.dumps([number, token]))
            if not self.may_write.is_set():
                await self.may_write.wait()
        self.transport.send(WSMsgType.TEXT, app.dumps([number, None]))


class _Client(_Side):
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self.calls.answered(*app.loads(frame.get_payload_as_memoryview()))


async def serve(port: int) -> None:
    options = {"ssl": app.tls("server"), "backlog": 1024, "websocket_handshake_timeout": 30}
    _running.append(await ws_create_server(lambda _: _Server(), app.HOST, port, **options))


@functools.cache
def _context() -> Any:
    return app.tls("client")


class Conn(Calls):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    async def open(self) -> None:
        url = f"wss://{app.HOST}:{self.port}/"
        self.transport, _ = await ws_connect(lambda: _Client(self), url, ssl_context=_context())

    async def send(self, message: bytes) -> None:
        self.transport.send(WSMsgType.TEXT, message)

    async def upload(self, blob: bytes) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.transport.send(WSMsgType.BINARY, self.begin(future).to_bytes(4, "big") + blob)
        return await future

    async def close(self) -> None:
        self.transport.disconnect()
        await self.transport.wait_disconnected()
