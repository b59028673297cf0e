"""Coroutine tests, each in an event loop of its own, that must leave nothing behind.

A conftest takes it in with `from tests.loops import *`. `@both_loops` runs a test on asyncio's own loop and on uvloop;
else HERMES_TEST_LOOP chooses (default: asyncio's own).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["TIMEOUT_S", "both_loops", "case", "fds", "loop_kind", "pytest_pyfunc_call", "until"]

TIMEOUT_S = 60.0
both_loops = pytest.mark.parametrize("loop_kind", ["asyncio", "uvloop"])
case = pytest.mark.case


@pytest.fixture
def loop_kind() -> str:
    return os.environ.get("HERMES_TEST_LOOP", "asyncio")


def fds() -> set[str]:
    """What our descriptors lead to; those that are gone while we look are not counted."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found


async def until(true: Callable[[], Any], seconds: float = 15.0) -> None:
    """Wait until `true()` holds. Raises AssertionError."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"did not come true within {seconds:g} s: {inspect.getsource(true).strip()}"
        await asyncio.sleep(0.002)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    kind = pyfuncitem.funcargs.get("loop_kind") or os.environ.get("HERMES_TEST_LOOP", "asyncio")
    complaints: list[dict[str, Any]] = []
    before = fds()
    with asyncio.Runner(loop_factory=_factory(kind)) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        runner.run(asyncio.wait_for(_clean(test(**arguments)), TIMEOUT_S))
        gc.collect()
        runner.run(asyncio.sleep(0))
    assert not complaints, f"the loop complained: {complaints}"
    left = {fd for fd in fds() - before if "socket" in fd or "eventpoll" in fd}
    assert not left, f"descriptors are left open: {left}"
    return True


def _factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


async def _clean(test: Any) -> None:
    """Run it, and see that its tasks have ended."""
    before = asyncio.all_tasks()
    await test
    end = time.monotonic() + 2
    while left := [task for task in asyncio.all_tasks() - before if not task.done()]:
        assert time.monotonic() < end, f"tasks still run: {left}"
        await asyncio.sleep(0.005)
