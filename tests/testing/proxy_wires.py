"""Pairs of sockets with a fault proxy between them, for the tests of the proxy.

Knows: both event loops, TCP and Unix sockets. Refuses to know: any fault.
Called by: tests/testing/test_proxy*.py; conftest.py brings the fixture `over_wires`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import UsageError
from hermes_peer.testing.proxy import FaultProxy

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop

GONE = (b"", ConnectionResetError, BrokenPipeError)
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Bench:
    """A listener, a proxy before it, and pairs of (client, server) through them."""

    def __init__(self, proxy: FaultProxy, served: asyncio.Queue[Wire], wires: list[Wire]) -> None:
        self.proxy, self._served, self._wires = proxy, served, wires

    async def dial(self) -> Wire:
        try:
            host, port = self.proxy.address
        except UsageError:
            wire = await asyncio.open_unix_connection(self.proxy.path)
        else:
            wire = await asyncio.open_connection(host, port)
        self._wires.append(wire)
        return wire

    async def served(self) -> Wire:
        return await self._served.get()

    async def pair(self) -> tuple[Wire, Wire]:
        return await self.dial(), await self.served()


@asynccontextmanager
async def bench(target: Any, **options: Any) -> AsyncIterator[Bench]:
    queue: asyncio.Queue[Wire] = asyncio.Queue()
    wires: list[Wire] = []

    def on_wire(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wires.append((reader, writer))
        queue.put_nowait((reader, writer))

    if target == "tcp":
        server = await asyncio.start_server(on_wire, "127.0.0.1", 0)
        target = server.sockets[0].getsockname()
    else:
        server = await asyncio.start_unix_server(on_wire, target)
    before = asyncio.all_tasks()
    try:
        async with FaultProxy(target, **options) as proxy:
            yield Bench(proxy, queue, wires)
        assert asyncio.all_tasks() <= before  # nothing of the proxy is left running
    finally:
        for _, writer in wires:
            writer.transport.abort()
        server.close()


@pytest.fixture(params=[f"{loop}-{kind}" for loop in LOOPS for kind in ("tcp", "unix")])
def over_wires(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs `await body(bench)` with a limit of ten seconds."""
    loop, kind = request.param.split("-")

    def run(body: Callable[[Bench], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            async with (
                asyncio.timeout(10),
                bench("tcp" if kind == "tcp" else str(tmp_path / "s"), **options) as b,
            ):
                await body(b)

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(main())

    run.kind = kind  # type: ignore[attr-defined]
    return run


async def ends(reader: asyncio.StreamReader) -> bytes | type[Exception]:
    """What is left to read, or how the reading failed."""
    try:
        return await reader.read()
    except ConnectionError as error:
        return type(error)


def reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw.family != socket.AF_UNIX:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def silent(reader: asyncio.StreamReader, seconds: float = 0.05) -> bool:
    """That nothing arrives can only be watched for a while."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read(1)
    except TimeoutError:
        return True
    return False
