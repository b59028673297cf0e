"""The promise of a commit: a concurrent future that can be awaited too, woken once per loop and batch.

Knows: futures and loops. Refuses to know: what was promised. Called by: the writer, which keeps promises in batches;
everybody who commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Wakes = dict[asyncio.AbstractEventLoop, list[Callable[[], None]]]


class Pending(Future[T]):
    """The answer of the writer thread: `await` it in a loop, or call `result(timeout)` in a thread.

    It cannot be cancelled: what was handed in is carried out, also if nobody waits any more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wakes: Wakes | None = None
        self.set_running_or_notify_cancel()

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            self.add_done_callback(partial(_wake, loop, waiter))
            yield from waiter
        return self.result()


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], pending: Future[Any]) -> None:
    """Runs in the thread that keeps the promise, or at once in the loop if it was kept in the meantime."""
    wakes = pending._wakes if isinstance(pending, Pending) else None
    if asyncio._get_running_loop() is loop:
        _set(waiter)
    elif wakes is None:
        _call(loop, [partial(_set, waiter)])
    else:
        wakes.setdefault(loop, []).append(partial(_set, waiter))


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _call(loop: asyncio.AbstractEventLoop, wakes: list[Callable[[], None]]) -> None:
    try:
        loop.call_soon_threadsafe(_all, wakes)
    except RuntimeError:  # the loop is closed: nobody waits there
        pass


def _all(wakes: list[Callable[[], None]]) -> None:
    for wake in wakes:
        wake()


def keep(promises: list[tuple[Pending[Any], Any, BaseException | None]]) -> None:
    """Set all results (or errors); each loop that waits for some of them is woken once."""
    wakes: Wakes = {}
    for pending, result, error in promises:
        pending._wakes = wakes
        if error is not None:
            pending.set_exception(error)
        else:
            pending.set_result(result)
        pending._wakes = None
    for loop, list_ in wakes.items():
        _call(loop, list_)
