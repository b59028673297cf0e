"""How the two programs end at SIGTERM: the agent in an orderly way, then the process, with exit code 0.

Knows: signals. Refuses to know: what ends. Called by: planner, worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def outer() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            await main()
        except asyncio.CancelledError:
            os._exit(0)  # the thread that reads stdin would hold it

    asyncio.run(outer())
