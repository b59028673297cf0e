"""Doing something as agent `cli` of a home.

Knows: the loop, signals, a reader who leaves, which slot it must be. Refuses to know: what is done.
Called by: every command that calls.

A dead address is told at once (redial_limit=1); a line that breaks under a running call still heals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_peer.cli import failures, out
from hermes_peer.errors import LinkError

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.runtime.contact import Contact

Work = Callable[["HermesAgent"], Awaitable[int | None]]
PATIENCE_S = 3.0  # with another command that has the slot
IN_USE = "in_use"  # the reason of a LinkError: it has it for longer
LOOK_S = 0.1


def visit(
    work: Work, *, home: Path | None, json: bool = False, streams: bool = False, names: Sequence[str] = ()
) -> int:
    """Run `work` as agent `cli`; returns the exit code. `streams`: give up when nobody reads stdout any more.
    `names`: what it submits, see claims; then it is the slot of these.
    """
    ending: list[int] = []
    try:
        with asyncio.Runner() as runner:
            return runner.run(_visit(work, home, streams, names, ending))
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = ending[0] if ending else 130
        if code == 130:
            out.note("interrupted")
        return code
    except out.Gone:
        return out.GONE
    except Exception as error:
        if json:
            with contextlib.suppress(out.Gone):
                out.json_line({"error": failures.as_json(error)})
        if os.environ.get("HERMES_PEER_DEBUG") == "1":
            raise
        return failures.told(error)


async def _visit(work: Work, home: Path | None, streams: bool, names: Sequence[str], ending: list[int]) -> int:
    import logging

    # What went wrong is told once, by the command; the library's own log is for who asks for it.
    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("hermes_peer").setLevel(os.environ.get("HERMES_PEER_LOG", "CRITICAL").upper())
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end(code: int) -> None:
        ending.append(code)
        task.cancel()

    # The other side must hear that we leave, so that it stops working: a plain death by signal would not tell it.
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, 128 + number)
    watch = loop.create_task(_leave(end)) if streams else None
    try:
        me = await _entered(home, names)
        try:
            return await work(me) or 0
        finally:
            await me.aclose()
    finally:
        if watch is not None:
            watch.cancel()


async def _entered(home: Path | None, names: Sequence[str]) -> HermesAgent:
    """Agent `cli`, running: in the slot of these names, else in the lowest free one, which they belong to from now on.

    Raises LinkError if another command holds their slot for longer than a moment.
    """
    from hermes_peer.access.home import Home
    from hermes_peer.access.slot import SlotTaken, holder_of
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.cli import claims

    opened = Home.open(home)
    told_home(opened.created, opened.path)
    folder = opened.agents_dir / "cli"
    number = claims.slot_of(folder, names)
    until = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        me = HermesAgent("cli", home=opened.path, listen=False, redial_limit=1, slot=number)
        try:
            await me.__aenter__()
        except SlotTaken:
            if asyncio.get_running_loop().time() >= until:
                said = " and ".join(out.shown(name.partition(":")[2]) for name in names)
                raise LinkError(
                    f"{said} was submitted from cli/{number}, which another command of yours uses (process "
                    f"{holder_of(folder / str(number))}), and must go from there to be the same work; wait for its "
                    "end, or end it",
                    reason=IN_USE,
                ) from None
            await asyncio.sleep(LOOK_S)
            continue
        slot = me._running().slot.number
        number = claims.claim(folder, names, slot)
        if number == slot:
            return me
        await me.aclose()  # another command was quicker to claim them


async def _leave(end: Callable[[int], None]) -> None:
    await out.until_gone()
    end(out.GONE)


def told_home(created: bool, path: Path) -> None:
    """The home is made at first use, and told."""
    if created:
        out.note(f"made a new home in {path}")


async def contact_of(me: HermesAgent, target: str, ttl: float) -> Contact:
    """The contact of a target, linked. Raises LinkError, UsageError, DeadlineExceeded (timer "connect")."""
    from hermes_peer.agent.reach import reach

    life = me._running()
    return await reach(life, target, life.loop.time() + ttl)
