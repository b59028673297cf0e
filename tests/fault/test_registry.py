"""A registry that loses a record, is emptied, or cannot be written: the service comes back by itself.

Knows: the folder registry and short leases. Refuses to know: signatures.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent
from hermes_peer.agent import life as life_module

from .rig import clean, make_caller, make_worker, settled, tcp, until, worker_process

LEASE_S = 0.9


def listed(agent: HermesAgent, name: str = "worker") -> list[Any]:
    try:
        return agent._running().directory.view.lookup(name, time.time())
    except OSError:
        return []


@pytest.mark.case("HPC-070")
def test_hpc_070_a_record_that_was_lost_is_announced_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs 3 and 4: the registry comes back empty; it refuses all writes for a while. A stream runs all the time."""
    monkeypatch.setattr(life_module, "LEASE", LEASE_S)
    registry = tmp_path / "registry"

    async def scenario() -> None:
        url = registry.as_uri()
        worker, offered = make_worker(tmp_path / "home", registry_url=url)
        async with worker, make_caller(tmp_path / "home", registry_url=url) as a:
            taken: list[int] = []

            async def read() -> None:
                async with a.stream(str(tcp(worker)), "demo.tokens", {"n": 5000, "every": 0.001}) as tokens:
                    async for item in tokens:
                        taken.append(item)

            reader = asyncio.ensure_future(read())
            (first,) = await until(lambda: listed(a), "it is listed")
            await until(lambda: taken, "the stream flows")

            shutil.rmtree(registry)  # run 3
            assert listed(a) == []
            (again,) = await until(lambda: listed(a), "it is listed again", 4 * LEASE_S)
            assert (again.fingerprint, again.instance_id, again.addresses) == (
                first.fingerprint,
                first.instance_id,
                first.addresses,
            )
            assert again.seq > first.seq

            shutil.rmtree(registry)  # run 4: a file where the folder should be refuses everything
            registry.write_text("")
            await until(lambda: "does not take our record" in caplog.text, "the loss is logged", 4 * LEASE_S)
            assert await a.call("worker", "demo.echo", {"x": 1}) == {"x": 1}  # the link needs no registry
            registry.unlink()
            (back,) = await until(lambda: listed(a), "it is listed again", 4 * LEASE_S)
            assert back.fingerprint == first.fingerprint
            assert len(list(registry.glob("*.record"))) == 1
            await until(lambda: "the registry has us listed again" in caplog.text, "the recovery is logged")
            assert caplog.text.count("does not take our record") == 1
            assert caplog.text.count("has us listed again") == 1

            count = len(taken)
            await until(lambda: len(taken) > count or reader.done(), "the stream still flows")
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            assert taken == list(range(1, len(taken) + 1))
            assert offered.ran["tokens"] == 1
            await settled(a, worker)

    clean(scenario)


@pytest.mark.case("HPC-070")
def test_hpc_070_a_stopped_process_is_not_listed_and_comes_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run 2: stopped for longer than its lease."""
    monkeypatch.setenv("FAULT_LEASE_S", str(LEASE_S))

    async def scenario() -> None:
        async with make_caller(tmp_path / "home") as a, worker_process(tmp_path, tmp_path / "home") as (worker, there):
            await until(lambda: listed(a), "it is listed")
            worker.kill(signal.SIGSTOP)
            await until(lambda: not listed(a), "its lease ends", 4 * LEASE_S)
            assert any("lease ended" in why for why in a._running().directory.view.refused)
            os.kill(worker.pid, signal.SIGCONT)
            (back,) = await until(lambda: listed(a), "it is listed again")
            assert back.fingerprint == there.fingerprint
            assert await a.call("worker", "demo.echo", {"x": 1}) == {"x": 1}
            await settled(a)

    clean(scenario)
