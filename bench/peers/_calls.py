"""Requests and streams by number, for peers that carry messages and know no calls.

Messages to the server are [id, "echo", body] and [id, "tokens", [n, spread]]; answers are [id, body], a stream's
end [id, null].
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bench.app import Inbox, dumps


class Calls:
    """The client's side. The peer gives `send(bytes)`, and hands answers to `answered`."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, Any] = {}

    async def send(self, message: bytes) -> None:
        raise NotImplementedError

    def begin(self, waiting: Any) -> int:
        self._last += 1
        self._open[self._last] = waiting
        return self._last

    async def request(self, body: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        await self.send(dumps([self.begin(future), "echo", body]))
        return await future

    async def stream(self, n: int, spread: bool = False) -> AsyncIterator[Any]:
        inbox = Inbox()
        await self.send(dumps([self.begin(inbox), "tokens", [n, spread]]))
        async for token in inbox:
            yield token

    def answered(self, number: int, body: Any) -> None:
        waiting = self._open[number]
        if type(waiting) is not Inbox:
            del self._open[number]
            waiting.set_result(body)
        elif body is None:
            del self._open[number]
            waiting.put(Inbox.END)
        else:
            waiting.put(body)
