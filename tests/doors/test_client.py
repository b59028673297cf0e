"""HermesHttp and HermesHttpSync against a real door."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import (
    CallError,
    DeadlineExceeded,
    LinkError,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    UsageError,
)
from hermes_peer.access.home import Home
from hermes_peer.access.tokens import add_token
from hermes_peer.doors import HermesHttp, HermesHttpSync, client
from hermes_peer.wire.invoke import Message, Meta, Type
from tests.doors.rig import TRACE, doors
from tests.loops import case, until


async def test_a_call(home: Path) -> None:
    async with doors(home) as door, HermesHttp(door.url, sender="me") as there:
        assert await there.call("calculator", {"expression": "2+2"}, trace_id=TRACE, task_id="a") == 4
        assert door.agent.seen == [("door:loopback", TRACE, "a")]
        assert await there.call(payload={"expression": "1"}) == 1
        assert await there.call("tokens", {"n": 2}) == {"n": 2}
        assert await there.call("bytes", {"n": 1}) == [{"base64": "AA=="}]
        assert (await there.describe())["agent"] == "calculator"


async def test_errors_are_those_of_a_call(home: Path) -> None:
    async with doors(home) as door, HermesHttp(door.base) as there:
        with pytest.raises(MethodNotFound) as unknown:
            await there.call("nothing", trace_id=TRACE)
        assert unknown.value.trace_id == TRACE and unknown.value.details["allowed"]
        with pytest.raises(CallError) as failed:
            await there.call("fail")
        assert (failed.value.reason, failed.value.details) == ("out_of_stock", {"left": 0})
        with pytest.raises(DeadlineExceeded):
            await there.call("sleep", {"s": 60}, ttl=0.1)
        with pytest.raises(RateLimited) as limited:
            await there.call("limited")
        assert limited.value.retry_after == 7
        with pytest.raises(UsageError, match="task_id is the door's own"):
            await there.call("echo", {"task_id": "x"})
        with pytest.raises(UsageError, match="JSON object"):
            await there.call("echo", [1])
        with pytest.raises(DeadlineExceeded):
            await there.call("echo", ttl=0)
    token = add_token(Home.open(home), "page", 0)
    async with doors(home) as door, HermesHttp(door.base, token=token) as there:
        with pytest.raises(PermissionDenied):
            await there.call("calculator", {"expression": "1"})
        assert token not in repr(there)
    async with doors(home) as door, HermesHttp(door.base, token="hp_wrong") as there:
        for call in (there.call("calculator"), there.describe()):
            with pytest.raises(CallError) as refused:
                await call
            assert refused.value.code == 5


async def test_nobody_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_S", (0.0, 0.01))
    async with doors(home) as door:
        gone = door.base
    async with HermesHttp(gone) as there:
        with pytest.raises(LinkError, match="is the agent running"):
            await there.call("calculator")
        with pytest.raises(LinkError):
            async for _ in there.stream("tokens"):
                pass
    for bad in ("127.0.0.1:80", "hermes://x:1", ""):
        with pytest.raises(UsageError, match="http://"):
            HermesHttp(bad)


async def test_a_stream(home: Path) -> None:
    async with doors(home) as door, HermesHttp(door.base) as there:
        async with there.stream("tokens", {"n": 3, "size": 3}) as items:
            assert [item async for item in items] == [{"i": i, "fill": "xxx"} for i in range(3)]
            assert await items.result() == {"n": 3}
        assert await there.stream("tokens", {"n": 3}).result() == {"n": 3}
        assert [x async for x in there.stream("bytes", {"n": 2})] == [b"\x00\x00"]
        with pytest.raises(CallError, match="none are left"):
            async for _ in there.stream("fail"):
                pass
        async with there.stream("forever") as items:
            assert await anext(items) == 0
        await until(lambda: door.agent.ended == ["forever"])


async def test_a_stream_is_asked_back(home: Path) -> None:
    async with doors(home) as door, HermesHttp(door.base) as there:
        heard: list[Any] = []

        async def answer(tool: str, payload: Any) -> str:
            return f"{tool} of {payload['of']}"

        stream = there.stream("ask", on_ask=answer, on_progress=heard.append)
        assert await stream.result() == {"answer": "what.colour of sky"}
        assert heard[0]["state"] == "asking"
        with pytest.raises(CallError) as refused:
            await there.stream("ask").result()
        assert refused.value.reason == "no_answer"


async def test_a_task_is_cancelled_by_its_id(home: Path) -> None:
    async with doors(home) as door, HermesHttp(door.base) as there:
        waiting = asyncio.ensure_future(there.call("sleep", {"s": 60}, task_id="c"))
        await door.agent.begun.wait()
        await there.cancel("c")
        with pytest.raises(CallError) as ended:
            await waiting
        assert ended.value.reason == "cancelled"


@case("HPC-056")
async def test_a_request_without_an_answer_goes_again_under_its_id(home: Path) -> None:
    """A proxy that cuts the first connection behind the request, before the answer."""
    async with doors(home) as door:
        cut = 0

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal cut
            data = await reader.read(65536)
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", door.port)
            up_writer.write(data)
            answer = await up_reader.read(65536)
            cut += 1
            if cut > 2:
                writer.write(answer)
            writer.close()
            up_writer.close()

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, HermesHttp(f"http://127.0.0.1:{port}") as there:
            assert await there.call("incr", task_id="once") == 1
        assert cut == 3 and door.agent.counts == {"once": 1}


async def test_forwarding_a_whole_message(home: Path) -> None:
    async with doors(home) as door, HermesHttp(door.base, sender="router") as there:
        message = Message(Meta(Type.TASK_REQUEST, "caller", "router", 30, "my-trace"), {"tool": "echo", "x": 1})
        meta, payload = await there.forward(message)
        assert meta["trace_id"] == "my-trace" and meta["receiver_id"] == "router" and meta["ttl"] <= 29
        assert payload["result"] == {"x": 1}
        with pytest.raises(DeadlineExceeded):
            await there.forward(Message(Meta(Type.TASK_REQUEST, "caller", None, 1, "t"), {"tool": "echo"}))


async def test_what_is_no_door(home: Path) -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>")
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, HermesHttp(f"http://127.0.0.1:{port}") as there:
        for attempt in (there.call("x"), there.stream("x").result()):
            with pytest.raises(CallError) as wrong:
                await attempt
            assert wrong.value.reason == "not_a_door"


async def test_the_synchronous_client(home: Path) -> None:
    async with doors(home) as door:

        def work() -> None:
            with HermesHttpSync(door.base) as there:
                assert there.call("calculator", {"expression": "2+2"}) == 4
                heard: list[Any] = []
                assert list(there.stream("tokens", {"n": 3}, on_progress=heard.append)) == [0, 1, 2]
                assert list(there.stream("bytes", {"n": 1})) == [b"\x00"]
                assert there.describe()["agent"] == "calculator"
                with pytest.raises(CallError, match="none are left"):
                    there.call("fail")
                with pytest.raises(CallError, match="none are left"):
                    list(there.stream("fail"))
                items = there.stream("forever")
                assert next(items) == 0
                items.close()  # type: ignore[attr-defined]

        await asyncio.to_thread(work)
        await until(lambda: door.agent.ended == ["forever"])


async def test_inside_a_handler_it_inherits(home: Path) -> None:
    async with doors(home) as door, HermesHttp(door.base) as there:

        async def outer() -> Any:
            return await there.call("calculator", {"expression": "1"})

        door.agent.add_method("outer", outer, public=True)
        assert (await door.call("outer", trace_id="kept", ttl=10))["result"] == 1
        assert door.agent.seen[0][1] == "kept"
