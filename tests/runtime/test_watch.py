"""runtime/watch: a stalled loop is measured, and its culprit named (HPC-029)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.core.config import Config
from tests.agent.rig import two
from tests.loops import case, until


@case("HPC-029")
async def test_a_bad_coroutine_is_named_and_its_result_is_delivered_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(tmp_path / "home", config=Config(idle_s=0.3, busy_s=0.2)) as (served, me):

        @served.method("bad.sleep")
        async def bad() -> str:
            time.sleep(1.7)
            return "awake"

        assert await me.call("worker", "bad.sleep") == "awake"
        await until(lambda: "stood still" in caplog.text)
        (record,) = {r.getMessage() for r in caplog.records if "the method bad" in r.getMessage()}
        assert "the method bad.sleep (test_watch.py:" in record
        assert served.status()["gauges"]["loop_stalls"] == 1
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}


async def test_code_of_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two(tmp_path / "home") as (served, _):

        def callback() -> None:
            time.sleep(1.7)

        asyncio.get_running_loop().call_soon(callback)
        await until(lambda: "in callback blocks it" in caplog.text)
        any_: Any = served._life.endpoint._watch
        assert any_.culprit == ""
