"""agent/tasks: the five messages both ways, a worker's task, and the planner's handle."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from hermes_peer.agent.methods import Method, Shape
from hermes_peer.agent.tasks import (
    AckMessage,
    ProgressEvent,
    RequestInfo,
    ResultMessage,
    TaskEnvelope,
    TaskHandle,
    ack_item,
    info_for,
    progress_item,
    read_item,
    read_result,
    task_method,
)
from hermes_peer.agent.values import Final
from hermes_peer.errors import CallError, Code, DeadlineExceeded, UsageError
from hermes_peer.wire import jsons


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **keywords: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **keywords), 10))

    return run


class Request:
    """What a task needs of a request."""

    def __init__(self) -> None:
        self.message_id = "m-1"
        self.task_id = ""


class Bare:
    __slots__ = ("message_id",)

    def __init__(self) -> None:
        self.message_id = "m-2"


class Wire:
    """A Stream over a method's generator: what it yields crosses as bytes, as it would on a link."""

    def __init__(self, method: Method, envelope: TaskEnvelope, request: Any = None) -> None:
        args, keywords = method.arguments(jsons.encode(envelope), request or Request())
        self.generator = method.handler(*args, **keywords)
        self.final: Any = None
        self.read = 0
        self.closed = False

    def __aiter__(self) -> Wire:
        return self

    async def __anext__(self) -> Any:
        value = await anext(self.generator)
        if isinstance(value, Final):
            self.final = jsons.decode(jsons.encode(value.value))
            raise StopAsyncIteration
        self.read += 1
        return jsons.decode(jsons.encode(value))

    async def result(self) -> Any:
        assert self.final is not None
        return self.final

    async def aclose(self) -> None:
        self.closed = True
        await self.generator.aclose()


# -- the messages --


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (TaskEnvelope(["a", {"do": "b"}]), {"steps": ["a", {"do": "b"}]}),
        (TaskEnvelope([1], {"k": "v"}, 60, "t"), {"steps": [1], "context": {"k": "v"}, "timeout": 60, "task_id": "t"}),
        (AckMessage("t", False, "busy"), {"task_id": "t", "accepted": False, "message": "busy"}),
        (ProgressEvent("thinking"), {"state": "thinking"}),
        (ProgressEvent("w", 7, {"x": 1}, 2), {"state": "w", "tokens_used": 7, "partial": {"x": 1}, "step": 2}),
        (RequestInfo("region", choices=["eu"]), {"name": "region", "choices": ["eu"]}),
        (ResultMessage("t", "done", [1], 9), {"task_id": "t", "state": "done", "result": [1], "tokens_used": 9}),
    ],
)
def test_what_travels(message: Any, payload: dict[str, Any]) -> None:
    assert jsons.decode(jsons.encode(message)) == payload


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (ack_item(AckMessage("t", True)), AckMessage("t", True)),
        (progress_item(ProgressEvent("s", 3, "x")), ProgressEvent("s", 3, "x")),
        ({"progress": {"state": "s", "of_a_later_release": 1}}, ProgressEvent("s")),
        ({"of_a_later_release": {}}, None),
        ("text", None),
        (None, None),
    ],
)
def test_items_are_read(item: Any, message: Any) -> None:
    assert read_item(item) == message
    assert read_item(jsons.decode(jsons.encode(item))) == message


@pytest.mark.parametrize(
    ("read", "value", "says"),
    [
        (
            read_item,
            {"progress": {"tokens_used": 1}},
            "ProgressEvent cannot be read: Object missing required field state",
        ),
        (read_item, {"ack": {"task_id": "t", "accepted": "yes"}}, "AckMessage cannot be read: Expected bool, got str"),
        (read_item, {"progress": None}, "ProgressEvent cannot be read: "),
        (read_result, {"task_id": "t", "state": "almost"}, "ResultMessage cannot be read: Invalid enum value"),
        (read_result, [], "ResultMessage cannot be read: Expected object, got array"),
    ],
)
def test_what_a_worker_should_not_send(read: Any, value: Any, says: str) -> None:
    with pytest.raises(CallError) as refused:
        read(value)
    assert (refused.value.reason, refused.value.code) == ("bad_answer", Code.ERROR_INTERNAL)
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"steps": "abc"}, "steps= is a list, not a str"),
        ({"steps": [], "timeout": 0}, "timeout= is a number of seconds above 0, not 0"),
        ({"steps": [], "timeout": float("nan")}, "timeout="),
        ({"steps": [], "timeout": float("inf")}, "timeout="),
    ],
)
def test_a_planner_s_own_slip(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        TaskEnvelope(**fields)
    assert says in str(refused.value)


def test_an_envelope_s_context_is_its_own() -> None:
    TaskEnvelope([]).context["k"] = 1
    assert TaskEnvelope([]).context == {}


def test_a_question_carries_its_task() -> None:
    request = Request()
    assert info_for(request, "region", "Which?", ["eu"]) == RequestInfo("region", "Which?", "m-1", ["eu"])
    request.task_id = "t"
    assert info_for(request, "region").task_id == "t"
    assert info_for(Bare(), "region").task_id == "m-2"


# -- the worker --


async def returns(task: TaskEnvelope, request: Any) -> dict[str, Any]:
    """Builds a report."""
    return {"steps": task.steps, "task": task.task_id, "seen": getattr(request, "task_id", None)}


async def yields(task: TaskEnvelope) -> AsyncIterator[Any]:
    yield ProgressEvent("reading", 10, step=0)
    yield {"state": "writing", "tokens_used": 25}
    yield {"no": "state"}
    yield "a token"
    yield Final({"text": "done"})
    raise AssertionError("never reached")


def worker_of(fn: Any, **options: Any) -> Method:
    return task_method("report", fn, **options)


async def all_of(method: Method, envelope: TaskEnvelope, request: Any = None) -> tuple[TaskHandle, list[ProgressEvent]]:
    handle = TaskHandle(Wire(method, envelope, request))
    return handle, [event async for event in handle]


def test_a_task_is_a_stream_method() -> None:
    method = worker_of(returns, min_ttl=5, public=True)
    assert (method.name, method.kind, method.shape, method.min_ttl) == ("report", "task", Shape.STREAM, 5.0)
    described = method.describe()
    assert (described["doc"], described["stream"]) == ("Builds a report.", True)
    assert described["schema_in"]["required"] == ["steps"]


@in_a_loop
async def test_a_coroutine_s_result() -> None:
    handle, progress = await all_of(worker_of(returns), TaskEnvelope(["a"]))
    assert progress == []
    assert handle.ack == AckMessage("m-1", True)  # without an id of its own: the call's
    assert await handle.result() == ResultMessage("m-1", "done", {"steps": ["a"], "task": "m-1", "seen": "m-1"})


@in_a_loop
async def test_the_planner_s_own_task_id() -> None:
    handle, _ = await all_of(worker_of(returns), TaskEnvelope([], task_id="t-9"))
    assert (await handle.result()).result == {"steps": [], "task": "t-9", "seen": "t-9"}
    handle, _ = await all_of(worker_of(returns), TaskEnvelope([], task_id="t-9"), Bare())
    assert (await handle.result()).result["seen"] is None


@in_a_loop
async def test_a_generator_s_progress_and_result() -> None:
    handle, progress = await all_of(worker_of(yields), TaskEnvelope([]))
    assert progress == [
        ProgressEvent("reading", 10, step=0),
        ProgressEvent("writing", 25),
        ProgressEvent("running", partial={"no": "state"}),
        ProgressEvent("running", partial="a token"),
    ]
    assert await handle.result() == ResultMessage("m-1", "done", {"text": "done"}, 25)
    assert await handle.result() is await handle.result()


@in_a_loop
async def test_a_generator_without_a_result() -> None:
    async def quiet(task: TaskEnvelope) -> AsyncIterator[Any]:
        yield "x"

    handle, _ = await all_of(worker_of(quiet), TaskEnvelope([]))
    assert await handle.result() == ResultMessage("m-1", "done")


@pytest.mark.parametrize("wrap", [lambda value: value, Final])
@in_a_loop
async def test_a_result_in_the_worker_s_own_words(wrap: Any) -> None:
    async def fails(task: TaskEnvelope) -> Any:
        return wrap(ResultMessage("", "failed", "no paper"))

    async def fails_later(task: TaskEnvelope) -> AsyncIterator[Any]:
        yield ProgressEvent("s", 3)
        yield wrap(ResultMessage("", "failed", "no paper"))

    handle, _ = await all_of(worker_of(fails), TaskEnvelope([]))
    assert await handle.result() == ResultMessage("m-1", "failed", "no paper")
    handle, progress = await all_of(worker_of(fails_later), TaskEnvelope([]))
    assert progress == [ProgressEvent("s", 3)]
    assert await handle.result() == ResultMessage("m-1", "failed", "no paper", 3)


@in_a_loop
async def test_a_worker_s_error_is_the_call_s() -> None:
    async def refuses(task: TaskEnvelope, request: Any) -> None:
        raise CallError("no_paper")

    with pytest.raises(CallError) as raised:
        await all_of(worker_of(refuses), TaskEnvelope([]))
    assert raised.value.reason == "no_paper"


@in_a_loop
async def test_workers_of_every_form() -> None:
    async def keyword(*, request: Any, job: TaskEnvelope) -> Any:
        return [job.steps, request.message_id]

    async def request_first(request: Any, job: TaskEnvelope) -> Any:
        return [job.steps, request.message_id]

    class Desk:
        async def work(self, job: TaskEnvelope, request: Any) -> Any:
            return [job.steps, request.message_id]

    for fn in (keyword, request_first, Desk().work):
        handle, _ = await all_of(worker_of(fn), TaskEnvelope(["a"]))
        assert (await handle.result()).result == [["a"], "m-1"]


async def no_task(request: Any) -> None: ...
async def too_many(task: TaskEnvelope, other: int) -> None: ...
async def stars(*tasks: TaskEnvelope) -> None: ...
def in_a_thread(task: TaskEnvelope) -> None: ...


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (no_task, "a task takes (task: TaskEnvelope)"),
        (too_many, "a task takes (task: TaskEnvelope)"),
        (stars, "a task takes (task: TaskEnvelope)"),
        (in_a_thread, "a task is an async def, or one that yields; in_a_thread is neither"),
    ],
)
def test_workers_that_cannot_be(fn: Any, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        worker_of(fn)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"{}", "field `steps`: missing, expected array"),
        (b'{"steps":"abc"}', "field `steps`: expected array, got str"),
        (b'{"steps":[],"timeout":0}', "field `timeout`: expected float > 0.0"),
        (b'{"steps":[],"timeout":"60"}', "field `timeout`: expected float, got str"),
        (b'{"steps":[],"context":[]}', "field `context`: expected object, got array"),
        (b"[]", "the payload must be an object, got array"),
    ],
)
def test_an_envelope_that_does_not_fit(payload: bytes, message: str) -> None:
    with pytest.raises(CallError) as refused:
        worker_of(returns).arguments(payload, Request())
    assert refused.value.message == message
    assert refused.value.code is Code.ERROR_INVALID_REQUEST


def test_an_envelope_of_a_later_release() -> None:  # mission M16
    args, _ = worker_of(returns).arguments(b'{"steps":[],"priority":3}', Request())
    assert args[0] == TaskEnvelope([])


# -- the worker's timer --


@in_a_loop
async def test_a_coroutine_that_takes_too_long() -> None:
    cancelled = []

    async def slow(task: TaskEnvelope) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(DeadlineExceeded) as raised:
        await all_of(worker_of(slow), TaskEnvelope([], timeout=0.02))
    assert raised.value.message == "task report ran longer than its timeout of 0.02 s"
    assert (raised.value.timer, raised.value.reason, raised.value.code) == (
        "task",
        "task_timeout",
        Code.ERROR_TASK_TIMEOUT,
    )
    assert cancelled == [True]


@in_a_loop
async def test_a_generator_that_takes_too_long_in_all() -> None:
    closed = []

    async def slow(task: TaskEnvelope) -> AsyncIterator[Any]:
        try:
            while True:
                await asyncio.sleep(0.02)
                yield "still here"
        finally:
            closed.append(True)

    handle = TaskHandle(Wire(worker_of(slow), TaskEnvelope([], timeout=0.1)))
    progress: list[Any] = []
    with pytest.raises(DeadlineExceeded):
        await read_into(progress, handle)
    assert 2 <= len(progress) <= 5
    assert closed == [True]


async def read_into(progress: list[Any], handle: TaskHandle, pause: float = 0) -> None:
    async for event in handle:
        progress.append(event.partial)
        await asyncio.sleep(pause)


@in_a_loop
async def test_a_slow_reader_is_never_cancelled_by_the_timer() -> None:
    async def quick(task: TaskEnvelope) -> AsyncIterator[Any]:
        yield "one"
        yield Final("two")  # ready when the reader comes, however late

    handle = TaskHandle(Wire(worker_of(quick), TaskEnvelope([], timeout=0.03)))
    progress: list[Any] = []
    await read_into(progress, handle, pause=0.06)
    assert progress == ["one"] and (await handle.result()).result == "two"


@in_a_loop
async def test_a_worker_that_never_waits_ends_in_time_too() -> None:
    async def busy(task: TaskEnvelope) -> AsyncIterator[Any]:
        while True:
            yield "more"

    with pytest.raises(DeadlineExceeded):
        await read_into([], TaskHandle(Wire(worker_of(busy), TaskEnvelope([], timeout=0.03))))


@in_a_loop
async def test_a_worker_s_own_timeout_error_is_its_own() -> None:
    async def own(task: TaskEnvelope) -> None:
        raise TimeoutError("the printer")

    with pytest.raises(TimeoutError, match="the printer") as raised:
        await all_of(worker_of(own), TaskEnvelope([]))
    assert not isinstance(raised.value, DeadlineExceeded)


# -- the planner --


@in_a_loop
async def test_leaving_early_ends_the_worker() -> None:
    closed = []

    async def endless(task: TaskEnvelope) -> AsyncIterator[Any]:
        try:
            while True:
                yield "more"
        finally:
            closed.append(True)

    wire = Wire(worker_of(endless), TaskEnvelope([]))
    async with TaskHandle(wire) as task:
        assert task.ack is None
        async for _ in task:
            break
        assert task.ack is not None
    assert wire.closed and closed == [True]


@in_a_loop
async def test_the_result_passes_over_unread_progress() -> None:
    wire = Wire(worker_of(yields), TaskEnvelope([]))
    async with TaskHandle(wire) as task:
        assert (await anext(task)).state == "reading"
        assert (await task.result()).tokens_used == 25
        assert wire.read == 5  # the ack and four events
        assert task.ack == AckMessage("m-1", True)


@in_a_loop
async def test_the_result_may_be_awaited_beside_a_reader() -> None:
    class Slow:
        """A stream whose second reader would be an error, as with any async generator."""

        def __init__(self) -> None:
            self.reading = False
            self.ended = asyncio.Event()
            self.left = 3

        def __aiter__(self) -> Slow:
            return self

        async def __anext__(self) -> Any:
            assert not self.reading
            self.reading = True
            await asyncio.sleep(0.005)
            self.reading = False
            self.left -= 1
            if self.left < 0:
                self.ended.set()
                raise StopAsyncIteration
            return {"progress": {"state": "s"}}

        async def result(self) -> Any:
            await self.ended.wait()
            return {"task_id": "t", "state": "done"}

        async def aclose(self) -> None: ...

    handle = TaskHandle(Slow())
    seen = []

    async def read() -> None:
        async for event in handle:
            seen.append(event)

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    assert (await handle.result()).state == "done"
    await reader
    assert len(seen) == 3


@in_a_loop
async def test_a_worker_that_yields_a_broken_event() -> None:
    async def broken(task: TaskEnvelope) -> AsyncIterator[Any]:
        yield {"state": 3}

    with pytest.raises(UsageError, match="report: this dict is no ProgressEvent: Expected `str`, got `int`"):
        await all_of(worker_of(broken), TaskEnvelope([]))
