"""Starts, kills and restarts the two programs.

Knows: processes, what they print, the clock. Refuses to know: what they do. Called by: __main__, test_crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fault.crash.check import check

ROOT = Path(__file__).resolve().parents[3]
SIDES = ("worker", "planner")
PATIENCE_S = 60.0  # for the next sign of progress
JOURNAL = ("before commit", "after commit", "before answer", "after answer", "before checkpoint", "after checkpoint")
POINTS = {
    "worker": ("before-accept", "after-accept", "before-append", "after-append", "before-done", "after-done", *JOURNAL),
    "planner": (
        "before-submit",
        "after-submit",
        "before-send",
        "after-send",
        "before-outcome",
        "after-outcome",
        *JOURNAL,
    ),
}


class Run:
    """One scenario in one folder. `kill(side)` and `again(side)`; `ready`, `outcomes`, `done` tell of progress."""

    def __init__(self, folder: Path, calls: int, streams: int, items: int) -> None:
        self.folder = folder
        self.size = (calls, streams, items)
        self.children: dict[str, asyncio.subprocess.Process] = {}
        self.outcomes = 0
        self.done: dict[str, Any] | None = None
        self.readies: dict[str, float] = {}
        self.recoveries: list[float] = []
        self.kills = 0
        self.figures: dict[str, int] = {}
        self._moved = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []
        self._sockets = Path(tempfile.mkdtemp(prefix="hc-"))  # short, and nobody else's
        self.share(0.0)

    def share(self, part: float) -> None:
        fresh = self.folder / "share.new"
        fresh.write_text(str(part))
        fresh.replace(self.folder / "share")

    async def start(self, side: str, failpoint: str = "") -> None:
        self.readies.pop(side, None)
        if side == "planner":
            self.done = None
        arguments = [str(self.folder / "home"), *(map(str, self.size) if side == "planner" else ())]
        with open(self.folder / f"{side}.err", "ab") as errors:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"tests.fault.crash.{side}",
                *arguments,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=os.environ
                | {
                    "PYTHONPATH": str(ROOT / "src"),
                    "HERMES_PEER_FAILPOINT": failpoint,
                    "XDG_RUNTIME_DIR": str(self._sockets),
                },
            )
        self.children[side] = child
        self._readers.append(asyncio.create_task(self._read(side, child)))

    async def _read(self, side: str, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        with contextlib.suppress(ValueError):
            async for line in child.stdout:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a word
                message = json.loads(line)
                if self.children.get(side) is child:
                    if "ready" in message:
                        self.readies[side] = time.monotonic()
                    elif "done" in message:
                        self.done = message["done"]
                    else:
                        self.outcomes += 1
                self._moved.set()
        self._moved.set()

    async def until(self, true: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not true():
                    self._moved.clear()
                    await self._moved.wait()
                    for side, child in self.children.items():
                        assert child.returncode is None, f"the {side} ended by itself; {self.errors()}"
        except TimeoutError:
            raise AssertionError(f"within {seconds:g} s: {what} did not come; {self.errors()}") from None

    def errors(self) -> str:
        return " | ".join(f"{side}: {(self.folder / f'{side}.err').read_text()[-2000:]}" for side in SIDES)

    async def both(self, failpoints: dict[str, str] | None = None) -> None:
        for side in SIDES:
            await self.start(side, (failpoints or {}).get(side, ""))

    async def kill(self, side: str, share: float, orderly: bool = False) -> None:
        """SIGKILL (or SIGTERM), restart at once, and note how long it takes until work is done again; there is some
        more now."""
        if orderly:
            await self.until(lambda: side in self.readies, f"the {side}")
        began = time.monotonic()
        child = self.children[side]
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM if orderly else signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await child.wait()
        wanted = 0 if orderly else -signal.SIGKILL
        assert child.returncode == wanted, f"the {side} ended by itself: {self.errors()}"
        self.kills += 1
        self.share(share)
        await self.start(side)
        await self.until(lambda: side in self.readies, f"the {side} again")
        before = self.outcomes
        await self.until(lambda: self.outcomes > before or self.done is not None, f"an outcome after the {side}'s end")
        self.recoveries.append((time.monotonic() - began) * 1000)

    async def dies(self, side: str, seconds: float) -> None:
        """Its failpoint is reached."""
        try:
            async with asyncio.timeout(seconds):
                await self.children[side].wait()
        except TimeoutError:
            raise AssertionError(f"the {side} never came to its failpoint") from None
        assert self.children[side].returncode == -signal.SIGKILL, self.errors()
        self.kills += 1

    async def finish(self) -> dict[str, int]:
        """All is allowed; wait until all is done; end both; check."""
        self.share(2.0)
        await self.until(lambda: self.done is not None, "the end of all work")
        await self.close(gently=True)
        figures = check(self.folder, *self.size)
        assert figures["orphans"] <= self.kills, f"{figures['orphans']} works were lost by {self.kills} kills"
        return figures

    async def close(self, gently: bool = False) -> None:
        for side in reversed(SIDES):
            child = self.children.get(side)
            if child is None:
                continue
            assert child.stdin is not None
            if gently and child.returncode is None:
                child.stdin.close()
                async with asyncio.timeout(PATIENCE_S):
                    await child.wait()
            elif child.returncode is None:
                child.kill()
                await child.wait()
        await asyncio.gather(*self._readers)
        shutil.rmtree(self._sockets, ignore_errors=True)


async def random_kills(
    folder: Path, kills: int, calls: int, streams: int, items: int, seed: int, orderly: bool = False
) -> Run:
    """Kill either side at random moments while the load goes on. `orderly`: ask them to end instead; then the outcome
    of no work is unknown."""
    dice = random.Random(seed)
    run = Run(folder, calls, streams, items)
    try:
        await run.both()
        for number in range(kills):
            run.share((number + 0.5) / kills)
            await asyncio.sleep(dice.uniform(0.0, 0.03 if orderly else 0.15))  # so that an orderly end meets some work
            await run.kill(dice.choice(SIDES), (number + 1) / kills, orderly)
        run.figures = await run.finish()
        assert not (orderly and run.figures["unknown"]), f"{run.figures['unknown']} outcomes are unknown"
    finally:
        await run.close()
    return run


async def one_failpoint(folder: Path, side: str, point: str, nth: int = 1) -> dict[str, int]:
    """A small load; one side dies at one point and is started again."""
    run = Run(folder, 9, 2, 60)
    try:
        run.share(2.0)
        await run.both({side: f"{point}:{nth}"})
        await run.dies(side, 20.0)
        await run.start(side)
        await run.until(lambda: side in run.readies, f"the {side} again")
        return await run.finish()
    finally:
        await run.close()
