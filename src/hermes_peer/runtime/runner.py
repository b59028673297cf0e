"""Runs a coroutine at once, and makes it a task only if it has to wait.

Knows: asyncio's tasks. Refuses to know: calls. Called by: the agent's serving side.

A Task per request costs a fifth of the call rate. Here the first step runs under an idle, real Task, so that
`current_task()`, `asyncio.timeout` and cancel scopes see the task that later carries the coroutine on; if the
coroutine ends without waiting, the idle task is used again.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

_enter_task = asyncio.tasks._enter_task
_leave_task = asyncio.tasks._leave_task

Done = Callable[[Any, BaseException | None], None]


class _Job:
    """What an idle task will carry on with, once there is something to carry on."""

    __slots__ = ("context", "coroutine", "done", "waiting_on", "wake")

    def __init__(self, wake: asyncio.Future[None]) -> None:
        self.wake = wake
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.waiting_on: Any = None
        self.context: contextvars.Context | None = None
        self.done: Done | None = None


class Runner:
    """`start` never raises what the coroutine raises: `done(value, error)` hears it, at once or later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: asyncio.Task[None] | None = None
        self._job: _Job | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def start(
        self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context, done: Done
    ) -> asyncio.Task[None] | None:
        """Run the first step now. Returns the task that carries the rest on, or None if there is no rest."""
        loop = self._loop
        task = self._idle
        if task is None or task.cancelling():  # a first step may have cancelled itself, or somebody all tasks
            task = self._make_idle()
        around = asyncio.current_task(loop)  # a door calls from inside a task: it steps aside for this one step
        if around is not None:
            _leave_task(loop, around)
        _enter_task(loop, task)
        try:
            waiting_on = context.run(coroutine.send, None)
        except StopIteration as stop:
            value, error = stop.value, None
        except KeyboardInterrupt as raised:
            done(None, raised)
            raise
        except BaseException as raised:
            value, error = None, raised
        else:
            job, self._idle, self._job = self._job, None, None
            assert job is not None
            return self._carry((task, job), coroutine, waiting_on, context, done)
        finally:
            _leave_task(loop, task)
            if around is not None:
                _enter_task(loop, around)
        done(value, error)
        return None

    def close(self) -> list[asyncio.Task[None]]:
        """Cancel everything that still runs; returns it."""
        tasks = [*self.tasks, *([self._idle] if self._idle else [])]
        for task in tasks:
            self.cancel(task)
        self._idle = self._job = None
        return tasks

    def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel what `start` has returned: after its carrier took over, else the coroutine would not see it."""
        self._loop.call_soon(task.cancel)

    def _make(self) -> tuple[asyncio.Task[None], _Job]:
        job = _Job(self._loop.create_future())
        return self._loop.create_task(_carrier(job)), job

    def _make_idle(self) -> asyncio.Task[None]:
        self._idle, self._job = self._make()
        return self._idle

    def _carry(
        self,
        made: tuple[asyncio.Task[None], _Job],
        coroutine: Coroutine[Any, Any, Any],
        waiting_on: Any,
        context: contextvars.Context,
        done: Done,
    ) -> asyncio.Task[None]:
        task, job = made
        job.coroutine, job.waiting_on, job.context, job.done = coroutine, waiting_on, context, done
        if not job.wake.done():
            job.wake.set_result(None)
        self.tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            if job.done is not None:  # cancelled by somebody else before the carrier took over
                job.done = None
                try:
                    context.run(coroutine.throw, asyncio.CancelledError())
                    coroutine.close()
                except BaseException as error:
                    done(None, error if not isinstance(error, StopIteration) else asyncio.CancelledError())
                else:
                    done(None, asyncio.CancelledError())

        task.add_done_callback(ended)
        return task


async def _carrier(job: _Job) -> None:
    if job.coroutine is None:
        await job.wake
    coroutine, done = job.coroutine, job.done
    assert coroutine is not None and done is not None and job.context is not None
    try:
        value = await _rest(coroutine, job.waiting_on, job.context)
    except BaseException as error:
        job.done = None
        done(None, error)
        if isinstance(error, KeyboardInterrupt):
            raise
    else:
        job.done = None
        done(value, None)


@types.coroutine
def _rest(
    coroutine: Coroutine[Any, Any, Any], waiting_on: Any, context: contextvars.Context
) -> Generator[Any, Any, Any]:
    """Go on with a coroutine whose first step has yielded `waiting_on`; every step in its own context."""
    while True:
        try:
            value = yield waiting_on
        except BaseException as error:
            step: Callable[[Any], Any] = coroutine.throw
            argument: Any = error
        else:
            step, argument = coroutine.send, value
        try:
            waiting_on = context.run(step, argument)
        except StopIteration as stop:
            return stop.value
