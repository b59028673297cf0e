"""`python -m bench.door`: the plain door's POST beside a bare FastAPI JSON route on uvicorn, in one run.

Knows: the servers, one client for all of them, how a ratio is told. Refuses to know: the link's workloads (bench).
Called by: hand. The same message goes to each: the door checks it strictly, asks the policy, keeps a deadline and runs
the method; FastAPI validates it with pydantic models and adds up; a2a-sdk, where installed, gets the same numbers as
its own message. Each server is a process with uvloop and httptools; rounds alternate, medians count. Beside requests a
second stands the server's own CPU time for each, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BODY = {
    "meta": {
        "version": "1.2",
        "msg_type": 1,
        "sender_id": "bench",
        "receiver_id": None,
        "ttl": 30,
        "trace_id": "0123456789abcdef0123456789abcdef",
    },
    "payload": {"tool": "add", "x": 1, "y": 2},
}
GOAL = 0.7

HERMES = """
import sys
from hermes_peer import HermesAgent
agent = HermesAgent("bench", listen=False, http=f"127.0.0.1:{sys.argv[1]}")
@agent.method("add", public=True)
async def add(x: int, y: int) -> int:
    return x + y
agent.start()
"""
FASTAPI = """
import sys
from typing import Any
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
class Meta(BaseModel):
    version: str
    msg_type: int
    sender_id: str
    receiver_id: str | None
    ttl: float
    trace_id: str
class Payload(BaseModel):
    tool: str
    x: int
    y: int
class Message(BaseModel):
    meta: Meta
    payload: Payload
app = FastAPI()
@app.post("/models")
async def models(message: Message) -> dict[str, Any]:
    return {"meta": message.meta, "payload": {"status": "success", "result": message.payload.x + message.payload.y}}
@app.post("/plain")
async def plain(message: dict[str, Any]) -> dict[str, Any]:
    payload = message["payload"]
    return {"meta": message["meta"], "payload": {"status": "success", "result": payload["x"] + payload["y"]}}
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="warning", access_log=False)
"""
A2A = """
import os, sys
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
import uvicorn
from a2a.helpers import get_data_parts, new_data_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2 as types
from starlette.applications import Starlette
class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        data = get_data_parts(context.message.parts)[0]
        answer = new_data_message({"result": data["x"] + data["y"]}, context_id=context.context_id)
        await event_queue.enqueue_event(answer)
    async def cancel(self, context, event_queue):
        raise NotImplementedError
url = f"http://127.0.0.1:{sys.argv[1]}/rpc"
card = types.AgentCard(name="bench", description="bench", version="1", default_input_modes=["application/json"],
    default_output_modes=["application/json"], capabilities=types.AgentCapabilities(),
    supported_interfaces=[types.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
    skills=[types.AgentSkill(id="add", name="add", description="add", tags=["add"])])
app = Starlette(routes=create_jsonrpc_routes(DefaultRequestHandler(Executor(), InMemoryTaskStore(), card), "/rpc"))
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="warning", access_log=False)
"""
A2A_BODY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"x": 1, "y": 2}}]}},
}


class Server:
    """One server process; `paths` are what is measured of it: name, path, body, further headers."""

    def __init__(self, code: str, paths: list[tuple[str, str, Any, str]]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.paths = paths
        home = tempfile.mkdtemp(prefix="bench-door-")
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HERMES_PEER_HOME": home}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(self.port)], env=env, stdout=subprocess.DEVNULL
        )

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


class Client(asyncio.Protocol):
    """One connection that always has one request under way; the least that HTTP needs, so that servers are measured."""

    def __init__(self, request: bytes, until: float) -> None:
        self.request, self.until = request, until
        self.count = 0
        self.seen = b""
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, gap, body = self.seen.partition(b"\r\n\r\n")
        if not gap:
            return
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < size:
            return
        if not head.startswith(b"HTTP/1.1 200") or b"3" not in body:
            self.over.set_exception(RuntimeError(f"{head[:80]!r} {body[:200]!r}"))
            return
        self.seen = b""
        self.count += 1
        if time.monotonic() < self.until:
            self.transport.write(self.request)  # type: ignore[attr-defined]
        elif not self.over.done():
            self.over.set_result(self.count)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError("the server closed the connection"))


async def measure(port: int, path: str, body: Any, more: str, seconds: float, connections: int) -> int:
    """Answers within so many seconds."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{more}"
    request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    loop, until = asyncio.get_running_loop(), time.monotonic() + seconds
    made = [await loop.create_connection(lambda: Client(request, until), "127.0.0.1", port) for _ in range(connections)]
    try:
        return sum([await client.over for _, client in made])
    finally:
        for transport, _ in made:
            transport.abort()


@contextlib.contextmanager
def running(servers: list[Server]) -> Iterator[None]:
    try:
        for server in servers:
            end = time.monotonic() + 20
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 1):
                    break
                if time.monotonic() > end or server.process.poll() is not None:
                    raise SystemExit(f"a server did not start: {server.paths[0][0]}")
                time.sleep(0.05)
        yield
    finally:
        for server in servers:
            server.process.send_signal(signal.SIGTERM)
        for server in servers:
            server.process.wait(10)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.door", description="the door's POST beside bare FastAPI")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    servers = [
        Server(HERMES, [("hermes door", "/hermes/v1/invoke", BODY, "")]),
        Server(FASTAPI, [("FastAPI, models", "/models", BODY, ""), ("FastAPI, dict", "/plain", BODY, "")]),
    ]
    if all(importlib.util.find_spec(name) for name in ("a2a", "sse_starlette")):
        servers.append(Server(A2A, [("a2a-sdk", "/rpc", A2A_BODY, "A2A-Version: 1.0\r\n")]))
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with running(servers):
        for n in range(-1, options.rounds):  # the first is for warming up
            for server in servers:
                for name, path, body, more in server.paths:
                    cpu, began = server.cpu(), time.monotonic()
                    seconds = options.seconds if n >= 0 else 1
                    count = asyncio.run(measure(server.port, path, body, more, seconds, options.connections))
                    if n >= 0:
                        rates.setdefault(name, []).append(count / (time.monotonic() - began))
                        costs.setdefault(name, []).append((server.cpu() - cpu) / count * 1e6)
    ours, cost = (statistics.median(found["hermes door"]) for found in (rates, costs))
    print(f"{'':18}{'requests/s':>12}{'CPU µs each':>13}{'ours by rate':>14}{'by CPU':>8}")
    for name in rates:
        rate, each = statistics.median(rates[name]), statistics.median(costs[name])
        print(f"{name:18}{rate:12,.0f}{each:13.0f}{ours / rate:13.2f}x{each / cost:7.2f}x")
    ratio = ours / statistics.median(rates["FastAPI, models"])
    print(f"door / bare FastAPI: {ratio:.2f} (goal: at least {GOAL})")
    return int(ratio < GOAL)


if __name__ == "__main__":
    sys.exit(main())
