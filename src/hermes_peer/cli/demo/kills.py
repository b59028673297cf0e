"""The second act: worker and planner are killed in mid-work and started again; what comes of it is counted.

Knows: processes, how far the work is, the worker's table of filed reports. Refuses to know: how durable work works.
Called by: the demo's command, after the first act, with the worker that still runs.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hermes_peer.cli.demo import audit, processes
from hermes_peer.cli.demo.processes import Event, Process
from hermes_peer.cli.demo.reporter import short_plan
from hermes_peer.cli.demo.screen import Screen
from hermes_peer.cli.demo.worker import FILED
from hermes_peer.errors import CallError

SECONDS = 4.0  # how long the worker takes its time for all of it
LIMIT_S = 60.0
WORKER_DIES, PLANNER_DIES = 0.33, 0.66  # of the findings


class Kills:
    """One run of the act. `worker` is the process that must be ended afterwards."""

    def __init__(self, home: str, roots: list[str], worker: Process, model: list[str], screen: Screen) -> None:
        self.worker = worker
        self.kills = 0
        self.recovery_ms: dict[str, float] = {}
        self._home, self._roots, self._model = home, roots, model
        self._screen = screen
        self._planner: Process | None = None
        steps = short_plan(roots)
        self.total = sum(1 for step in steps for _ in audit.findings(step["root"], step))
        self._died: dict[str, float] = {}
        self._from: dict[str, int] = {}

    async def run(self) -> dict[str, Any]:
        """Act; answers the members of "act2" and how it went in words. Raises CallError."""
        self._screen.show({"event": "second act", "items": self.total})
        try:
            async with asyncio.timeout(LIMIT_S):
                last = await self._act()
        except TimeoutError:
            raise CallError("demo", f"the second act did not end within {LIMIT_S:g} s") from None
        finally:
            await processes.stop(self._planner)
            await processes.stop(self.worker)
        names = ("items", "lost", "duplicated", "out_of_order", "unexpected")
        return (
            {"kills": self.kills}
            | {name: last[name] for name in names}
            | {"effects": effects(Path(self._home)), "recovery_ms": self.recovery_ms}
        )

    async def _act(self) -> Event:
        pause = SECONDS / self.total
        planner = ("reporter", "--home", self._home, "--pause", str(pause), *self._roots)
        worker = ("worker", "--home", self._home, *self._model)
        self._planner = await processes.start(*planner)
        heard = Heard()
        heard.listen("worker", self.worker)
        heard.listen("planner", self._planner)
        async for who, event in heard.events():
            match event["event"]:
                case "kept":
                    self._kept(event)
                    if not self._died and event["items"] >= self.total * WORKER_DIES:
                        self.worker = await self._again("worker", self.worker, worker, heard)
                    elif len(self._died) == 1 and event["items"] >= self.total * PLANNER_DIES:
                        self._planner = await self._again("planner", self._planner, planner, heard)
                case "run" | "reading" if who in self._died:  # the restarted one says where it goes on
                    self._from[who] = event["emitted"] if who == "worker" else event["have"]
                    self._screen.show({"event": "goes on", "who": who, "at": self._from[who]})
                case "done":
                    return event
        raise AssertionError

    def _kept(self, event: Event) -> None:
        self._screen.show(event)
        for who, begun in self._from.items():
            if who not in self.recovery_ms and event["items"] > begun:
                took = round((time.monotonic() - self._died[who]) * 1000, 1)
                self.recovery_ms[who] = took
                self._screen.show({"event": "recovered", "who": who, "ms": took})

    async def _again(self, who: str, process: Process, how: tuple[str, ...], heard: Heard) -> Process:
        self._screen.show({"event": "killed", "who": who})
        self._died[who] = time.monotonic()
        heard.forget(who)
        self.kills += await processes.kill(process)
        fresh = await processes.start(*how)
        heard.listen(who, fresh)
        return fresh


class Heard:
    """What several processes say, in the order in which it comes."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[str, Event | CallError]] = asyncio.Queue()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def listen(self, who: str, process: Process) -> None:
        self._tasks[who] = asyncio.ensure_future(self._hear(who, process))

    def forget(self, who: str) -> None:
        """It is about to die: its end is none of an error."""
        self._tasks.pop(who).cancel()

    async def _hear(self, who: str, process: Process) -> None:
        try:
            while True:
                self._queue.put_nowait((who, await processes.event(process)))
        except CallError as ended:
            self._queue.put_nowait((who, ended))

    async def events(self) -> AsyncIterator[tuple[str, Event]]:
        """Raises CallError once a process that is listened to has ended."""
        try:
            while True:
                who, said = await self._queue.get()
                if isinstance(said, CallError):
                    raise said
                yield who, said
        finally:
            for task in self._tasks.values():
                task.cancel()


def effects(home: Path) -> int:
    """How many reports were filed, read from the worker's journal behind its back, once it has ended."""
    journal = home / "agents" / "worker" / "1" / "journal.db"
    db = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        return int(db.execute(f"SELECT count(*) FROM {FILED}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # nobody ever made the table
    finally:
        db.close()
