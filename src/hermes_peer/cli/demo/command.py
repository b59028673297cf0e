"""`hermes-peer demo`: planner and worker as two processes, a proxy between them that keeps breaking the line.

Knows: processes, the proxy, the screen. Refuses to know: what the agents say to each other.
Called by: cli.main. Its last line on stdout is JSON; exit code 0 only if nothing was lost or doubled.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hermes_peer.cli.demo import audit
from hermes_peer.cli.demo.chaos import Chaos
from hermes_peer.cli.demo.planner import make_plan
from hermes_peer.cli.demo.screen import Screen
from hermes_peer.errors import CallError, UsageError
from hermes_peer.testing import FaultProxy
from hermes_peer.wire.address import Address

SECONDS = 8.0  # how long the line is made to need for all of it
BYTES_EACH = 320  # what a finding costs on the wire, about
LIMIT_S = 180.0


def demo(folders: list[Path], model: str | None = None) -> int:
    """Run it; returns the exit code. Raises UsageError for a folder that is not there or holds nothing to find."""
    roots = [str(folder.resolve()) for folder in folders or _default()]
    for root in roots:
        if not Path(root).is_dir():
            raise UsageError(f"{root} is no folder: give folders with files to audit, such as `hermes-peer demo src`")
    steps = make_plan(roots)
    filled = [{name: audit.ANSWERS[name] for name in audit.missing(step)} | step for step in steps]
    total = sum(1 for step in filled for _ in audit.findings(step["root"], step))
    if total < 20:
        raise UsageError(f"only {total} findings in {', '.join(roots)}: give a folder with more files")
    return asyncio.run(_run(roots, total, model))


def _default() -> list[Path]:
    """The project's own docs and src where we stand in it, else the installed package."""
    here = [Path(name) for name in ("docs", "src") if Path(name).is_dir()]
    return here or [Path(__file__).resolve().parents[2]]


async def _run(roots: list[str], total: int, model: str | None) -> int:
    with tempfile.TemporaryDirectory(prefix="hermes-demo-") as home, Screen(total) as screen:
        worker = await _process("worker", "--home", home, *(["--model", model] if model else []))
        planner = None
        try:
            ready = await _event(worker)
            address = Address.parse(ready["address"])
            async with FaultProxy((address.host, address.port), buffer=4096) as proxy:
                proxy.rate(max(4096, total * BYTES_EACH / SECONDS))
                host, port = proxy.address
                seen = Address.tcp(host, port, address.fingerprint)
                chaos = Chaos(proxy, total, lambda name: screen.show({"event": "fault", "name": name}))
                planner = await _process("planner", "--home", home, "--worker", str(seen), *roots)
                last = await asyncio.wait_for(_watch(planner, screen, chaos), LIMIT_S)
        except TimeoutError:
            raise CallError("demo", f"the demo did not end within {LIMIT_S:g} s") from None
        finally:
            for process in (planner, worker):
                await _stop(process)
    return _report(last, chaos.done)


async def _watch(planner: asyncio.subprocess.Process, screen: Screen, chaos: Chaos) -> dict[str, Any]:
    while True:
        event = await _event(planner)
        kind = event["event"]
        if kind == "done":
            return event
        screen.show(event)
        if kind == "finding":
            chaos.progress(event["items"])
        elif kind == "back":
            chaos.back()


def _report(last: dict[str, Any], faults: int) -> int:
    whole = not (last["lost"] or last["duplicated"] or last["out_of_order"] or last["unexpected"])
    names = ("items", "breaks", "resumes", "lost", "duplicated", "out_of_order", "unexpected", "recovery_ms")
    line = {name: last[name] for name in names} | {"faults": faults}
    verdict = "every finding arrived once and in order" if whole else "FINDINGS WERE LOST OR DOUBLED"
    print(f"{last['items']} findings over {last['breaks']} breaks: {verdict}", file=sys.stderr)  # noqa: T201
    print(json.dumps(line), flush=True)  # noqa: T201
    return 0 if whole else 1


async def _process(role: str, *arguments: str) -> asyncio.subprocess.Process:
    module = f"hermes_peer.cli.demo.{role}"
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        limit=1 << 20,
    )


async def _event(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise CallError("demo", "a process of the demo ended early; what it said stands above")
    event: dict[str, Any] = json.loads(line)
    return event


async def _stop(process: asyncio.subprocess.Process | None) -> None:
    if process is None or process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), 3)
    except TimeoutError:
        process.kill()
        await process.wait()
