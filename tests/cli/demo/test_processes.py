"""The demo's processes: heard, ended by themselves, killed.

Knows: the worker's first line. Refuses to know: agents. Called by: pytest.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes_peer.cli.demo import processes
from hermes_peer.errors import CallError


def test_a_process_is_heard_and_leaves_when_its_stdin_ends(tmp_path: Path) -> None:
    async def main() -> None:
        child = await processes.start("worker", "--home", str(tmp_path / "home"))
        assert (await processes.event(child))["event"] == "ready"
        await processes.stop(child)
        assert child.returncode == 0
        await processes.stop(child)
        await processes.stop(None)
        with pytest.raises(CallError, match="ended early"):
            await processes.event(child)

    asyncio.run(main())


def test_kill_says_whether_it_was_the_kill(tmp_path: Path) -> None:
    async def main() -> None:
        child = await processes.start("worker", "--home", str(tmp_path / "home"))
        await processes.event(child)
        assert await processes.kill(child)
        assert child.returncode == -9
        early = await processes.start("worker")  # it wants a home
        await early.wait()
        assert not await processes.kill(early)

    asyncio.run(main())
