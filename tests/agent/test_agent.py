"""agent/agent: every line of the design's examples, and what a call promises."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import (
    CallError,
    Code,
    DeadlineExceeded,
    Final,
    HermesAgent,
    LinkError,
    MethodNotFound,
    ProgressEvent,
    Request,
    RequestInfo,
    SessionLost,
    TaskEnvelope,
    UsageError,
    method,
)
from tests.agent.rig import QUICK, assert_clean, planner, quiet, two, worker
from tests.loops import both_loops, case, until


@both_loops
async def test_the_examples_of_the_design(home: Path, loop_kind: str) -> None:
    agent = HermesAgent("worker", home=home)

    @agent.method("text.shout")
    async def shout(text: str) -> dict[str, str]:
        return {"text": text.upper()}

    @agent.method("text.words")
    async def words_of(text: str, request: Request) -> Any:
        for word in text.split():
            yield word
        yield Final({"count": request.emitted})

    heard = asyncio.get_running_loop().create_future()

    @agent.event("order.changed")
    async def changed(order: int) -> None:
        heard.set_result(order)

    async with agent, HermesAgent("planner", home=home) as me:
        assert await me.call("worker", "text.shout", {"text": "hi"}, ttl=5) == {"text": "HI"}
        called = await me.call(
            target_agent_id="worker", method="text.shout", payload={"text": "hi"}, trace_id="0af7651916cd43dd"
        )
        assert called == {"text": "HI"}
        got = []
        async with me.stream("worker", "text.words", {"text": "a b c"}) as words:
            async for word in words:
                got.append(word)
        final = await words.result()
        assert (got, final, words.offset) == (["a", "b", "c"], {"count": 3}, 3)
        assert [word async for word in me.stream("worker", "text.words", {"text": "d e"})] == ["d", "e"]
        assert await me.emit("worker", "order.changed", {"order": 7}) is None
        assert heard.result() == 7
        assert {record.agent_id for record in await me.find()} == {"planner", "worker"}
        await quiet(agent, me)


async def test_run_and_aclose(home: Path) -> None:
    agent = worker(home)
    running = asyncio.get_running_loop().create_task(agent.run())
    async with planner(home) as me:
        await until(lambda: agent.running and agent.addresses)
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}
        await agent.aclose()
        await running
        assert not agent.running


async def test_marks_and_classes(home: Path) -> None:
    class Desk:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @method("desk.note")
        async def note(self, text: str) -> int:
            self.seen.append(text)
            return len(self.seen)

        @method("desk.all")
        def all(self) -> list[str]:
            return self.seen

    async with two(home) as (served, me):
        served.include(Desk())  # at run time
        assert await me.call("worker", "desk.note", {"text": "x"}) == 1
        assert await me.call("worker", "desk.all") == ["x"]


async def test_methods_come_and_go(home: Path) -> None:
    async with two(home) as (served, me):

        async def late() -> str:
            return "here"

        with pytest.raises(MethodNotFound):
            await me.call("worker", "late")
        served.add_method("late", late, public=True)
        assert await me.call("worker", "late") == "here"
        assert next(r for r in await me.find() if r.agent_id == "worker").methods == ["late"]
        served.remove_method("late")
        with pytest.raises(MethodNotFound):
            await me.call("worker", "late")
        with pytest.raises(UsageError, match="takes a name and a handler"):
            served.add_method("later")


async def test_tasks(home: Path) -> None:
    async with two(home) as (served, me):

        @served.task("report")
        async def report(task: TaskEnvelope, request: Request) -> Any:
            yield ProgressEvent("reading", tokens_used=5, partial="a")
            name = await request.info("colour", "Which?", choices=["red"])
            yield {"state": "writing", "tokens_used": 9}
            yield Final({"colour": name, "steps": task.steps})

        asked: list[RequestInfo] = []

        async def answer(info: RequestInfo) -> str:
            asked.append(info)
            return "red"

        envelope = TaskEnvelope(steps=["one"], context={"k": 1}, timeout=60)
        async with me.task("worker", "report", envelope, on_request_info=answer) as task:
            events = [event async for event in task]
            result = await task.result()
        assert [(e.state, e.tokens_used) for e in events] == [("reading", 5), ("writing", 9)]
        assert (result.state, result.result) == ("done", {"colour": "red", "steps": ["one"]})
        assert asked[0].name == "colour"
        assert not me._asking._answers


async def test_progress_of_a_call(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("long")
        async def long(request: Request) -> str:
            await request.progress("half", tokens_used=3, partial={"p": 1})
            return "done"

        seen: list[ProgressEvent] = []
        assert await me.call("worker", "long", {}, on_progress=seen.append) == "done"
        assert [(e.state, e.tokens_used, e.partial) for e in seen] == [("half", 3, {"p": 1})]
        assert await me.call("worker", "long") == "done"

        def bad(event: ProgressEvent) -> None:
            raise LookupError("the callback's own")

        with pytest.raises(LookupError, match="own"):
            await me.call("worker", "long", {}, on_progress=bad)


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), True, "30", b"1", [1]])
@case("HPC-036")
async def test_a_ttl_that_is_no_number(home: Path, ttl: Any) -> None:
    async with two(home) as (served, me):
        with pytest.raises(UsageError, match="ttl"):
            await me.call("worker", "echo", {}, ttl=ttl)
        assert not served.started


@case("HPC-036")
async def test_ttls(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("left")
        async def left(request: Request) -> float:
            return request.ttl_left

        for ttl, low, high in ((None, 29, 30), (30, 29, 30), (7, 6, 7), (1e12, 86_000, 86_400)):
            assert low < await me.call("worker", "left", {}, ttl=ttl) <= high
        for spent in (0, -1, 0.0, -1e300):
            with pytest.raises(DeadlineExceeded) as info:
                await me.call("worker", "left", {}, ttl=spent)
            assert info.value.origin == "local"
        async with me.stream("worker", "tokens", {"n": 1}) as stream:
            assert 86_300 < stream._call.envelope.ttl <= 86_400  # type: ignore[union-attr, operator]
            await stream.result()


@case("HPC-036")
async def test_a_chain_of_deadlines(home: Path) -> None:
    ended: list[float] = []
    loop = asyncio.get_running_loop()
    async with two(home) as (served, me), worker(home, name="third") as third:

        @third.method("wait")
        async def wait(request: Request) -> None:
            began = loop.time()
            ended.append(request.ttl_left)
            try:
                await asyncio.sleep(5)
            finally:
                ended.append(loop.time() - began)

        @served.method("forward")
        async def forward() -> Any:
            await asyncio.sleep(0.4)
            return await served.call("third", "wait", ttl=100)

        began = loop.time()
        with pytest.raises(DeadlineExceeded):
            await me.call("worker", "forward", ttl=0.6)
        assert 0.55 < loop.time() - began < 0.9
        await until(lambda: len(ended) == 2)
        assert ended[0] < 0.21
        assert ended[1] < 0.4
        await quiet(third)


async def test_a_deadline_in_mid_handler(home: Path) -> None:
    async with two(home) as (served, me):
        with pytest.raises(DeadlineExceeded) as info:
            await me.call("worker", "sleep", {"s": 5}, ttl=0.1)
        assert isinstance(info.value, TimeoutError)
        assert (info.value.origin, info.value.timer) == ("local", "ttl")
        assert "gave no answer within the ttl of 0." in str(info.value)
        await until(lambda: served.ended == ["cancelled"])

        @served.method("slow", min_ttl=5)
        async def slow() -> None:
            served.started.append("slow")

        with pytest.raises(DeadlineExceeded) as info:
            await me.call("worker", "slow", ttl=1)
        assert (info.value.origin, info.value.timer, info.value.reason) == ("peer", "min_ttl", "min_ttl")
        assert "slow" not in served.started
        await me.call("worker", "slow")


async def test_the_callers_ids(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("ids")
        async def ids(request: Request) -> list[Any]:
            return [request.message_id, request.trace_id, request.caller, request.attempt, request.method]

        got = await me.call("worker", "ids", {}, message_id="order-1", trace_id="t" * 128)
        assert got == ["order-1", "t" * 128, "planner", 1, "ids"]
        one, two_ = await me.call("worker", "ids"), await me.call("worker", "ids")
        assert one[0] != two_[0] and len(one[1]) == 32 and one[1] != two_[1]
        for wrong in ("t" * 129, "a\nb", 7):
            with pytest.raises(UsageError, match="trace_id"):
                await me.call("worker", "ids", {}, trace_id=wrong)  # type: ignore[arg-type]
        for wrong in ("t" * 129, "ö", 7):
            with pytest.raises(UsageError, match="message_id"):
                await me.call("worker", "ids", {}, message_id=wrong)  # type: ignore[arg-type]


@case("HPC-082")
async def test_a_trace_through_three_agents_and_never_a_neighbours(home: Path) -> None:
    async with two(home) as (served, me), worker(home, name="third") as third:

        @third.method("trace")
        async def trace(request: Request) -> str:
            await asyncio.sleep(0)
            return request.trace_id

        @served.method("forward")
        async def forward(request: Request) -> list[str]:
            await asyncio.sleep(0.001 * (hash(request.message_id) % 5))
            return [request.trace_id, await served.call("third", "trace")]

        traces = [f"{n:032x}" for n in range(60)]
        got = await asyncio.gather(*[me.call("worker", "forward", trace_id=trace) for trace in traces])
        assert got == [[trace, trace] for trace in traces]
        first, second = await me.call("worker", "forward")
        assert first == second


async def test_a_cancelled_call_cancels_the_handler(home: Path) -> None:
    async with two(home) as (served, me):
        task = asyncio.get_running_loop().create_task(me.call("worker", "sleep", {"s": 30}))
        await until(lambda: served.started)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: served.ended == ["cancelled"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(me.call("worker", "sleep", {"s": 30}), 0.05)


async def test_items_up_and_both_ways(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("double")
        async def double(request: Request) -> Any:
            async for n in request.items:
                yield n + n
            yield Final("end")

        async def numbers(n: int) -> Any:
            for i in range(n):
                yield i

        assert await me.call("worker", "sum", {}, items=numbers(1000)) == 499_500
        async with me.stream("worker", "double", items=numbers(500)) as stream:
            assert [n async for n in stream] == [2 * n for n in range(500)]
            assert await stream.result() == "end"
        pieces = [bytes([n]) * 70_000 for n in range(5)]

        async def raw() -> Any:
            for piece in pieces:
                yield piece

        assert [piece async for piece in me.stream("worker", "double", items=raw())] == [p + p for p in pieces]


async def test_a_source_of_items_that_fails(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    closed = []
    async with two(home) as (_, me):

        async def broken() -> Any:
            try:
                yield 1
                raise LookupError("no more")
            finally:
                closed.append("broken")

        with pytest.raises(LookupError, match="no more"):
            await me.call("worker", "sum", {}, items=broken())

        async def unsendable() -> Any:
            try:
                yield math.nan
            finally:
                closed.append("nan")

        with pytest.raises(ValueError, match="finite"):
            await me.call("worker", "sum", {}, items=unsendable())

        async def endless() -> Any:
            try:
                while True:
                    yield "x" * 10_000
            finally:
                closed.append("endless")

        with pytest.raises(CallError):  # the handler cannot add texts
            await me.call("worker", "sum", {}, items=endless())
        await until(lambda: closed == ["broken", "nan", "endless"])
    caplog.clear()


@case("HPC-050")
@pytest.mark.parametrize("memory", [False, True])
async def test_sizes(home: Path, memory: bool) -> None:
    listen = {"listen": "hermes+memory://worker"} if memory else {}
    async with worker(home, **listen) as served, planner(home) as me:  # type: ignore[arg-type]
        limit = 5 * 1024 * 1024
        for size in (1, 65_535, 65_536, 65_537, 1024 * 1024 - 1):
            assert await me.call("worker", "echo", {"x": "a" * size}) == {"x": "a" * size}
        smile = "\N{GRINNING FACE}" * 40_000  # 4 bytes each
        assert await me.call("worker", "echo", {"x": smile}) == {"x": smile}
        fits = limit - 200 - len(b'{"x":""}')
        assert len((await me.call("worker", "echo", {"x": "a" * fits}))["x"]) == fits
        for over in (limit, 6 * 1024 * 1024):
            with pytest.raises(UsageError, match=r"\d{7} bytes is over the limit of 5242880"):
                await me.call("worker", "echo", {"x": "a" * over})

        @served.method("large")
        async def large(n: int) -> str:
            return "a" * n

        with pytest.raises(CallError, match="over the limit") as info:
            await me.call("worker", "large", {"n": limit})
        assert (info.value.code, info.value.reason) == (Code.ERROR_RESOURCE_EXHAUSTED, "result_too_large")
        # the END's head is part of the message
        head = 5 + len(b'{"type":"response"}') + 2
        assert len(await me.call("worker", "large", {"n": limit - head})) == limit - head
        with pytest.raises(CallError, match="over the limit"):
            await me.call("worker", "large", {"n": limit - head + 1})
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}
        await quiet(served, me)


@case("HPC-048")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
async def test_numbers_that_json_has_no_form_for(home: Path, bad: float, caplog: pytest.LogCaptureFixture) -> None:
    async with two(home) as (served, me):

        @served.method("result")
        async def result() -> Any:
            return {"x": [1, bad]}

        @served.method("item")
        async def item() -> Any:
            yield 1
            yield {"y": bad}

        @served.method("details")
        async def details() -> Any:
            raise CallError("own", "text", details={"z": bad})

        with pytest.raises(CallError, match=r"result\.x\[1\]"):
            await me.call("worker", "result")
        got = []
        with pytest.raises(CallError, match=r"item\.y"):  # noqa: PT012
            async for value in me.stream("worker", "item"):
                got.append(value)
        assert got == [1]
        with pytest.raises(CallError, match="text") as info:
            await me.call("worker", "details")
        assert info.value.reason == "own" and "details.z" in info.value.details
        with pytest.raises(UsageError, match=r"payload\.a"):
            await me.call("worker", "echo", {"a": bad})
        assert await me.call("worker", "echo", {"a": 2**53 + 1}) == {"a": 2**53 + 1}
        assert me.status()["links"][0]["breaks"] == 0


async def test_calling_oneself_and_nobody(home: Path) -> None:
    async with planner(home) as me:
        with pytest.raises(LinkError, match="only this agent itself has that name"):
            await me.call("planner", "echo")
        with pytest.raises(LinkError, match="does not call itself"):
            await me.call(me.fingerprint, "echo")
        with pytest.raises(LinkError, match="does not call itself"):
            await me.call(me.addresses[0], "echo")
        with pytest.raises(LinkError, match="no agent named nobody"):
            await me.call("nobody", "echo")
        for nothing in ("", None, 7):
            with pytest.raises(UsageError, match="which agent"):
                await me.call(nothing, "echo")  # type: ignore[arg-type]
        assert_clean(me)
    with pytest.raises(UsageError, match="not running"):
        await me.call("worker", "echo")
    with pytest.raises(UsageError, match="not running"):
        me.status()


async def test_the_same_object_runs_again(home: Path) -> None:
    served, me = worker(home), planner(home)
    for _ in range(2):
        async with served, me:
            assert await me.call("worker", "block", {"s": 0}) == "blocked"
            with pytest.raises(UsageError, match="runs already"):
                await me.__aenter__()
            await quiet(served, me)


def test_asyncio_run_twice_with_one_object(home: Path) -> None:
    served, me = worker(home), planner(home)

    async def main() -> Any:
        async with served, me:
            return await me.call("worker", "block", {"s": 0})

    assert [asyncio.run(main()), asyncio.run(main())] == ["blocked", "blocked"]
    assert served.threads.alive == 0 or not served.running


@case("HPC-078")
async def test_a_worker_that_comes_back_as_another_process(home: Path) -> None:
    async with planner(home) as me:
        for round in range(3):
            served = worker(home)
            await served.__aenter__()
            assert await me.call("worker", "echo", {"n": round}) == {"n": round}
            call = asyncio.get_running_loop().create_task(me.call("worker", "sleep", {"s": 30}, trace_id="a-trace"))
            await until(lambda: served.started[-1:] == ["sleep"])  # noqa: B023
            crash(served)
            after = worker(home)
            async with after:
                with pytest.raises(SessionLost) as info:
                    await call
                assert (info.value.ran, info.value.trace_id) == ("unknown", "a-trace")
                assert await me.call("worker", "echo", {"again": 1}, ttl=5) == {"again": 1}
            await quiet(me)
            await served.aclose()


async def test_what_provably_did_not_run_is_called_again(home: Path) -> None:
    async with planner(home, config=QUICK) as me:
        served = worker(home)
        await served.__aenter__()
        assert await me.call("worker", "echo", {"n": 1}) == {"n": 1}
        crash(served)
        await until(lambda: me.status()["links"][0]["breaks"] == 1)
        call = asyncio.get_running_loop().create_task(me.call("worker", "echo", {"n": 2}, ttl=10))
        await until(lambda: me.status()["links"][0]["state"] == "reconnecting")
        async with worker(home) as after:
            assert await call == {"n": 2}
            assert len(after.started) == 1
        await served.aclose()


def crash(agent: HermesAgent) -> None:
    """As if killed: no farewell on any line, and the slot is free."""
    life = agent._life
    assert life is not None
    for contact in life.endpoint.contacts.values():
        contact._closed = True
    for listener in life.endpoint.listeners:
        for sock in listener._sockets:  # type: ignore[attr-defined]
            life.loop.remove_reader(sock.fileno())
            sock.close()
        listener._sockets = []  # type: ignore[attr-defined]
    for pump in list(life.endpoint.pumps.values()):
        pump._stop_timers()
        pump.link = None
        pump.abort()
    if life._reload_timer is not None:
        life._reload_timer.cancel()
    life.slot.release()
