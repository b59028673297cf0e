"""runtime/threads: threads for handlers that block."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from hermes_peer.runtime.threads import Threads
from tests.loops import until


def test_no_more_threads_than_needed_and_allowed() -> None:
    pool = Threads("t", most=3)
    assert pool.submit(lambda: 7).result(5) == 7
    for _ in range(20):
        pool.submit(int).result(5)
        time.sleep(0.001)
    assert pool.alive <= 2
    gate = threading.Event()
    waiting = [pool.submit(gate.wait, 5) for _ in range(8)]
    assert pool.alive == 3
    while pool.waiting != 5:
        time.sleep(0.001)
    gate.set()
    assert all(future.result(5) for future in waiting)
    assert pool.waiting == 0
    pool.shutdown()


def test_errors_and_what_a_future_cannot_carry() -> None:
    pool = Threads("t")
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(5)
    with pytest.raises(RuntimeError, match="StopIteration"):
        pool.submit(lambda: next(iter(()))).result(5)
    with pytest.raises(SystemExit):
        pool.submit(exit).result(5)
    assert pool.submit(max, 1, 2, key=lambda x: -x).result(5) == 1
    pool.shutdown()


def test_shutdown_cancels_what_waits_and_the_next_submit_begins_anew() -> None:
    pool = Threads("t", most=1)
    gate = threading.Event()
    first, second = pool.submit(gate.wait, 5), pool.submit(int)
    pool.shutdown()
    assert second.cancelled() and not first.done()
    assert pool.submit(int).result(5) == 0
    gate.set()
    assert first.result(5)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("t-")]
    pool.shutdown()
    for thread in threads:
        thread.join(2)
        assert not thread.is_alive() and thread.daemon


def test_a_thread_keeps_no_context_of_who_made_it() -> None:
    var: contextvars.ContextVar[int] = contextvars.ContextVar("var", default=0)
    var.set(1)
    pool = Threads("t")
    assert pool.submit(var.get).result(5) == 0
    pool.shutdown()


async def test_as_an_executor() -> None:
    pool = Threads("t", most=1)
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(pool, int, "7") == 7
    gate = threading.Event()
    first = loop.run_in_executor(pool, gate.wait, 5)
    second = loop.run_in_executor(pool, int)
    await until(lambda: pool.waiting == 1)
    second.cancel()
    gate.set()
    assert await first
    await until(lambda: pool.waiting == 0)
    pool.shutdown()
