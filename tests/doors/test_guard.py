"""What uvicorn lacks: slow heads, endless heads, keep-alive that races, readers that stop (HPC-056)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes_peer.doors import guard, posting
from tests.doors.rig import INVOKE, doors, http, message, task
from tests.loops import case, until

HEAD = b"POST /hermes/v1/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def test_a_head_that_does_not_come(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HEAD_S", 0.1)
    async with doors(home) as door:
        for start in (b"", b"P", HEAD):
            line = await door.line()
            line.send(start)
            assert (await line.answer()).status == 408, start
            assert await line.ended() == b""
        line = await door.line()  # the second head of a connection is no different
        assert (await line.request(body=task())).status == 200
        line.send(HEAD[:20])
        assert (await line.answer()).status == 408
        drip = await door.line()
        answer = asyncio.ensure_future(drip.answer())
        for byte in HEAD + b"X: " + b"y" * 1000:
            if answer.done():
                break
            drip.send(bytes([byte]))
            await asyncio.sleep(0.002)
        assert (await answer).status == 408
        # A request under way is not cut by it.
        assert (await door.call("sleep", {"s": 0.3}))["result"] == "slept"


async def test_a_head_without_end(home: Path) -> None:
    async with doors(home) as door:
        for junk in (b"X: " + b"y" * (guard.HEAD_MAX + 1), b"X: y\r\n" * 12_000):
            line = await door.line()
            line.send(HEAD + junk)
            assert (await line.answer()).status == 431
            assert await line.ended() == b""
        line = await door.line()
        line.send(b"GET /" + b"x" * (guard.HEAD_MAX + 1))
        assert (await line.answer()).status in (400, 431)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS at a plain port
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        HEAD + b"Bad Header: x\r\n\r\n",
        HEAD + b"X: a\x00b\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n",
        b"HRMP\x01\x01" + bytes(40),
    ],
)
async def test_what_is_no_http(home: Path, bad: bytes) -> None:
    async with doors(home) as door:
        line = await door.line()
        line.send(bad + b"\r\n\r\n")
        answer = await line.answer()
        assert answer.status == 400 and answer.payload["error_code"] == 2
        assert await line.ended() == b""


async def test_a_body_that_does_not_come(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "BODY_IDLE_S", 0.1)
    async with doors(home) as door:
        line = await door.line()
        line.send(http("POST", INVOKE, message("incr"))[:-10])
        answer = await line.answer()
        assert answer.status == 408 and answer.payload["reason"] == "slow_body"
        assert await line.ended() == b"" and door.agent.counts == {}


@case("HPC-056")
async def test_keep_alive_that_ends_while_the_next_request_comes(home: Path) -> None:
    async with doors(home, http={"keep_alive_s": 1}) as door:
        # The door's patience is 1 s; what matters is the moment of its end, so the waits are around it.
        async def knock(n: int) -> None:
            line = await door.line()
            assert (await line.request(body=message("incr", {"task_id": f"k{n}-0"}))).headers[
                "keep-alive"
            ] == "timeout=1"
            await asyncio.sleep(0.95 + 0.2 * n / 60)
            body = message("incr", {"task_id": f"k{n}-1"})
            try:
                answer = await line.request(body=body)
            except (asyncio.IncompleteReadError, ConnectionError):
                answer = await door.post(body)  # no answer came: the same id again
            assert answer.payload["result"] == 1

        await asyncio.gather(*(knock(n) for n in range(60)))
        assert len(door.agent.counts) == 120 and set(door.agent.counts.values()) == {1}


@case("HPC-056")
async def test_who_asks_to_close_and_old_clients(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        answer = await line.request(body=task(), headers={"Connection": "close"})
        assert answer.headers["connection"] == "close" and await line.ended() == b""
        for keep in (b"", b"Connection: keep-alive\r\n"):
            line = await door.line()
            raw = http("POST", INVOKE, task()).replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n" + keep, 1)
            line.send(raw)
            answer = await line.answer()
            assert answer.status == 200 and answer.headers["connection"] == "close" and await line.ended() == b""
        line = await door.line()
        line.send(http("POST", INVOKE, message("sleep", {"s": 0.05})) + http("POST", INVOKE, task("1+1")))
        assert (await line.answer()).payload["result"] == "slept"
        assert (await line.answer()).payload["result"] == 2
        # Garbage behind a whole request: that one is answered, then it ends.
        line = await door.line()
        line.send(http("POST", INVOKE, message("sleep", {"s": 0.05})) + b"\x00garbage")
        answer = await line.answer()
        assert answer.payload["result"] == "slept" and answer.headers["connection"] == "close"
        assert await line.ended() == b""


async def test_idle_connections_end_and_nothing_is_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with doors(home, http={"keep_alive_s": 0}) as door:
        state = door.agent._life.doors[0]._state
        lines = [await door.line() for _ in range(20)]
        for line in lines:
            await line.request(body=task())
        await until(lambda: not state.connections)
        assert all([await line.ended() == b"" for line in lines])
        assert not state.tasks


async def test_who_reads_nothing_is_cut(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "STALL_S", 0.2)
    async with doors(home) as door:
        line = await door.line()
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        line.send(http("POST", INVOKE, message("forever", {"size": 60_000}), {"Accept": "text/event-stream"}))
        await until(lambda: door.agent.ended == ["forever"])
        line.writer.transport.abort()


async def test_expect_and_the_trailer_that_is_no_header(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        raw = http("POST", INVOKE, task(), {"Expect": "100-continue"})
        head, _, body = raw.partition(b"\r\n\r\n")
        line.send(head + b"\r\n\r\n")
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.send(body)
        assert (await line.answer()).status == 200
        # Refused by its head alone: no 100 invites the body.
        line = await door.line()
        line.send(http("POST", INVOKE, None, {"Expect": "100-continue", "Content-Length": "5", "Host": "evil"}))
        assert (await line.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 421")
