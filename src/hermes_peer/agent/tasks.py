"""Tasks: a planner hands steps to a worker, hears its progress, answers its questions (mission L18).

Knows: the five messages of a task, how they ride on a stream, the worker's timer. Refuses to know: links, retries.
Called by: agent (`task_method` on the worker's side, `TaskHandle` on the planner's), request (`info_for`).

    planner                                          worker
    OPEN     TaskEnvelope                      ->
                                               <-    ITEM {"ack": AckMessage}
                                               <-    ITEM {"progress": ProgressEvent} ...
                                               <-    a call of task.request_info with RequestInfo
    its answer, any JSON                       ->
                                               <-    END  ResultMessage
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar

import msgspec

from hermes_peer.agent.hints import label
from hermes_peer.agent.methods import Method, Shape, doc_of, shape_of
from hermes_peer.agent.values import Final
from hermes_peer.errors import CallError, Code, DeadlineExceeded, UsageError

REQUEST_INFO = "task.request_info"  # the method that a worker calls on its planner

Message = TypeVar("Message", bound=msgspec.Struct)


# Unknown members are ignored in all five: an older peer must be able to read a newer one (mission M16).


class TaskEnvelope(msgspec.Struct, omit_defaults=True):
    """What the planner wants: `timeout` in seconds; without a `task_id` the call's message id is used."""

    steps: list[Any]
    context: dict[str, Any] = {}
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    task_id: str = ""

    def __post_init__(self) -> None:
        # For the planner's own slip; what arrives was checked by its types before it comes here.
        if not isinstance(self.steps, list):
            raise UsageError(f"TaskEnvelope: steps= is a list, not a {type(self.steps).__name__}")
        if not 0 < self.timeout < float("inf"):
            raise UsageError(f"TaskEnvelope: timeout= is a number of seconds above 0, not {self.timeout!r}")


class AckMessage(msgspec.Struct, omit_defaults=True):
    """The worker has read the task; with `accepted` false, `message` says why it will not do it."""

    task_id: str
    accepted: bool
    message: str = ""


class ProgressEvent(msgspec.Struct, omit_defaults=True):
    """Where the worker stands: `tokens_used` so far in all, `partial` output, the index of the `step`."""

    state: str
    tokens_used: int = 0
    partial: Any = None
    step: int | None = None


class RequestInfo(msgspec.Struct, omit_defaults=True):
    """What the worker must know to go on; the answer is any JSON value, one of `choices` where they are given."""

    name: str
    question: str = ""
    task_id: str = ""
    choices: list[Any] | None = None


class ResultMessage(msgspec.Struct, omit_defaults=True):
    """How a task ended by the worker's own word. An error of the call is raised instead, as from any call."""

    task_id: str
    state: Literal["done", "failed"]
    result: Any = None
    tokens_used: int = 0


# -- how they travel --


def ack_item(ack: AckMessage) -> dict[str, Any]:
    """The stream item of an acknowledgement."""
    return {"ack": ack}


def progress_item(event: ProgressEvent) -> dict[str, Any]:
    """The stream item of a progress event."""
    return {"progress": event}


def read_item(item: Any) -> AckMessage | ProgressEvent | None:
    """A received item; None for one of a kind that came later than this release. Raises CallError (bad_answer)."""
    if isinstance(item, dict):
        if "progress" in item:
            return _read(item["progress"], ProgressEvent)
        if "ack" in item:
            return _read(item["ack"], AckMessage)
    return None


def read_result(value: Any) -> ResultMessage:
    """The received end of a task. Raises CallError (bad_answer)."""
    return _read(value, ResultMessage)


def info_for(request: Any, name: str, question: str = "", choices: list[Any] | None = None) -> RequestInfo:
    """The payload of `request.ask(REQUEST_INFO, …)`, with the id of the task that `request` belongs to."""
    task_id = getattr(request, "task_id", "") or request.message_id
    return RequestInfo(name, question, task_id, choices)


def _read(value: Any, kind: type[Message]) -> Message:
    if isinstance(value, kind):  # never crossed a wire
        return value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said = str(error).replace("`", "")
        raise CallError(
            "bad_answer", f"the worker's {kind.__name__} cannot be read: {said}", code=Code.ERROR_INTERNAL
        ) from None


# -- the worker's side --


def task_method(name: str, fn: Callable[..., Any], **options: Any) -> Method:
    """A worker `fn(task: TaskEnvelope[, request])`, coroutine or async generator, as a stream method.

    What a generator yields is progress: a ProgressEvent, a dict of its fields, or any other value as its `partial`.
    What is returned, or yielded as Final, is the result; a ResultMessage goes out as it is. When the envelope's
    timeout is over the worker is cancelled and the call ends with DeadlineExceeded (timer "task").
    `options` are those of Method. Raises UsageError for a worker of another form.
    """
    shape = shape_of(fn)
    if shape not in (Shape.CALL, Shape.STREAM):
        raise UsageError(f"{name}: a task is an async def, or one that yields; {label(fn)} is neither")
    call = _caller(name, fn)

    async def run(task: TaskEnvelope, request: Any) -> AsyncIterator[Any]:
        task.task_id = task.task_id or request.message_id
        with suppress(AttributeError):  # a stand-in for Request may not have the place
            request.task_id = task.task_id
        timer = _Timer(name, task.timeout)
        tokens, result = 0, None
        yield ack_item(AckMessage(task.task_id, True))
        if shape is Shape.CALL:
            result = await timer.limit(call(task, request))
        else:
            async with aclosing(call(task, request)) as values:
                # The timer runs only while the worker does: around a `yield` it would cancel whoever reads us.
                while (value := await timer.limit(anext(values, _END))) is not _END:
                    if isinstance(value, Final | ResultMessage):
                        result = value
                        break
                    timer.check()
                    event = _progress(name, value)
                    tokens = max(tokens, event.tokens_used)
                    yield progress_item(event)
        yield Final(_result(task.task_id, result, tokens))

    options.setdefault("doc", doc_of(fn))
    return Method(name, run, kind="task", **options)


_END: Any = object()


class _Timer:
    """What is left of a task's own time, over many awaits."""

    def __init__(self, name: str, timeout: float) -> None:
        self.name, self.timeout = name, timeout
        self.now = asyncio.get_running_loop().time
        self.deadline = self.now() + timeout

    def check(self) -> None:
        """For a worker that yields without ever waiting, which no time-out could interrupt."""
        if self.now() >= self.deadline:
            raise self.over()

    def over(self) -> DeadlineExceeded:
        said = f"task {self.name} ran longer than its timeout of {self.timeout:g} s"
        return DeadlineExceeded("task_timeout", said, timer="task")

    async def limit(self, work: Awaitable[Any]) -> Any:
        clock = asyncio.timeout_at(self.deadline)
        try:
            async with clock:
                return await work
        except TimeoutError:
            if clock.expired():
                raise self.over() from None
            raise  # the worker's own


def _caller(name: str, fn: Callable[..., Any]) -> Callable[[TaskEnvelope, Any], Any]:
    parameters = list(inspect.signature(fn).parameters.values())
    tasks = [parameter for parameter in parameters if parameter.name != "request"]
    if len(tasks) != 1 or tasks[0].kind in (tasks[0].VAR_POSITIONAL, tasks[0].VAR_KEYWORD):
        raise UsageError(f"{name}: a task takes (task: TaskEnvelope) or (task: TaskEnvelope, request)")

    def call(task: TaskEnvelope, request: Any) -> Any:
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in parameters:
            value = request if parameter.name == "request" else task
            if parameter.kind is parameter.KEYWORD_ONLY:
                keywords[parameter.name] = value
            else:
                args.append(value)
        return fn(*args, **keywords)

    return call


def _progress(name: str, value: Any) -> ProgressEvent:
    if isinstance(value, ProgressEvent):
        return value
    if isinstance(value, dict) and "state" in value:
        try:
            return msgspec.convert(value, ProgressEvent)
        except msgspec.ValidationError as error:
            raise UsageError(f"{name}: this dict is no ProgressEvent: {error}") from None
    return ProgressEvent("running", partial=value)


def _result(task_id: str, value: Any, tokens: int) -> ResultMessage:
    if isinstance(value, Final):
        value = value.value
    if not isinstance(value, ResultMessage):
        return ResultMessage(task_id, "done", value, tokens)
    value.task_id = value.task_id or task_id
    value.tokens_used = value.tokens_used or tokens
    return value


# -- the planner's side --


class TaskStream(Protocol):
    """The part of a Stream that a task needs."""

    def __aiter__(self) -> AsyncIterator[Any]: ...
    async def result(self) -> Any: ...
    async def aclose(self) -> None: ...


class TaskHandle:
    """A running task, at the planner: iterate it for ProgressEvents, then `await result()`.

    An async context manager; leaving it early cancels the worker. `ack` is None until the worker has answered.
    Errors are those of a call, raised from the iteration or from `result()`.
    """

    def __init__(self, stream: TaskStream, done: Callable[[], None] = lambda: None) -> None:
        """`done` is called once the task is over, however it ended."""
        self.stream = stream
        self._done = done
        self.ack: AckMessage | None = None
        self._items = aiter(stream)
        self._reading = False
        self._result: ResultMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ProgressEvent:
        self._reading = True
        try:
            while True:
                try:
                    item = await anext(self._items)
                except UsageError:
                    raise  # two read at once: the other one goes on
                except Exception:  # the end, or an error of the call; not the reader's own cancellation
                    self._over()
                    raise
                message = read_item(item)
                if isinstance(message, ProgressEvent):
                    return message
                if message is not None:
                    self.ack = message
        finally:
            self._reading = False

    async def result(self) -> ResultMessage:
        """The end of the task. Progress that nobody has read is passed over, so that it cannot hold up the worker."""
        if self._result is None:
            if not self._reading:
                async for _ in self:
                    pass
            try:
                self._result = read_result(await self.stream.result())
            except Exception:
                self._over()
                raise
            self._over()
        return self._result

    async def aclose(self) -> None:
        """Leave the task; the worker is cancelled unless it has ended."""
        self._over()
        await self.stream.aclose()

    def _over(self) -> None:
        done, self._done = self._done, lambda: None  # once: the id may be taken by another task then
        done()

    def __del__(self) -> None:
        self._over()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
