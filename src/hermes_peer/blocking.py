"""The synchronous portal: an agent for code that has no event loop.

Knows: one daemon thread with one loop, shared by all portals of the process. Refuses to know: calls; it hands them on.
Called by: scripts, notebooks, threads of anybody's web server.

    with hermes_peer.blocking.Agent("planner") as me:
        answer = me.call("worker", "text.shout", {"text": "hi"})
        for word in me.stream("worker", "text.words", {"text": "a b c"}): ...
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from hermes_peer.agent.agent import HermesAgent
from hermes_peer.agent.process import new_loop_factory
from hermes_peer.agent.streams import Stream
from hermes_peer.errors import UsageError

T = TypeVar("T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _the_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = (new_loop_factory() or asyncio.new_event_loop)()
            threading.Thread(target=_loop.run_forever, name="hermes-peer-portal", daemon=True).start()
        return _loop


def _forget() -> None:
    global _loop, _lock
    _loop, _lock = None, threading.Lock()  # a forked child has neither the thread nor a right to its loop


os.register_at_fork(after_in_child=_forget)


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Its result. Ctrl-C cancels it and is raised. Raises UsageError on an event loop, which it would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise UsageError("hermes_peer.blocking would block this event loop: use HermesAgent and `await` here")
    future = asyncio.run_coroutine_threadsafe(work, _the_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class Agent:
    """HermesAgent with plain functions; takes its arguments, and raises what it raises. Usable from many threads.

    `agent` is the HermesAgent itself: register handlers on it before `with` begins. One that offers nothing needs
    no `listen=`.
    """

    def __init__(self, agent_id: str | HermesAgent, **options: Any) -> None:
        self.agent = agent_id if isinstance(agent_id, HermesAgent) else HermesAgent(agent_id, **options)

    def __enter__(self) -> Self:
        _wait(self.agent.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it; harmless twice."""
        _wait(self.agent.aclose())

    def call(self, target: str = "", method: str = "", payload: Any = None, **options: Any) -> Any:
        """As `HermesAgent.call`."""
        return _wait(self.agent.call(target, method, payload, **options))

    def emit(self, target: str, event: str, payload: Any = None, **options: Any) -> None:
        """As `HermesAgent.emit`."""
        _wait(self.agent.emit(target, event, payload, **options))

    def stream(self, target: str = "", method: str = "", payload: Any = None, **options: Any) -> BlockingStream:
        """As `HermesAgent.stream`: an iterator and a context manager."""
        return BlockingStream(lambda: self.agent.stream(target, method, payload, **options))

    def find(self, *, capability: str | None = None) -> list[Any]:
        """As `HermesAgent.find`."""
        return _wait(self.agent.find(capability=capability))

    def status(self) -> dict[str, Any]:
        """As `HermesAgent.status`."""

        async def status() -> dict[str, Any]:
            return self.agent.status()

        return _wait(status())


class BlockingStream:
    """`for item in stream`, `with stream`, `result()`, `close()`, `offset`, `message_id`. Leaving early cancels."""

    def __init__(self, make: Callable[[], Stream]) -> None:
        async def made() -> Stream:
            return make()

        self._stream = _wait(made())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        async def step() -> tuple[bool, Any]:
            try:
                return True, await anext(self._stream)
            except StopAsyncIteration:
                return False, None

        more, item = _wait(step())
        if not more:
            raise StopIteration
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def result(self) -> Any:
        """What the handler returned, or `Final`."""
        return _wait(self._stream.result())

    def close(self) -> None:
        """Leave; the handler is cancelled if it still runs."""
        _wait(self._stream.aclose())

    @property
    def offset(self) -> int:
        return self._stream.offset

    @property
    def message_id(self) -> str:
        return self._stream.message_id
