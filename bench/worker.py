"""One process of a measurement: `python -m bench.worker server|client PEER PORT CPU`, told what to do in JSON lines.

Knows: one peer's module, one event loop. Refuses to know: the other process, repeats, results of others.
Called by: bench.run.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
import time
import traceback
from typing import Any, TextIO

from bench.peers import PEERS
from bench.workloads import WORKLOADS, Task


def main(role: str, name: str, port: int, cpu: int) -> None:
    if cpu >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})  # before any thread begins; child processes inherit it
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints shall not look like a result
    logging.disable(logging.ERROR)
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        module = importlib.import_module(f"bench.peers.{PEERS[name].module}")
        if role == "server":
            loop.run_until_complete(_serve(module, port, out))
        else:
            _tell(out, {"ready": [os.getpid()]})
            for line in sys.stdin:
                _tell(out, loop.run_until_complete(_measure(module, port, json.loads(line))))
    except Exception as error:
        traceback.print_exc()
        _tell(out, {"error": f"{type(error).__name__}: {error}"[:200]})
    os._exit(0)  # some libraries take seconds to say goodbye


async def _serve(module: Any, port: int, out: TextIO) -> None:
    pids = await module.serve(port) or []
    _tell(out, {"ready": [os.getpid(), *pids]})
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(0, lambda: os.read(0, 4096) or ended.set())
    await ended.wait()


async def _measure(module: Any, port: int, order: dict[str, Any]) -> dict[str, Any]:
    task = Task(lambda: module.Conn(port), order["server_pids"], order["sizes"], order["quick"])
    cpus = order["cpus"]  # ours and the server's
    busy, used, started = _busy(cpus), task.cpu(), time.monotonic()
    try:
        async with asyncio.timeout(order["timeout"]):
            result = await WORKLOADS[order["workload"]](task)
        if busy and used and (now := task.cpu()):
            strangers = (b - a - (d - c) for a, b, c, d in zip(busy, _busy(cpus), used, now, strict=True))
            result["others"] = round(max(0.0, *strangers) / (time.monotonic() - started), 3)
        return result
    except Exception as error:  # that a peer fails is a result
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def _busy(cpus: list[int]) -> list[float]:
    """Seconds that each of these CPUs was busy so far, whoever used it; empty where nobody tells."""
    try:
        with open("/proc/stat") as file:
            rows = dict(line.split(maxsplit=1) for line in file if line.startswith("cpu"))
    except OSError:
        return []
    fields = ([int(word) for word in rows[f"cpu{cpu}"].split()[:8]] for cpu in cpus)
    return [(sum(row) - row[3] - row[4]) / os.sysconf("SC_CLK_TCK") for row in fields]


def _tell(out: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
