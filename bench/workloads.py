"""W1 to W6: what is done, and what is timed. A peer is seen as `Conn` only (see bench.peers).

Knows: loops, clocks, /proc. Refuses to know: libraries, processes' births, tables.
Called by: bench.worker, in the client's process.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any

from bench.app import BLOB, MIB, SMALL, payload

SIZES = {"tokens": 20_000, "streams": 50, "streams_tokens": 1000, "blobs": 64, "links": 500, "connects": 100}
QUICK = {"tokens": 4000, "streams_tokens": 100, "blobs": 16, "links": 50, "connects": 20}


class Task:
    """One workload to run: how to make a connection, whom to watch, how much to do."""

    def __init__(self, make: Callable[[], Any], server_pids: list[int], sizes: dict[str, int], quick: bool) -> None:
        self.make = make
        self.server_pids = server_pids
        self.sizes = SIZES | (QUICK if quick else {})
        self.sizes |= {name: min(size, self.sizes[name]) for name, size in sizes.items()}
        self.quick = quick

    def seconds(self, full: float) -> float:
        return full / 4 if self.quick else full

    async def connect(self) -> Any:
        conn = self.make()
        await conn.open()
        if await conn.request(SMALL) != SMALL:
            raise AssertionError("the echo is no echo")
        return conn

    def cpu(self) -> tuple[float, float] | None:
        """CPU seconds so far, ours and the server's; in steps of 10 ms, and on Linux only."""
        try:
            return _cpu(os.getpid()), sum(map(_cpu, self.server_pids))
        except OSError:
            return None

    def memory(self) -> tuple[int, int] | None:
        """Resident bytes, ours and the server's."""
        try:
            return _resident(os.getpid()), sum(map(_resident, self.server_pids))
        except OSError:
            return None

    def cost(self, before: tuple[float, float] | None, operations: int) -> dict[str, float]:
        after = self.cpu()
        if before is None or after is None or not operations:
            return {}
        ours, theirs = ((b - a) / operations * 1e6 for a, b in zip(before, after, strict=True))
        return {"cpu_client_us": ours, "cpu_server_us": theirs}

    async def rounds(self, once: Callable[[], Awaitable[None]], seconds: float = 0.8) -> tuple[float, int]:
        """Repeat until so much time is used, at most seven times: the median round, and how many."""
        times: list[float] = []
        while not times or (sum(times) < self.seconds(seconds) and len(times) < 7):
            started = perf_counter()
            await once()
            times.append(perf_counter() - started)
        return median(times), len(times)


async def _latencies(conn: Any, body: Any, seconds: float) -> list[float]:
    """Sorted round-trip times of one request after the other."""
    out = []
    now = perf_counter()
    end = now + seconds
    while now < end:
        await conn.request(body)
        before, now = now, perf_counter()
        out.append(now - before)
    return sorted(out)


async def _flight(conn: Any, seconds: float, width: int) -> tuple[int, float]:
    """Keep `width` requests in flight: how many were answered, and in what time."""
    answered = 0
    end = perf_counter() + seconds

    async def one_after_the_other() -> None:
        nonlocal answered
        while perf_counter() < end:
            await conn.request(SMALL)
            answered += 1

    started = perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(width)))
    return answered, perf_counter() - started


async def _read(conn: Any, n: int, spread: bool = False, strict: bool = False) -> None:
    count = 0
    async for token in conn.stream(n, spread):
        if strict and token["i"] != 10000 + count:
            raise AssertionError(f"token {count} is {token}")
        count += 1
    if count != n:
        raise AssertionError(f"{count} tokens instead of {n}")


async def _settle(seconds: float = 0.1) -> None:
    gc.collect()
    await asyncio.sleep(seconds)


async def w1(task: Task) -> dict[str, float]:
    """One request in flight, 256 bytes; then 1 and 10 KB for the mission's target, and what sealing costs."""
    conn = await task.connect()
    await _latencies(conn, SMALL, task.seconds(0.4))
    await _settle()
    cpu = task.cpu()
    times = await _latencies(conn, SMALL, task.seconds(1.2))
    out = {"p50_us": times[len(times) // 2] * 1e6, "p99_us": times[len(times) * 99 // 100] * 1e6}
    out |= task.cost(cpu, len(times))
    for size in (1_000, 10_000):
        body = payload(size)
        await _latencies(conn, body, task.seconds(0.1))
        times = await _latencies(conn, body, task.seconds(0.4))
        out[f"p50_us_{size}"] = times[len(times) // 2] * 1e6
        out[f"p99_us_{size}"] = times[len(times) * 99 // 100] * 1e6
        out[f"seal_us_{size}"] = sealing(size)
    await conn.close()
    return out


async def w2(task: Task) -> dict[str, float]:
    """64 requests in flight on one connection."""
    conn = await task.connect()
    await _flight(conn, task.seconds(0.4), 64)
    await _settle()
    cpu = task.cpu()
    answered, took = await _flight(conn, task.seconds(1.4), 64)
    cost = task.cost(cpu, answered)
    await conn.close()
    return {"per_s": answered / took, **cost}


async def w3(task: Task) -> dict[str, float]:
    """One stream of small tokens, a message each, read with `async for`."""
    n = task.sizes["tokens"]
    conn = await task.connect()
    await _read(conn, n // 10, strict=True)
    await _settle()
    cpu = task.cpu()
    took, times = await task.rounds(lambda: _read(conn, n))
    cost = task.cost(cpu, n * times)
    await conn.close()
    return {"per_s": n / took, **cost}


async def w3b(task: Task) -> dict[str, float]:
    """Fifty streams at once on one connection; the generators give the loop a turn before each token."""
    n, width = task.sizes["streams_tokens"], task.sizes["streams"]
    conn = await task.connect()

    async def all_of_them(each: int = n, strict: bool = False) -> None:
        await asyncio.gather(*(_read(conn, each, True, strict) for _ in range(width)))

    await all_of_them(max(5, n // 10), True)
    await _settle()
    cpu = task.cpu()
    took, times = await task.rounds(all_of_them)
    cost = task.cost(cpu, n * width * times)
    await conn.close()
    return {"per_s": n * width / took, **cost}


async def w4(task: Task) -> dict[str, float]:
    """Uploads of 1 MiB, four in flight, small answers."""
    total = task.sizes["blobs"]
    conn = await task.connect()

    async def uploads(count: int) -> None:
        left = iter(range(count))

        async def one_after_the_other() -> None:
            for _ in left:
                answer = await conn.upload(BLOB)
                if answer["n"] != MIB:
                    raise AssertionError(f"{answer} of {MIB} bytes arrived")

        await asyncio.gather(*(one_after_the_other() for _ in range(4)))

    await uploads(4)
    await _settle()
    cpu = task.cpu()
    took, times = await task.rounds(lambda: uploads(total))
    cost = task.cost(cpu, total * times)
    await conn.close()
    return {"mb_s": total * MIB / 1e6 / took, **cost}


async def w5(task: Task) -> dict[str, float]:
    """Many links that do nothing: memory for each, and the CPU that their silence costs."""
    total, width = task.sizes["links"], 20
    conns: list[Any] = []
    numbers = iter(range(total))

    async def open_some() -> None:
        for _ in numbers:
            conns.append(await task.connect())

    conns += [await task.connect() for _ in range(5)]  # what exists once and not per link
    await _settle(0.5)
    before = task.memory()
    started = perf_counter()
    await asyncio.gather(*(open_some() for _ in range(width)))
    out = {"links": float(total), "open_s": perf_counter() - started}
    await _settle(1.0)
    after = task.memory()
    if before and after:
        out["client_kib"], out["server_kib"] = ((b - a) / total / 1024 for a, b in zip(before, after, strict=True))
    idle = 3.0 if task.quick else 10.0
    cpu = task.cpu()
    await asyncio.sleep(idle)
    used = task.cpu()
    if cpu and used:
        out["client_cpu"], out["server_cpu"] = ((b - a) / idle for a, b in zip(cpu, used, strict=True))
    await asyncio.gather(*(conn.request(SMALL) for conn in conns[:: max(1, total // 20)]))  # still there
    return out


async def w6(task: Task) -> dict[str, float]:
    """Connect, with the peer's security, and the first request; one after the other."""
    total = task.sizes["connects"]
    times = []
    for number in range(total + 5):
        conn = task.make()
        started = perf_counter()
        await conn.open()
        await conn.request(SMALL)
        if number >= 5:
            times.append(perf_counter() - started)
        await conn.close()
    times.sort()
    return {"ms": times[total // 2] * 1e3, "p99_ms": times[total * 99 // 100] * 1e3}


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W3b": w3b, "W4": w4, "W6": w6, "W5": w5}


def sealing(size: int, envelope: int = 200) -> float:
    """Microseconds of AES-256-GCM in a call with so large a request and answer: sealed and opened, twice."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    seal, nonce, body = AESGCM(bytes(32)), bytes(12), bytes(size + envelope)
    closed = seal.encrypt(nonce, body, None)
    best = 1.0
    for _ in range(5):
        started = perf_counter()
        for _ in range(200):
            seal.encrypt(nonce, body, None)
            seal.decrypt(nonce, closed, None)
        best = min(best, (perf_counter() - started) / 200)
    return 2 * best * 1e6


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
