"""The bound: length-prefixed messages over TLS, no library, no flow control on streams, joined writes."""

from __future__ import annotations

import asyncio
import functools
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from bench import app
from bench.app import Inbox

HEAD = struct.Struct(">IIB")  # length, number, kind
ECHO, TOKENS, UPLOAD, ANSWER, TOKEN, END = range(6)
EARLY = 8192  # write before the turn of the loop is over, once so much waits: the other side can begin
_running: list[Any] = []


class _Side(asyncio.Protocol):
    def __init__(self, on_message: Callable[[_Side, int, int, bytes | bytearray], None]) -> None:
        self.on_message = on_message
        self.rest = bytearray()
        self.out: list[bytes] = []
        self.waiting = 0
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        for task in self.tasks:
            task.cancel()

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def data_received(self, data: bytes | bytearray) -> None:
        rest = self.rest
        if rest:
            rest += data
            data = rest
        at, size = 0, len(data)
        while size - at >= HEAD.size:
            length, number, kind = HEAD.unpack_from(data, at)
            end = at + HEAD.size + length
            if end > size:
                break
            self.on_message(self, kind, number, data[at + HEAD.size : end])
            at = end
        if data is rest:
            del rest[:at]
        elif at < size:
            rest += data[at:]

    def send(self, kind: int, number: int, body: bytes) -> None:
        if not self.out:
            asyncio.get_running_loop().call_soon(self.flush)
        self.out += (HEAD.pack(len(body), number, kind), body)
        self.waiting += len(body) + HEAD.size
        if self.waiting > EARLY:
            self.flush()

    def flush(self) -> None:
        if self.out:
            self.transport.write(b"".join(self.out))
            self.out.clear()
            self.waiting = 0


def _serve_one(side: _Side, kind: int, number: int, body: bytes) -> None:
    if kind == ECHO:
        side.send(ANSWER, number, app.dumps(app.loads(body)))
    elif kind == UPLOAD:
        side.send(ANSWER, number, app.dumps(app.upload(body)))
    else:
        task = asyncio.get_running_loop().create_task(_tokens(side, number, *app.loads(body)))
        side.tasks.add(task)
        task.add_done_callback(side.tasks.discard)


async def _tokens(side: _Side, number: int, n: int, spread: bool) -> None:
    async for token in app.tokens(n, spread):
        side.send(TOKEN, number, app.dumps(token))
        if not side.may_write.is_set():
            await side.may_write.wait()
    side.send(END, number, b"")


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    made = loop.create_server(lambda: _Side(_serve_one), app.HOST, port, ssl=app.tls("server"), backlog=1024)
    _running.append(await made)


@functools.cache
def _context() -> Any:
    return app.tls("client")


class Conn:
    def __init__(self, port: int) -> None:
        self.port = port
        self.last = 0
        self.waiting: dict[int, Any] = {}

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        _, self.side = await loop.create_connection(
            lambda: _Side(self._answered), app.HOST, self.port, ssl=_context(), server_hostname="localhost"
        )

    def _answered(self, side: _Side, kind: int, number: int, body: bytes) -> None:
        if kind == TOKEN:
            self.waiting[number].put(app.loads(body))
        elif kind == END:
            self.waiting.pop(number).put(Inbox.END)
        else:
            self.waiting.pop(number).set_result(app.loads(body))

    async def _call(self, kind: int, body: bytes) -> Any:
        self.last += 1
        future = self.waiting[self.last] = asyncio.get_running_loop().create_future()
        self.side.send(kind, self.last, body)
        return await future

    async def request(self, body: dict[str, Any]) -> Any:
        return await self._call(ECHO, app.dumps(body))

    async def upload(self, blob: bytes) -> Any:
        return await self._call(UPLOAD, blob)

    def stream(self, n: int, spread: bool = False) -> AsyncIterator[Any]:
        self.last += 1
        inbox = self.waiting[self.last] = Inbox()
        self.side.send(TOKENS, self.last, app.dumps([n, spread]))
        return inbox

    async def close(self) -> None:
        self.side.transport.close()
