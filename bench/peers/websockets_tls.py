"""websockets, its asyncio face; compression off (on is slower), a task per request, as multiplexing needs."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve as listen
from websockets.exceptions import ConnectionClosed

from bench import app
from bench.peers._calls import Calls

OPTIONS: dict[str, Any] = {"compression": None, "max_size": None, "ping_interval": None}
_running: list[Any] = []


async def _answer(socket: Any, number: int, kind: str, body: Any) -> None:
    if kind == "echo":
        await socket.send(app.dumps([number, await app.echo(body)]), text=True)
        return
    async for token in app.tokens(*body):
        await socket.send(app.dumps([number, token]), text=True)
    await socket.send(app.dumps([number, None]), text=True)


async def _serve_one(socket: Any) -> None:
    tasks: set[asyncio.Task[None]] = set()
    try:
        while True:
            message = await socket.recv(decode=False)
            if message[:1] == b"[":
                task = asyncio.create_task(_answer(socket, *app.loads(message)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:  # "U", number, blob
                answer = [int.from_bytes(message[1:5], "big"), app.upload(memoryview(message)[5:])]
                await socket.send(app.dumps(answer), text=True)
    except ConnectionClosed:
        for task in tasks:
            task.cancel()


async def serve(port: int) -> None:
    _running.append(await listen(_serve_one, app.HOST, port, ssl=app.tls("server"), backlog=1024, **OPTIONS))


@functools.cache
def _context() -> Any:
    return app.tls("client")


class Conn(Calls):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    async def open(self) -> None:
        self.socket = await connect(f"wss://{app.HOST}:{self.port}", ssl=_context(), proxy=None, **OPTIONS)
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                self.answered(*app.loads(await self.socket.recv(decode=False)))
        except ConnectionClosed:
            pass

    async def send(self, message: bytes) -> None:
        await self.socket.send(message, text=True)

    async def upload(self, blob: bytes) -> Any:
        future = asyncio.get_running_loop().create_future()
        await self.socket.send(b"U" + self.begin(future).to_bytes(4, "big") + blob)
        return await future

    async def close(self) -> None:
        await self.socket.close()
        await self.reader
