"""The user's own beginning and end around an agent's run: one task for both, so that cancel scopes and task groups
that he opens before his `yield` are closed by the task that opened them.

Knows: an async generator function. Refuses to know: what it sets up. Called by: life.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any


class Lifespan:
    """`begin` returns once the function has reached its `yield`; `end` once it has ended. Both raise what it raises."""

    def __init__(self, function: Callable[[Any], Any], agent: Any) -> None:
        self._make = contextlib.asynccontextmanager(function)
        self._agent = agent
        self._ready = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._task = task = asyncio.get_running_loop().create_task(self._run())
        await asyncio.wait([task, self._ready], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            self._task = None
            await task

    async def end(self) -> None:
        """Harmless twice, and if it never began."""
        task, self._task = self._task, None
        if task is not None:
            self._over.set()
            if not self._ready.done():
                task.cancel()  # it was still beginning
                await asyncio.gather(task, return_exceptions=True)
            else:
                await task

    async def _run(self) -> None:
        async with self._make(self._agent):
            self._ready.set_result(None)
            await self._over.wait()
