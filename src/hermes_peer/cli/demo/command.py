"""`hermes-peer demo`: planner and worker as two processes; first the line between them breaks, then they are killed.

Knows: the proxy, the screen, the order of the acts. Refuses to know: what the agents say to each other.
Called by: cli.main. Its last line on stdout is JSON; exit code 0 only if nothing was lost or doubled in either act.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hermes_peer.cli.demo import audit, processes
from hermes_peer.cli.demo.chaos import Chaos
from hermes_peer.cli.demo.kills import Kills
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
        asked = ["--model", model] if model else []
        worker = await processes.start("worker", "--home", home, *asked)
        try:
            first = await _first_act(home, worker, roots, total, screen)
            kills = Kills(home, roots, worker, asked, screen)
        except BaseException:
            await processes.stop(worker)
            raise
        second = await kills.run()
    return _report(first, second)


async def _first_act(
    home: str, worker: processes.Process, roots: list[str], total: int, screen: Screen
) -> dict[str, Any]:
    planner = None
    try:
        ready = await processes.event(worker)
        address = Address.parse(ready["address"])
        async with FaultProxy((address.host, address.port), buffer=4096) as proxy:
            proxy.rate(max(4096, total * BYTES_EACH / SECONDS))
            host, port = proxy.address
            seen = Address.tcp(host, port, address.fingerprint)
            chaos = Chaos(proxy, total, lambda name: screen.show({"event": "fault", "name": name}))
            planner = await processes.start("planner", "--home", home, "--worker", str(seen), *roots)
            last = await asyncio.wait_for(_watch(planner, screen, chaos), LIMIT_S)
    except TimeoutError:
        raise CallError("demo", f"the demo did not end within {LIMIT_S:g} s") from None
    finally:
        await processes.stop(planner)
    return last | {"faults": chaos.done}


async def _watch(planner: processes.Process, screen: Screen, chaos: Chaos) -> dict[str, Any]:
    while True:
        event = await processes.event(planner)
        kind = event["event"]
        if kind == "done":
            return event
        screen.show(event)
        if kind == "finding":
            chaos.progress(event["items"])
        elif kind == "back":
            chaos.back()


def _report(first: dict[str, Any], second: dict[str, Any]) -> int:
    names = ("items", "breaks", "resumes", "lost", "duplicated", "out_of_order", "unexpected", "recovery_ms", "faults")
    whole = _whole(first)
    survived = _whole(second) and second["effects"] == 1 and second["kills"] == 2
    verdict = "every finding arrived once and in order" if whole else "FINDINGS WERE LOST OR DOUBLED"
    _say(f"{first['items']} findings over {first['breaks']} breaks: {verdict}")
    filed = {0: "never", 1: "once", 2: "twice"}.get(second["effects"], f"{second['effects']} times")
    verdict = "the report is whole" if survived else "THE REPORT IS NOT WHOLE"
    _say(f"{second['items']} findings over {second['kills']} kills, filed {filed}: {verdict}")
    print(json.dumps({name: first[name] for name in names} | {"act2": second}), flush=True)  # noqa: T201
    return 0 if whole and survived else 1


def _whole(act: dict[str, Any]) -> bool:
    return not (act["lost"] or act["duplicated"] or act["out_of_order"] or act["unexpected"])


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
