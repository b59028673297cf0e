"""Processes and their order: a server on one CPU, a client on another, peers interleaved, repeat by repeat.

Knows: who runs when, for how long at most. Refuses to know: what is measured, what the numbers mean.
Called by: bench.__main__.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.app import HOST
from bench.peers import Peer

START = 30  # seconds for a process to come up
LIMIT = 90  # seconds for one workload
CLIENT_CPU, SERVER_CPU = 0, 1

Result = dict[str, Any]
"""{"peer", "workload", "repeat"} and either numbers or {"error"}."""


class Failed(Exception):
    """A process of ours ended or said nothing in time."""


class Process:
    def __init__(self, role: str, peer: Peer, port: int, cpu: int, where: Path, verbose: bool) -> None:
        root = Path(__file__).resolve().parent.parent
        self.child = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", role, peer.name, str(port), str(cpu)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            env=os.environ | {"HERMES_BENCH_DIR": str(where), "PYTHONHASHSEED": "0"},
            cwd=root,
            text=True,
            bufsize=1,
            start_new_session=True,  # a broker that it starts ends with it
        )

    def hear(self, seconds: float) -> Any:
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], seconds)
        line = self.child.stdout.readline() if ready else ""
        if not line:
            raise Failed("its process ended" if ready else f"no word within {seconds:.0f} s")
        message = json.loads(line)
        if "ready" not in message and "error" in message:
            raise Failed(message["error"])
        return message

    def order(self, message: dict[str, Any], seconds: float) -> Any:
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps(message) + "\n")
        except OSError as error:
            raise Failed("its process ended") from error
        return self.hear(seconds)

    def stop(self) -> None:
        assert self.child.stdin is not None and self.child.stdout is not None
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.child.stdout.close()


@contextlib.contextmanager
def pair(peer: Peer, where: Path, pinned: bool, verbose: bool) -> Iterator[tuple[Process, list[int]]]:
    """A fresh server and a fresh client: the client, and the pids to watch at the server."""
    with contextlib.ExitStack() as stack:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        server = Process("server", peer, port, SERVER_CPU if pinned else -1, where, verbose)
        stack.callback(server.stop)
        pids = server.hear(START)["ready"]
        client = Process("client", peer, port, CLIENT_CPU if pinned else -1, where, verbose)
        stack.callback(client.stop)
        client.hear(START)
        yield client, pids


def measure(
    peers: list[Peer],
    workloads: Iterable[str],
    repeats: int,
    where: Path,
    *,
    quick: bool = False,
    verbose: bool = False,
    told: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run everything. One repeat takes all peers before the next begins, and starts one place further on.

    W5 runs in the first repeat only, in processes of its own: memory has to start low. `told` hears each
    result as it comes. A peer that fails is a result with an "error", never an exception.
    """
    pinned = (os.cpu_count() or 1) > 1
    results: list[Result] = []

    def note(peer: Peer, workload: str, repeat: int, numbers: dict[str, Any]) -> None:
        results.append({"peer": peer.name, "workload": workload, "repeat": repeat, **numbers})
        told(results[-1])

    for repeat in range(repeats):
        first = repeat % len(peers)
        for peer in peers[first:] + peers[:first]:
            groups = [[w for w in workloads if w != "W5"], [w for w in workloads if w == "W5" and repeat == 0]]
            for group in filter(None, groups):
                left = list(group)
                while left:  # a process that failed is replaced for the workloads that remain
                    try:
                        with pair(peer, where, pinned, verbose) as (client, pids):
                            while left:
                                order = {"workload": left[0], "server_pids": pids, "sizes": dict(peer.sizes)}
                                order |= {"quick": quick, "timeout": LIMIT}
                                order["cpus"] = [CLIENT_CPU, SERVER_CPU] if pinned else []
                                numbers = client.order(order, LIMIT + 15)
                                note(peer, left.pop(0), repeat, numbers)
                    except Failed as failure:
                        note(peer, left.pop(0), repeat, {"error": str(failure)})
    return results
