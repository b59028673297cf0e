"""Slow readers, slow lines, readers that never read: each stream has its own fate, and memory stays bounded.

Knows: what flows beside what. Refuses to know: windows and permits. One process measures its own memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes_peer import DeadlineExceeded
from hermes_peer.core.config import Config

from .rig import ROOT, clean, pair, pattern, process, settled, show, until

STREAMS = 128
RSS_MOST = 64 << 20  # what the process may grow by; the session windows of both ends together are 34 MiB


@pytest.mark.case("HPC-020")
def test_hpc_020_a_slow_line_ends_streams_by_their_own_clock_and_nothing_hangs(tmp_path: Path) -> None:
    size = 64 << 10

    async def upload() -> AsyncIterator[bytes]:
        for start in range(0, size, 4096):
            yield pattern(start, 4096)

    async def scenario() -> None:
        usual = Config()
        async with pair(tmp_path, a={"config": usual}, b={"config": usual}, buffer=8192) as two:
            await two.a.call(two.to, "demo.echo", {})
            two.p.rate(8_000)
            hurried = [
                asyncio.ensure_future(two.a.call(two.to, "demo.take", {}, items=upload(), ttl=1)) for _ in range(15)
            ]
            patient = [
                asyncio.ensure_future(two.a.call(two.to, "demo.take", {}, items=upload(), ttl=30)) for _ in range(5)
            ]
            ends = await asyncio.gather(*hurried, return_exceptions=True)
            assert all(isinstance(end, DeadlineExceeded) and end.timer == "ttl" for end in ends), ends
            assert not any(call.done() for call in patient)
            two.p.rate(None)
            lifted = time.monotonic()
            whole = {"size": size, "sha": hashlib.sha256(pattern(0, size)).hexdigest()}
            assert await asyncio.gather(*patient) == [whole] * 5
            await until(lambda: two.offered.ended["take"] == two.offered.ran["take"], "no reader hangs")
            show(f"all readers had ended {time.monotonic() - lifted:.2f} s after the limit was lifted")
            assert two.offered.ran["take"] <= 20
            assert (two.p.connections, two.contact.breaks) == (1, 0)

    clean(scenario)


@pytest.mark.case("HPC-024")
@pytest.mark.attack(38)
def test_hpc_024_one_reader_that_stops_delays_nobody_else(tmp_path: Path) -> None:
    size = 8 << 20

    async def scenario() -> None:
        async with pair(tmp_path) as two:
            async with two.a.stream(two.to, "demo.bytes", {"n": size, "chunk": 16384}) as slow:
                await anext(slow)
                produced = -1
                while produced != two.offered.produced:  # until the producer waits for credit
                    produced = two.offered.produced
                    await asyncio.sleep(0.1)
                assert produced < size // 16384
                worst = 0.0
                async with two.a.stream(two.to, "demo.tokens", {"n": 100, "every": 0.002}) as tokens:
                    got = []
                    async for item in tokens:
                        got.append(item)
                        if item % 10 == 0:
                            begin = time.perf_counter()
                            assert await two.a.call(two.to, "demo.echo", {"n": item}) == {"n": item}
                            worst = max(worst, time.perf_counter() - begin)
                assert got == list(range(1, 101))
                show(f"beside a stuck stream: worst of ten calls {worst * 1000:.1f} ms")
                assert two.offered.ended["bytes"] == 0
                digest = hashlib.sha256(pattern(0, 16384))
                async for part in slow:
                    digest.update(part)
                assert await slow.result() == digest.hexdigest()
            assert (two.p.connections, two.contact.breaks) == (1, 0)

    clean(scenario, rounds=2)


def test_a_reader_that_leaves_gives_all_credit_back(tmp_path: Path) -> None:
    """Twenty streams left in the middle cost nothing: the twenty-first has the window of the first."""

    async def scenario() -> None:
        async with pair(tmp_path) as two:
            for _ in range(20):
                async with two.a.stream(two.to, "demo.bytes", {"n": 1 << 30, "chunk": 8192}) as parts:
                    await anext(parts)
                    await anext(parts)
            await until(lambda: two.offered.ended["bytes"] == 20, "all producers were cancelled")
            await settled(two.a, two.b)
            whole = 0
            async for part in two.a.stream(two.to, "demo.bytes", {"n": 3 << 20}):
                whole += len(part)
            assert whole == 3 << 20
            passed_over = two.a.stream(two.to, "demo.bytes", {"n": 3 << 20})
            await anext(passed_over)
            await until(lambda: two.contact.session.receiver.window.unread, "items that nobody will take")
            assert await passed_over.result() == hashlib.sha256(pattern(0, 3 << 20)).hexdigest()

    clean(scenario, rounds=2)


MANY = """
    import asyncio, hashlib, json, resource, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from hermes_peer.core.config import Config
    from tests.fault.rig import make_caller, make_worker, pattern, settled, tcp, until

    def rss():
        if not Path("/proc/self/status").exists():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes, and the most there ever was
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024

    async def main():
        streams, size = int(sys.argv[3]), 128 * 1024
        config = Config(streams=streams + 16)
        worker, offered = make_worker(Path(sys.argv[2]), config=config)
        async with worker, make_caller(Path(sys.argv[2]), config=config) as a:
            to = str(tcp(worker))

            async def read():
                digest = hashlib.sha256()
                async with a.stream(to, "demo.bytes", {"n": size}) as parts:
                    async for part in parts:
                        digest.update(part)
                    return digest.hexdigest() == await parts.result()

            assert await read()
            before = rss()
            async with a.stream(to, "demo.bytes", {"n": 1 << 40, "chunk": 16384}) as never_read:
                for _ in range(3):
                    whole = await asyncio.gather(*(read() for _ in range(streams - 1)))
                    assert all(whole) and len(whole) == streams - 1
                grown = rss() - before
                status = a.status()
                assert never_read.offset == 0 and offered.ended["bytes"] == 1 + 3 * (streams - 1)
            await settled(a, worker)
            print(json.dumps({"grown": grown, "unread": status["gauges"]["unread_bytes"], "ran": offered.ran["bytes"]}))

    asyncio.run(main())
"""


@pytest.mark.attack(38)
def test_128_streams_at_once_flow_beside_a_reader_that_never_reads(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with process(tmp_path, MANY, ROOT, str(tmp_path / "home"), str(STREAMS)) as child:
            found = await child.said(60)
            assert await child.gone() == 0, await child.rest()
            show(
                f"{STREAMS} streams three times over: {found['grown'] / 2**20:.1f} MiB more, {found['unread']} B unread"
            )
            assert found["ran"] == 2 + 3 * (STREAMS - 1)
            assert 0 < found["unread"] <= 5 << 20  # at most the largest window of one stream, and what was on its way
            assert found["grown"] < RSS_MOST

    clean(scenario, limit=90)
