"""Doing something as agent `cli` of a home.

Knows: the loop, signals, a reader who leaves. Refuses to know: what is done. Called by: every command that calls.

A dead address is told at once (redial_limit=1); a line that breaks under a running call still heals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_peer.cli import failures, out

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.runtime.contact import Contact

Work = Callable[["HermesAgent"], Awaitable[int | None]]


def visit(work: Work, *, home: Path | None, json: bool = False, streams: bool = False) -> int:
    """Run `work` as agent `cli`; returns the exit code. `streams`: give up when nobody reads stdout any more."""
    ending: list[int] = []
    try:
        with asyncio.Runner() as runner:
            return runner.run(_visit(work, home, streams, ending))
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


async def _visit(work: Work, home: Path | None, streams: bool, ending: list[int]) -> int:
    import logging

    from hermes_peer.agent.agent import HermesAgent

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
        async with HermesAgent("cli", home=home, listen=False, redial_limit=1) as me:
            told_home(me._running().home.created, me._running().home.path)
            return await work(me) or 0
    finally:
        if watch is not None:
            watch.cancel()


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
