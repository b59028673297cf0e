"""An agent as the main thing of a process: the loop, signals, the line that says it is ready.

Knows: signals and event loops. Refuses to know: what the agent does. Called by: `agent.start()`, `hermes-peer run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from hermes_peer.errors import HermesError

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent

log = logging.getLogger("hermes_peer.agent")
PATIENCE_S = 0.2
THREAD_S = 1.0  # then it is said that a thread holds the process
_under_run = False  # `hermes-peer run FILE` imports the file and starts its agent itself


def loaded_by_run(value: bool) -> None:
    """While `hermes-peer run` imports a file, `agent.start()` in it returns at once."""
    global _under_run
    _under_run = value


def start(agent: HermesAgent) -> None:
    """Run until a signal. A user's mistake ends in one plain sentence and exit code 2 or 3."""
    if _under_run:
        return
    raise_or_exit = run_blocking(agent)
    if raise_or_exit:
        sys.exit(raise_or_exit)


def run_blocking(agent: HermesAgent) -> int:
    """The process's exit code: 0 after a signal's orderly end, 2 misuse, 3 no address to listen on."""
    logging.basicConfig(level=os.environ.get("HERMES_PEER_LOG", "WARNING").upper(), format="%(levelname)s %(message)s")
    try:
        _run(_main(agent))
    except HermesError as error:
        from hermes_peer.errors import LinkError

        print(f"hermes-peer: {error}", file=sys.stderr)  # noqa: T201
        return 3 if isinstance(error, LinkError) else 2
    except KeyboardInterrupt:
        return 130
    return 0


def new_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed ([speed]), else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _run(main: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run, but a task that takes no notice of being cancelled does not hold the process (HPC-076)."""
    loop = (new_loop_factory() or asyncio.new_event_loop)()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                _, left = loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE_S))
            for task in left:  # said already, by the agent
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not left:
                loop.run_until_complete(loop.shutdown_asyncgens())
            held = loop.call_later(THREAD_S, _held)
            loop.run_until_complete(loop.shutdown_default_executor())
            held.cancel()
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _held() -> None:
    log.warning("the agent has ended; a thread of asyncio.to_thread still runs and is waited for: Ctrl-C ends it, too")


async def _main(agent: HermesAgent) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    count = 0

    def on_signal() -> None:
        nonlocal count
        count += 1
        if count > 1:  # at once; only what others would stumble over is taken away
            life = agent._life
            for listener in life.endpoint.listeners if life is not None else ():
                getattr(listener, "unlink", lambda: None)()
            os._exit(130)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):  # before anything begins: a start may be stopped, too
        loop.add_signal_handler(number, on_signal)
    stopping = loop.create_task(stop.wait())
    starting = loop.create_task(agent.__aenter__())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            _tell(agent)
            assert agent._stopped is not None
            stopped = loop.create_task(agent._stopped.wait())
            await asyncio.wait([stopped, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
    finally:
        starting.cancel()
        stopping.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await agent.aclose()


def _tell(agent: HermesAgent) -> None:
    life = agent._running()
    sealed = "" if agent.encrypt else ", unsealed where the host is shared"
    where = " and ".join(str(a.endpoint) for a in life.addresses) or "no address (it calls, and is called back)"
    with contextlib.suppress(BrokenPipeError):
        if life.home.created:
            print(f"made a new home in {life.home.path}", flush=True)  # noqa: T201
        for door in agent.doors:
            print(f"a plain door is open: {door}", flush=True)  # noqa: T201
        print(f"{agent.name} is ready at {where}{sealed}", flush=True)  # noqa: T201
