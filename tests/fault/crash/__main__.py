"""`python -m tests.fault.crash`: random kills, then every failpoint on both sides. See `--help`."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.fault.crash.drive import POINTS, one_failpoint, random_kills

AT_ONCE = 2  # sweeps that run at the same time


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.crash")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--items", type=int, default=400, help="of each stream")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--sweep", default="1,4", help="passes at which each failpoint is tried; empty: none")
    parser.add_argument("--orderly", action="store_true", help="SIGTERM instead of SIGKILL; no sweep")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args()
    print(f"seed {options.seed}: {options.kills} kills, {options.calls} calls, {options.streams} streams", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="hermes-crash-"))
    try:
        began = time.monotonic()
        if options.kills:
            asyncio.run(_random(folder, options))
        passes = [] if options.orderly else [int(n) for n in options.sweep.split(",") if n]
        if passes:
            print(f"failpoints: {asyncio.run(_sweep(folder, passes))}", flush=True)
        print(f"all of it held, {time.monotonic() - began:.0f} s")
        return 0
    except AssertionError as failed:
        print(f"seed {options.seed}: {failed}\nleft in {folder}", file=sys.stderr)
        options.keep = True
        return 1
    finally:
        if not options.keep:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)


async def _random(folder: Path, options: argparse.Namespace) -> None:
    where = folder / "random"
    where.mkdir()
    size = options.kills, options.calls, options.streams, options.items
    run = await random_kills(where, *size, options.seed, options.orderly)
    what = "orderly ends" if options.orderly else "kills"
    print(
        f"{run.kills} {what}, recovery median {statistics.median(run.recoveries):.0f} ms, "
        f"max {max(run.recoveries):.0f} ms; {run.figures}",
        flush=True,
    )


async def _sweep(folder: Path, passes: list[int]) -> str:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(side: str, point: str, nth: int) -> None:
        async with gate:
            where = folder / f"{side} {point} {nth}"
            where.mkdir()
            try:
                await one_failpoint(where, side, point, nth)
            except AssertionError as failed:
                raise AssertionError(f"{side} killed at {point}:{nth}: {failed}") from None

    wanted = [
        (side, point, nth)
        for nth in passes
        for side, points in POINTS.items()
        for point in points
        if nth == 1 or "checkpoint" not in point
    ]
    async with asyncio.TaskGroup() as group:
        for each in wanted:
            group.create_task(one(*each))
    return f"{len(wanted)} kills at {sum(map(len, POINTS.values()))} points of two sides"


if __name__ == "__main__":
    sys.exit(main())
