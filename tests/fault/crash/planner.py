"""`python -m tests.fault.crash.planner HOME CALLS STREAMS ITEMS`: the calling agent.

Submits calls and streams up to the share that the file `share` allows, and writes each outcome and each item down;
after a restart it goes on. Beside that it makes lone calls, one at a time, under ids that are not its own: some of them
are sent while they are stored. Ends when its stdin does, or at SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

from hermes_peer import CallError, HermesAgent
from hermes_peer.agent.durable.ahead import Ahead
from hermes_peer.errors import OutcomeUnknown
from tests.fault.crash import ends
from tests.fault.crash.plan import ITEM, call_id, method_of, stream_id, stream_method

logging.basicConfig(level="ERROR")
AT_ONCE = 40


def tell(**message: object) -> None:
    print(json.dumps(message), flush=True)


class Planner:
    def __init__(self, home: Path, calls: int, streams: int, items: int) -> None:
        self.agent = HermesAgent("planner", home=home, slot=1)
        self.folder = home.parent
        self.calls, self.streams, self.items = calls, streams, items
        self.gate = asyncio.Semaphore(AT_ONCE)
        self.known = set(known(self.folder))
        self.log = os.open(self.folder / "outcomes.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.lone_log = os.open(self.folder / "lone.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.over = False

    def write(self, id: str, outcome: object) -> None:
        os.write(self.log, json.dumps([id, outcome]).encode() + b"\n")  # one write: whole, or not there
        tell(outcome=id)

    async def allowed(self, part: float) -> None:
        while float((self.folder / "share").read_text() or 0) < part:
            await asyncio.sleep(0.01)

    async def call(self, call: int) -> None:
        id = call_id(call)
        await self.allowed(call / self.calls)
        async with self.gate:
            ticket = await self.agent.submit("worker", method_of(call), {"call": call}, message_id=id)
            self.write(id, await self.outcome(ticket))

    async def outcome(self, ticket: object) -> object:
        try:
            return await ticket.result()  # type: ignore[attr-defined]
        except OutcomeUnknown:
            return "unknown"
        except CallError as error:
            return f"{error.reason}: {error}"

    async def stream(self, stream: int) -> None:
        id = stream_id(stream)
        await self.allowed(stream / self.streams)
        ticket = await self.agent.submit("worker", stream_method(stream), {"items": self.items}, message_id=id)
        with open(self.folder / f"{id}.bin", "ab") as file:
            file.truncate(file.tell() // ITEM * ITEM)
            file.seek(0, os.SEEK_END)
            try:
                async for item in ticket.items(offset=file.tell() // ITEM):
                    file.write(item)
                    file.flush()
            except CallError:
                pass  # `outcome` says what it was
        self.write(id, await self.outcome(ticket))

    # ------------------------------------------------------------------ lone calls
    def note(self, *words: object) -> None:
        os.write(self.lone_log, json.dumps(words).encode() + b"\n")

    def watch(self) -> None:
        """Note which submissions leave while they are stored."""
        may = Ahead.may

        def noted(*arguments: Any) -> bool:
            answer = may(*arguments)
            if answer:
                self.note("ahead")
            return answer

        Ahead.may = noted  # type: ignore[method-assign]

    async def lone(self) -> None:
        """A lane of its own, as its target is the worker's key. What `submit` returned is kept, whatever dies."""
        for id, call in unanswered(self.folder):
            self.note("outcome", id, call, await self.agent.ticket(id).result())
        while not self.over:
            keys = [record.fingerprint for record in await self.agent.find() if record.agent_id == "worker"]
            if keys:
                call = random.randrange(1000)
                ticket = await self.agent.submit(keys[0], "add", {"call": call})
                self.note("ticket", ticket.message_id, call)
                self.note("outcome", ticket.message_id, call, await ticket.result())
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        self.watch()
        async with self.agent:
            tell(ready=os.getpid())
            works = [self.call(n) for n in range(self.calls) if call_id(n) not in self.known]
            works += [self.stream(n) for n in range(self.streams) if stream_id(n) not in self.known]
            lone = asyncio.create_task(self.lone())
            await asyncio.gather(*works)
            self.over = True
            await lone
            while (status := self.agent.status()["durable"])["to_deliver"] + status.get("to_settle", 0):
                await asyncio.sleep(0.01)
            tell(done=status)
            await asyncio.to_thread(sys.stdin.read)


def known(folder: Path) -> dict[str, object]:
    """The outcomes that were written down. Raises AssertionError if one has two that differ."""
    found: dict[str, object] = {}
    path = folder / "outcomes.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        id, outcome = json.loads(line)
        assert found.setdefault(id, outcome) == outcome, f"{id} ended as {found[id]!r} and as {outcome!r}"
    return found


def unanswered(folder: Path) -> list[tuple[str, int]]:
    """The lone calls whose submission had returned, and whose outcome was not written down."""
    open_: dict[str, int] = {}
    path = folder / "lone.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        match json.loads(line):
            case ["ticket", id, call]:
                open_[id] = call
            case ["outcome", id, call, outcome]:
                assert outcome == call + 1, f"{id}: {outcome!r}"
                del open_[id]
    return list(open_.items())


if __name__ == "__main__":

    async def main() -> None:
        await Planner(Path(sys.argv[1]), *map(int, sys.argv[2:5])).run()

    ends.run(main)
