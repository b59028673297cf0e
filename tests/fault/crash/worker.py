"""`python -m tests.fault.crash.worker HOME`: the called agent. Ends when its stdin does, or at SIGTERM."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from hermes_peer import Final, HermesAgent, Request
from tests.fault.crash import ends
from tests.fault.crash.plan import item

logging.basicConfig(level="WARNING")


def make(home: Path) -> HermesAgent:
    agent = HermesAgent("worker", home=home, slot=1)
    started = os.open(home.parent / "once.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @agent.method("add", contract="idempotent")
    async def add(call: int) -> int:
        await asyncio.sleep(call % 7 / 100)
        return call + 1

    @agent.method("effect", contract="transactional")
    async def effect(call: int, request: Request) -> int:
        await asyncio.sleep(call % 5 / 100)
        async with request.transaction() as db:
            await db.execute("CREATE TABLE IF NOT EXISTS effects (id TEXT)")
            await db.execute("INSERT INTO effects VALUES (?)", (request.message_id,))
        return call + 1

    @agent.method("once")
    async def once(call: int, request: Request) -> int:
        os.write(started, f"{request.message_id}\n".encode())
        os.fsync(started)
        await asyncio.sleep(call % 3 / 100)
        return call + 1

    @agent.method("words", contract="idempotent")
    async def words(items: int, request: Request) -> AsyncIterator[object]:
        for index in range(request.emitted, items):
            await asyncio.sleep(0.002)
            yield item(request.message_id, index)
        yield Final({"items": items})

    @agent.method("again", contract="idempotent")
    async def again(items: int, request: Request) -> AsyncIterator[object]:
        for index in range(items):
            await asyncio.sleep(0.002)
            yield item(request.message_id, index)
        yield Final({"items": items})

    return agent


async def main() -> None:
    async with make(Path(sys.argv[1])) as agent:
        print(json.dumps({"ready": os.getpid()}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "status":
                print(json.dumps({"status": agent.status()["durable"]}), flush=True)


if __name__ == "__main__":
    ends.run(main)
