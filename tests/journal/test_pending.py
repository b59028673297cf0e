"""Promises: waited for by loops and threads; one wake-up per loop; never cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hermes_peer.journal.pending import Pending, keep
from tests.loops import both_loops


@both_loops
async def test_many_wait_and_the_loop_is_woken_once(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, woken = asyncio.get_running_loop(), 0
    promises: list[Pending[int]] = [Pending() for _ in range(50)]
    tasks = [asyncio.ensure_future(wait(promise)) for promise in promises]
    await asyncio.sleep(0)

    class Loop:
        def call_soon_threadsafe(self, *call: Any) -> None:
            nonlocal woken
            woken += 1
            loop.call_soon_threadsafe(*call)

    fake = Loop()
    import hermes_peer.journal.pending as module

    real = module._call
    monkeypatch.setattr(module, "_call", lambda _, wakes: real(fake, wakes))  # type: ignore[arg-type]
    threading.Thread(target=keep, args=([(p, i, None) for i, p in enumerate(promises)],)).start()
    assert await asyncio.gather(*tasks) == list(range(50))
    assert woken == 1


@both_loops
async def test_an_error_is_raised_where_it_is_awaited(loop_kind: str) -> None:
    promise: Pending[int] = Pending()
    keep([(promise, None, ZeroDivisionError())])
    with pytest.raises(ZeroDivisionError):
        await promise
    with pytest.raises(ZeroDivisionError):
        promise.result()


@both_loops
async def test_a_waiter_that_goes_away_cancels_nothing(loop_kind: str) -> None:
    promise: Pending[int] = Pending()
    task = asyncio.ensure_future(wait(promise))
    other = asyncio.ensure_future(wait(promise))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert not promise.cancel() and not promise.done()
    keep([(promise, 7, None)])
    assert promise.result() == await other == 7


async def test_kept_while_somebody_begins_to_wait() -> None:
    """The race between keeping and waiting, many times: nobody waits for ever."""
    with ThreadPoolExecutor(1) as pool:
        for _ in range(300):
            promise: Pending[int] = Pending()
            kept = pool.submit(keep, [(promise, 1, None)])
            assert await asyncio.wait_for(wait(promise), 5) == 1
            kept.result()


def test_a_closed_loop_hinders_nobody() -> None:
    promise: Pending[int] = Pending()
    loop = asyncio.new_event_loop()
    task = loop.create_task(wait(promise))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    keep([(promise, 1, None)])
    assert promise.result() == 1


async def wait(promise: Pending[int]) -> int:
    return await promise
