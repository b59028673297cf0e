"""Hermes Peer as its documentation shows it, on TCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench import app
from hermes_peer import HermesAgent, Request

SERVER = "bench-server"
_running = AsyncExitStack()


def home(port: int) -> Path:
    """One for each pair of processes: the 500 agents of W5 would be in every later agent's way."""
    return app.folder() / f"home-{port}"


async def serve(port: int) -> None:
    agent = HermesAgent(SERVER, home=home(port), listen=f"hermes://{app.HOST}:{port}")

    @agent.method("echo")
    async def echo(request: Request) -> Any:
        return await app.echo(request.payload)

    @agent.method("tokens")
    async def tokens(n: int, spread: bool = False) -> AsyncIterator[Any]:
        async for token in app.tokens(n, spread):
            yield token

    @agent.method("upload")
    async def upload(blob: str) -> Any:
        return app.upload(blob)

    await _running.enter_async_context(agent)


class Conn:
    """An agent of its own, with a key of its own: the slots of one name in one home."""

    def __init__(self, port: int) -> None:
        self.me = HermesAgent("bench-client", home=home(port))

    async def open(self) -> None:
        await self.me.__aenter__()  # the link itself comes with the first call

    async def request(self, body: dict[str, Any]) -> Any:
        return await self.me.call(SERVER, "echo", body, ttl=30)

    def stream(self, n: int, spread: bool = False) -> Any:
        return self.me.stream(SERVER, "tokens", {"n": n, "spread": spread})

    async def upload(self, blob: bytes) -> Any:
        return await self.me.call(SERVER, "upload", {"blob": blob.decode("ascii")}, ttl=30)

    async def close(self) -> None:
        await self.me.aclose()
