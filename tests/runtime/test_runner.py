"""runtime/runner: a coroutine that runs at once, and is a task only if it has to wait."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from hermes_peer.runtime.runner import Runner
from tests.loops import both_loops

var: contextvars.ContextVar[int] = contextvars.ContextVar("var", default=0)


def on_loop(function: Callable[[], Any]) -> Any:
    """Call it from a bare callback, as a transport does; its result."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def call() -> None:
        assert asyncio.current_task() is None
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    loop.call_soon(call)
    return future


class Ends:
    def __init__(self) -> None:
        self.all: list[tuple[Any, BaseException | None]] = []
        self.first = asyncio.get_running_loop().create_future()

    def __call__(self, value: Any, error: BaseException | None) -> None:
        self.all.append((value, error))
        if not self.first.done():
            self.first.set_result((value, error))


def start(runner: Runner, coroutine: Any, ends: Ends, n: int = 0) -> Any:
    context = contextvars.copy_context()
    context.run(var.set, n)
    return on_loop(lambda: runner.start(coroutine, context, ends))


@both_loops
async def test_what_never_waits_makes_no_task(loop_kind: str) -> None:
    runner, ends = Runner(asyncio.get_running_loop()), Ends()

    async def quick() -> Any:
        return asyncio.current_task(), var.get()

    assert await start(runner, quick(), ends, 3) is None
    assert await start(runner, quick(), ends, 4) is None
    (first, a), (second, b) = (value for value, _ in ends.all)
    assert first is second is not None and (a, b) == (3, 4)
    assert not runner.tasks
    await asyncio.gather(*runner.close(), return_exceptions=True)


@both_loops
async def test_the_task_is_the_same_across_awaits(loop_kind: str) -> None:
    runner, ends = Runner(asyncio.get_running_loop()), Ends()

    async def slow(n: int) -> Any:
        tasks = {asyncio.current_task()}
        for _ in range(3):
            await asyncio.sleep(0.001)
            tasks.add(asyncio.current_task())
            assert var.get() == n
        return tasks

    tasks = [await start(runner, slow(n), ends, n) for n in range(10)]
    await asyncio.gather(*tasks)
    assert len(set(tasks)) == 10
    assert all(len(value) == 1 for value, _ in ends.all)
    assert {next(iter(value)) for value, _ in ends.all} == set(tasks)
    await asyncio.gather(*runner.close(), return_exceptions=True)


@pytest.mark.parametrize("waits", [False, True])
async def test_exceptions(waits: bool) -> None:
    runner = Runner(asyncio.get_running_loop())
    for kind in (LookupError, asyncio.CancelledError, SystemExit, GeneratorExit):
        ends = Ends()

        async def fails(kind: Any = kind) -> None:
            if waits:
                await asyncio.sleep(0)
            raise kind

        await start(runner, fails(), ends)
        _, error = await ends.first
        assert type(error) is kind and len(ends.all) == 1
    await asyncio.gather(*runner.close(), return_exceptions=True)


async def test_an_interrupt_is_told_and_goes_on() -> None:
    runner, ends = Runner(asyncio.get_running_loop()), Ends()

    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await start(runner, interrupted(), ends)
    assert isinstance(ends.all[0][1], KeyboardInterrupt)
    await asyncio.gather(*runner.close(), return_exceptions=True)


@both_loops
async def test_cancelled_before_the_carrier_has_begun(loop_kind: str) -> None:
    runner, log = Runner(asyncio.get_running_loop()), []

    async def waits() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # its `finally` may wait
            log.append("cancelled")
            raise
        return "no"

    for how in ("runner", "task"):
        ends = Ends()

        def at_once(how: str = how, ends: Ends = ends) -> None:
            task = runner.start(waits(), contextvars.copy_context(), ends)
            assert task is not None
            if how == "runner":
                runner.cancel(task)
            else:
                task.cancel()  # as asyncio.run does at its end

        await on_loop(at_once)
        _, error = await ends.first
        assert isinstance(error, asyncio.CancelledError) and len(ends.all) == 1
    assert log == ["cancelled"]  # the other was closed, which is all that is left to do then
    await asyncio.gather(*runner.close(), return_exceptions=True)


@both_loops
async def test_a_cancel_reaches_what_is_awaited(loop_kind: str) -> None:
    loop = asyncio.get_running_loop()
    runner, ends = Runner(loop), Ends()
    child = loop.create_task(asyncio.sleep(30))

    async def waits() -> None:
        await child

    task = await start(runner, waits(), ends)
    runner.cancel(task)
    _, error = await ends.first
    assert isinstance(error, asyncio.CancelledError) and child.cancelled()
    await asyncio.gather(*runner.close(), return_exceptions=True)


async def test_an_idle_task_that_was_cancelled_is_not_used_again() -> None:
    runner, ends = Runner(asyncio.get_running_loop()), Ends()

    async def itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def waits() -> str:
        await asyncio.sleep(0)
        return "done"

    await start(runner, itself(), ends)
    await start(runner, waits(), ends)
    await asyncio.sleep(0.01)
    assert ends.all == [(None, None), ("done", None)]
    await asyncio.gather(*runner.close(), return_exceptions=True)


async def test_started_from_inside_a_task() -> None:
    runner, ends = Runner(asyncio.get_running_loop()), Ends()
    me = asyncio.current_task()

    async def nested() -> Any:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return first is asyncio.current_task() and first is not me

    task = runner.start(nested(), contextvars.copy_context(), ends)
    assert task is not None and asyncio.current_task() is me
    assert await ends.first == (True, None)


@both_loops
async def test_scopes_in_the_first_step(loop_kind: str) -> None:
    runner = Runner(asyncio.get_running_loop())

    async def scopes() -> str:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            a = group.create_task(asyncio.sleep(0.001, "a"))
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(1)
        except TimeoutError:
            pass
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_fails())
                await asyncio.sleep(5)
        except* LookupError:
            pass
        return a.result() + str(asyncio.current_task().cancelling())  # type: ignore[union-attr]

    for _ in range(5):
        ends = Ends()
        await start(runner, scopes(), ends)
        assert await ends.first == ("a0", None)
    await asyncio.gather(*runner.close(), return_exceptions=True)


async def _fails() -> None:
    raise LookupError
