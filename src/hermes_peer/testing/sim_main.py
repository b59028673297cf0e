"""The command line of the simulator.

Knows: many seeds, several processes, how to tell what came of them. Refuses to know: what a seed means.
Called by: `python -m hermes_peer.testing.simulator`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from hermes_peer.testing.sim_plants import PLANTS, plant
from hermes_peer.testing.simulator import Report, simulate

CHUNK = 50


def _some(task: tuple[int, int, str, bool]) -> list[Report]:
    start, count, fault, on = task
    with plant(fault):
        reports = []
        for seed in range(start, start + count):
            reports.append(simulate(seed))
            if reports[-1].violation and not on:
                break
        return reports


def _all(start: int, seeds: int, jobs: int, fault: str, on: bool) -> Iterator[list[Report]]:
    tasks = [(at, min(CHUNK, start + seeds - at), fault, on) for at in range(start, start + seeds, CHUNK)]
    if jobs <= 1:
        yield from map(_some, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(_some, tasks)
        finally:
            pool.shutdown(cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a seed breaks a promise."""
    parser = argparse.ArgumentParser(prog="simulator", description="Run seeded worlds of Hermes peers.")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fault", default="", choices=["", *PLANTS], help="plant a known bug; it must be found")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first violation")
    options = parser.parse_args(arguments)
    began, shown = time.monotonic(), 0.0
    faults: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    done = bad = links = 0
    virtual = 0.0
    out = sys.stdout.write
    for reports in _all(options.start, options.seeds, options.jobs, options.fault, options.keep_going):
        for report in reports:
            done += 1
            virtual += report.seconds
            links += report.links
            faults += report.faults
            outcomes += report.outcomes
            ends += report.ends
            if report.violation:
                bad += 1
                out(f"\nseed {report.seed}: {report.violation}\n{report.trace}{report.plan}\n")
                out(f"again: python -m hermes_peer.testing.simulator --start {report.seed} --seeds 1\n")
        took = time.monotonic() - began
        if took - shown > 5.0:
            shown = took
            out(f"{done} seeds, {done / took:.0f}/s, {virtual / 3600:.1f} virtual hours\n")
            sys.stdout.flush()
        if bad and not options.keep_going:
            break
    took = time.monotonic() - began
    out(f"{done} seeds in {took:.1f} s ({done / took:.0f}/s), {virtual / 3600:.1f} virtual hours, {links} link ends\n")
    for name, counts in (("faults", faults), ("outcomes", outcomes), ("ends of sessions", ends)):
        out(f"{name}: {', '.join(f'{k} {n}' for k, n in counts.most_common())}\n")
    out(f"{bad} violations\n" if bad else "no violation\n")
    return 1 if bad else 0
