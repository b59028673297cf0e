"""A small model server: HTTP by hand, server-sent events by script.

Knows: what one answer looks like on the wire. Refuses to know: who reads it. Called by: the tests of --model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

WORDS = ("A ", "tidy ", "code ", "base ", "– ", "你好 ", "🙂.")


def delta(text: str | None, **more: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, **more}]}, ensure_ascii=False)


GOOD = [delta(None), *map(delta, WORDS), delta(None, finish_reason="stop"), '{"choices":[],"usage":{"total_tokens":9}}']


class ModelServer:
    """`async with ModelServer(events) as server:` and give `server.url` to a client. `asked` holds the requests."""

    def __init__(self, events: list[str] = GOOD, *, status: int = 200, end: str = "[DONE]", slices: int = 0) -> None:
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.gone = 0
        self._events, self._status, self._end, self._slices = events, status, end, slices
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = next(
                int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-len")
            )
            self.paths.append(head.split(" ")[1])
            self.asked.append(json.loads(await reader.readexactly(size)))
            writer.write(
                f"HTTP/1.1 {self._status} X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n".encode()
            )
            async for part in self._body():
                writer.write(part)
                await writer.drain()
        self.gone += 1
        writer.close()

    async def _body(self) -> AsyncIterator[bytes]:
        lines = [": a comment to keep the line warm\n\n", *(f"data: {event}\n\n" for event in self._events)]
        whole = "".join([*lines, f"data: {self._end}\n\n" if self._end else ""]).encode()
        step = self._slices or len(whole) or 1
        for start in range(0, len(whole), step):
            yield whole[start : start + step]
            await asyncio.sleep(0)
