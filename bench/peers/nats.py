"""nats-py with a nats-server of its own: one hop more, no encryption, the broker on the server's CPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import nats

from bench import app

FLUSH = 500  # tokens between two flushes: a publisher has no back-pressure of its own
_running: list[Any] = []


async def serve(port: int) -> list[int]:
    settings = app.folder() / "nats.conf"
    settings.write_text(f"host: {app.HOST}\nport: {port}\nmax_payload: 8MB\n")
    quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
    # it ends with our process group
    broker = await asyncio.create_subprocess_exec("nats-server", "-c", str(settings), **quiet)
    for attempt in range(100):
        try:
            link = await nats.connect(f"nats://{app.HOST}:{port}", allow_reconnect=False)
            break
        except OSError:
            if attempt == 99:
                raise
            await asyncio.sleep(0.05)
    tasks: set[asyncio.Task[None]] = set()

    async def on_echo(message: Any) -> None:
        await link.publish(message.reply, app.dumps(await app.echo(app.loads(message.data))))

    async def on_upload(message: Any) -> None:
        await link.publish(message.reply, app.dumps(app.upload(message.data)))

    async def run(reply: str, n: int, spread: bool) -> None:
        count = 0
        async for token in app.tokens(n, spread):
            await link.publish(reply, app.dumps(token))
            count += 1
            if not spread and count % FLUSH == 0:
                await link.flush()
        await link.publish(reply, b"")

    async def on_tokens(message: Any) -> None:
        task = asyncio.create_task(run(message.reply, *app.loads(message.data)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for subject, handler in {"echo": on_echo, "upload": on_upload, "tokens": on_tokens}.items():
        await link.subscribe(subject, cb=handler)
    await link.flush()
    _running.extend((broker, link))
    return [broker.pid]


class Conn:
    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        self.link = await nats.connect(f"nats://{app.HOST}:{self.port}", allow_reconnect=False)

    async def request(self, body: dict[str, Any]) -> Any:
        return app.loads((await self.link.request("echo", app.dumps(body), timeout=30)).data)

    async def upload(self, blob: bytes) -> Any:
        return app.loads((await self.link.request("upload", blob, timeout=30)).data)

    async def stream(self, n: int, spread: bool = False) -> AsyncIterator[Any]:
        inbox = self.link.new_inbox()
        subscription = await self.link.subscribe(inbox)
        await self.link.publish("tokens", app.dumps([n, spread]), reply=inbox)
        async for message in subscription.messages:
            if not message.data:
                break
            yield app.loads(message.data)
        await subscription.unsubscribe()

    async def close(self) -> None:
        await self.link.close()
