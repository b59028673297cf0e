"""An agent with open doors, and plain ways to knock: raw bytes, whole requests, WebSockets, the binary form, tools."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from hermes_peer import CallError, Final, HermesAgent, RateLimited, Request
from hermes_peer.wire.invoke import HEADER_SIZE, Message, Meta, Type, decode_binary, encode_binary, encode_json
from tests.agent.rig import quiet

INVOKE = "/hermes/v1/invoke"
TRACE = "0123456789abcdef0123456789abcdef"
_ids = itertools.count(1)


def demo(home: Path, **options: Any) -> Any:
    """`counts` says how often `incr` ran for an id, `ended` how handlers ended, `seen` what callers they had."""
    agent: Any = HermesAgent("calculator", home=home, listen=False, drain_s=options.pop("drain_s", 0.05), **options)
    agent.counts, agent.ended, agent.seen, agent.sent, agent.begun = {}, [], [], 0, asyncio.Event()

    @agent.method("calculator", public=True, default=True)
    async def calculator(expression: str, request: Request) -> float:
        """Adds up."""
        agent.seen.append((request.caller, request.trace_id, request.message_id))
        parts = expression.split("+")
        if not all(part.strip().isdecimal() for part in parts):
            raise CallError("invalid_expression", "only sums are worked out here", code=2)
        return sum(int(part[:9]) for part in parts)

    @agent.method("echo", public=True)
    async def echo(request: Request) -> Any:
        return request.payload

    @agent.method("tokens", public=True)
    async def tokens(n: int, size: int = 0) -> AsyncIterator[Any]:
        for i in range(n):
            yield {"i": i, "fill": "x" * size} if size else i
        yield Final({"n": n})

    @agent.method("bytes", public=True)
    async def bytes_(n: int) -> AsyncIterator[bytes]:
        yield b"\x00" * n

    @agent.method("forever", public=True)
    async def forever(size: int = 0) -> AsyncIterator[Any]:
        try:
            for i in itertools.count():
                agent.sent = i
                agent.begun.set()
                yield i if not size else "x" * size
                await asyncio.sleep(0)
        finally:
            agent.ended.append("forever")

    @agent.method("sleep", public=True)
    async def sleep(s: float, tag: str = "") -> str:
        agent.begun.set()
        try:
            await asyncio.sleep(s)
            return "slept"
        except asyncio.CancelledError:
            agent.ended.append("cancelled")
            raise

    @agent.method("incr", public=True)
    async def incr(request: Request) -> int:
        agent.counts[request.message_id] = agent.counts.get(request.message_id, 0) + 1
        return agent.counts[request.message_id]

    @agent.method("ask", public=True)
    async def ask(request: Request, colour: str = "") -> Any:
        await request.progress("asking", tokens_used=3)
        return {"answer": await request.ask("what.colour", {"of": "sky"})}

    @agent.method("sum", public=True)
    async def sum_(request: Request) -> int:
        return sum([n async for n in request.items])

    @agent.method("fail", public=True)
    async def fail() -> None:
        raise CallError("out_of_stock", "none are left", details={"left": 0})

    @agent.method("crash", public=True)
    async def crash() -> None:
        raise ZeroDivisionError("the secret is 42")

    @agent.method("limited", public=True)
    async def limited() -> None:
        raise RateLimited("quota", "the quota is spent", retry_after=7)

    @agent.method("value", public=True)
    async def value(what: str) -> Any:
        return {"nan": float("nan"), "inf": [1, float("-inf")], "big": 2**53 + 1, "text": "é四😀"}[what]

    @agent.method("large", public=True)
    async def large(n: int) -> str:
        return "x" * n

    @agent.method("slow", public=True, min_ttl=5)
    async def slow() -> str:
        return "done"

    @agent.method("block", public=True)
    def block(n: int) -> int:
        return n + 1

    @agent.method("secret")
    async def secret() -> str:
        return "secret"

    @agent.event("changed", public=True)
    async def changed(what: str) -> None:
        agent.ended.append(what)

    return agent


def message(tool: str | None = "calculator", payload: Any = None, **meta: Any) -> dict[str, Any]:
    """The JSON form of a TASK_REQUEST, as anybody would write it by hand."""
    fields = {
        "version": "1.2",
        "msg_type": 1,
        "sender_id": "tester",
        "receiver_id": None,
        "ttl": 30,
        "trace_id": TRACE,
    }
    body = {} if tool is None else {"tool": tool}
    return {"meta": {**fields, **meta}, "payload": {**body, **(payload or {})}}


def task(expression: str = "2+2", **more: Any) -> dict[str, Any]:
    """A call of the calculator with an id of its own."""
    return message(payload={"task_id": f"t{next(_ids)}", "expression": expression, **more})


@dataclass
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    reason: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def meta(self) -> Any:
        return self.json["meta"]

    @property
    def payload(self) -> Any:
        return self.json["payload"]


@dataclass
class Rig:
    """A running agent with its doors."""

    agent: Any
    base: str = ""
    socket: str = ""
    lines: list[Any] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    @property
    def url(self) -> str:
        return self.base + INVOKE

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1)

    async def line(self) -> Line:
        """A connection, to write bytes to."""
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port, limit=64 * 1024 * 1024))
        self.lines.append(line)
        return line

    async def request(
        self, method: str = "POST", path: str = INVOKE, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        line = await self.line()
        answer = await line.request(method, path, body, headers)
        line.close()
        return answer

    async def post(self, body: Any, **headers: str) -> Answer:
        return await self.request(body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def call(self, tool: str | None, payload: Any = None, **meta: Any) -> Any:
        """The payload that answers a POST."""
        answer = await self.post(message(tool, payload, **meta))
        assert answer.status == 200, answer
        return answer.payload

    def websocket(self, **options: Any) -> connect:
        options.setdefault("compression", None)
        options.setdefault("proxy", None)
        return connect(self.ws, **options)


class Line:
    """One HTTP/1.1 connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def close(self) -> None:
        self.writer.close()

    async def request(
        self, method: str = "POST", path: str = INVOKE, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        self.send(http(method, path, body, headers))
        return await self.answer(head=method == "HEAD")

    async def answer(self, *, head: bool = False) -> Answer:
        """The next answer. Raises IncompleteReadError where the connection ends before it."""
        while True:
            raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
            first, *rest = raw.decode("latin-1").split("\r\n")
            _, status, reason = first.split(" ", 2)
            if status != "100":
                break
        headers = {k.lower(): v.strip() for k, _, v in (each.partition(":") for each in rest if each)}
        if head or status == "204":
            body = b""
        elif "content-length" in headers:
            body = await asyncio.wait_for(self.reader.readexactly(int(headers["content-length"])), 10)
        else:
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += await self.reader.readexactly(size + 2)
            await self.reader.readline()
        return Answer(int(status), headers, body, reason)

    async def ended(self) -> bytes:
        """What comes before the other side closes."""
        return await asyncio.wait_for(self.reader.read(), 10)


def http(method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
    """A request as bytes; a header of "" is left out."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
    fields = {"Host": "127.0.0.1"}
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    for name, value in (headers or {}).items():
        fields = {k: v for k, v in fields.items() if k.lower() != name.lower()}
        if value:
            fields[name] = value
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data


@contextlib.asynccontextmanager
async def doors(home: Path, agent: Any = None, **options: Any) -> AsyncIterator[Rig]:
    """The demo agent with an HTTP door and a socket; at the end nothing of a call may be left."""
    http_options = {"bind": "127.0.0.1:0", **options.pop("http", {})}
    home.mkdir(parents=True, exist_ok=True)
    served = agent or demo(home, http=http_options, socket=home / "door", **options)
    async with served:
        base = next((each for each in served.doors if each.startswith("http")), "").removesuffix(INVOKE)
        rig = Rig(served, base, str(home / "door"))
        try:
            yield rig
            if served.running:
                await quiet(served)
                local = served._life.server.locals
                assert not [p.name for p in local._principals.values() if p.calls], "calls are still listed"
        finally:
            for line in rig.lines:
                line.close()


class Talk:
    """A WebSocket that speaks the JSON form."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, tool: str | None = None, payload: Any = None, **meta: Any) -> None:
        await self.socket.send(json.dumps(message(tool, payload, **meta), ensure_ascii=False))

    async def next(self, *kinds: Type) -> dict[str, Any]:
        """The next message, or the next of these kinds; heartbeats are passed over unless asked for."""
        while True:
            found = json.loads(await asyncio.wait_for(self.socket.recv(), 10))
            kind = Type(found["meta"]["msg_type"])
            if (not kinds and kind != Type.HEARTBEAT) or kind in kinds:
                return dict(found)

    async def result(self) -> Any:
        return (await self.next(Type.TASK_RESULT, Type.ERROR))["payload"]


class Binary:
    """A connection of the Unix socket's, or any stream, that speaks the binary form."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, path: str) -> Binary:
        return cls(*await asyncio.open_unix_connection(path))

    def send(self, tool: str | None = None, payload: Any = None, **meta: Any) -> None:
        self.writer.write(packed(tool, payload, **meta))

    async def next(self, *kinds: Type) -> Message:
        while True:
            head = await asyncio.wait_for(self.reader.readexactly(HEADER_SIZE), 10)
            body = await self.reader.readexactly(int.from_bytes(head[56:60], "big"))
            found = decode_binary(head + body)
            if (not kinds and found.meta.msg_type != Type.HEARTBEAT) or found.meta.msg_type in kinds:
                return found

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def packed(tool: str | None = None, payload: Any = None, **meta: Any) -> bytes:
    """A TASK_REQUEST in the binary form."""
    fields = {"msg_type": Type.TASK_REQUEST, "ttl": 30, "trace_id": TRACE, **meta}
    body = {} if tool is None else {"tool": tool}
    return encode_binary(Meta(**fields), {**body, **(payload or {})})


def text(tool: str | None, payload: Any = None, **meta: Any) -> str:
    """The JSON form as text."""
    made = message(tool, payload, **meta)
    return encode_json(Meta(made["meta"].pop("msg_type"), **_without_version(made["meta"])), made["payload"]).decode()


def _without_version(meta: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name != "version"}


# ---------------------------------------------------------------- programs


def patient(test: Any) -> Any:
    """A coroutine test that waits for programs: they may take their time on a busy machine."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**arguments), 120))

    return run


def need(program: str, how: str) -> str:
    """The path of a program. Without it a test is skipped, but fails in CI, where it must be installed."""
    found = shutil.which(program)
    if found is None:
        said = f"{program} is not installed: {how}"
        if os.environ.get("CI"):
            pytest.fail(said)
        pytest.skip(said)
    return found


async def run(*words: str, input: bytes | None = None, seconds: float = 60, code: int | None = 0, **env: str) -> str:
    """The output of a program that runs beside us. Its exit code must be `code`, unless that is None."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE if input is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(input), seconds)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert code is None or process.returncode == code, (words, process.returncode, out, err)
    return out.decode()
