"""Handlers that block: in a thread they harm nobody; on the loop they are noticed, named in the log and survived.

Knows: a worker as its own process, because a stalled loop would stall the test with it. Refuses to know: threads' pool.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from hermes_peer.core.config import Config

from .rig import BEAT, clean, link_of, make_caller, settled, show, worker_process


@pytest.mark.case("HPC-029")
def test_hpc_029_blocking_handlers_in_threads_hold_nobody_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        home = tmp_path / "home"
        async with worker_process(tmp_path, home) as (worker, there), make_caller(home) as a:
            to = str(there)
            await a.call(to, "demo.echo", {})
            blocked = asyncio.ensure_future(a.call(to, "demo.block", {"s": 1.5}))
            async with make_caller(home, "second") as second:  # a handshake while it blocks
                took = []
                while not blocked.done():
                    begin = time.perf_counter()
                    assert await second.call(to, "demo.echo", {"x": 1}) == {"x": 1}
                    took.append(time.perf_counter() - begin)
                    await asyncio.sleep(0.02)
                assert await blocked == {"blocked": 1.5}
                assert len(took) > 5
                show(f"calls beside a blocking one: worst of {len(took)} was {max(took) * 1000:.1f} ms")
                many = await asyncio.gather(*(a.call(to, "demo.block", {"s": 0.05}, ttl=20) for _ in range(64)))
                assert many == [{"blocked": 0.05}] * 64
                assert link_of(a, "worker")["breaks"] == link_of(second, "worker")["breaks"] == 0
                await settled(a, second)
            worker.child.stdin.close()
            await worker.gone()
            assert "stood still" not in await worker.rest()

    clean(scenario)


@pytest.mark.case("HPC-029")
def test_hpc_029_a_coroutine_that_blocks_the_loop_is_noticed_and_survived(tmp_path: Path) -> None:
    """Long enough that its callers give the line up: they resume, and the result is delivered once."""

    async def scenario() -> None:
        home = tmp_path / "home"
        async with worker_process(tmp_path, home) as (worker, there), make_caller(home, config=BEAT) as a:
            to = str(there)
            assert await a.call(to, "demo.stall", {"s": 2.0}) == {"stalled": 2.0}
            assert await a.call(to, "demo.echo", {"x": 1}) == {"x": 1}
            worker.tell("counts")
            assert (await worker.said())["ran"] == {"stall": 1, "echo": 1}
            show(f"links after a stall of 2 s: {link_of(a, 'worker')['links']}")
            await settled(a)
            worker.child.stdin.close()
            await worker.gone()
            assert "the event loop stood still for" in await worker.rest()

    clean(scenario)


def test_our_own_stall_is_not_taken_for_the_peers_death(tmp_path: Path) -> None:
    """Silence while we ourselves were stopped says nothing about the other side."""
    patient = Config(idle_s=0.4, busy_s=0.3)

    async def scenario() -> None:
        home = tmp_path / "home"
        async with worker_process(tmp_path, home) as (_, there), make_caller(home, config=patient) as a:
            sleeping = asyncio.ensure_future(a.call(str(there), "demo.sleep", {"s": 1.0}))
            await asyncio.sleep(0.3)
            time.sleep(2.0)  # far beyond what a silent line is given
            assert await sleeping == {"slept": 1.0}
            assert await a.call(str(there), "demo.echo", {}) == {}
            await settled(a)

    clean(scenario)
