"""The processes of the demo: started, heard line by line, ended, killed.

Knows: pipes and JSON lines. Refuses to know: what the lines say. Called by: the demo's command and its second act.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from hermes_peer.errors import CallError

Process = asyncio.subprocess.Process
Event = dict[str, Any]


async def start(role: str, *arguments: str) -> Process:
    """`python -m hermes_peer.cli.demo.ROLE`, whose stdin is ours: its end tells the process to leave."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"hermes_peer.cli.demo.{role}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        limit=1 << 20,
    )


async def event(process: Process) -> Event:
    """The next line that it says. Raises CallError at its end."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise CallError("demo", "a process of the demo ended early; what it said stands above")
    said: Event = json.loads(line)
    return said


async def stop(process: Process | None) -> None:
    """Let it end by itself within 3 s, else end it."""
    if process is None or process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), 3)
    except TimeoutError:
        process.kill()
        await process.wait()


async def kill(process: Process) -> bool:
    """SIGKILL. Whether it died of it; it may have ended by itself before."""
    if process.returncode is None:
        process.kill()
    return await process.wait() == -9
