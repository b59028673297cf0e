"""Threads for handlers that block.

Knows: daemon threads and a queue. Refuses to know: calls. Called by: the agent's serving side, through
`loop.run_in_executor`. Python's own pool is not used, because the interpreter waits for its threads at exit: one
handler that sleeps for an hour would hold a process that was told to stop (HPC-076).
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

MOST = 64
_Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Threads(Executor):
    """At most `most` threads, each made when it is needed. After `shutdown` the next `submit` begins anew."""

    def __init__(self, name: str, most: int = MOST) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._moved = [0.0]  # when something was last taken from the queue, or came into an empty one

    @property
    def waiting(self) -> int:
        """How many wait for a thread (HPC-029: a full pool queues, and is seen to)."""
        return self._queue.qsize()

    @property
    def queue_ms(self) -> int:
        """How long no thread has become free although work waits."""
        return int((time.monotonic() - self._moved[0]) * 1000) if self._queue.qsize() else 0

    @property
    def alive(self) -> int:
        return sum(thread.is_alive() for thread in self._threads)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if not self._queue.qsize():
                self._moved[0] = time.monotonic()
            self._queue.put((future, fn, args, keywords))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                thread = threading.Thread(
                    target=contextvars.Context().run,  # nothing of whoever happened to be first
                    args=(_work, self._queue, self._idle, self._moved),
                    name=f"{self._name}-{len(self._threads)}",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Let the threads end after what they do now; what waits is cancelled. Never waits."""
        with self._lock:
            work, threads = self._queue, self._threads
            self._reset()
        try:
            while cancel_futures and (item := work.get_nowait()) is not None:
                item[0].cancel()
        except queue.Empty:
            pass
        for _ in threads:
            work.put(None)


def _work(work: queue.SimpleQueue[_Work | None], idle: threading.Semaphore, moved: list[float]) -> None:
    while True:
        try:
            item = work.get_nowait()
        except queue.Empty:
            idle.release()  # only now: who still finds work is not free
            item = work.get()
        if item is None:
            return
        moved[0] = time.monotonic()
        future, fn, args, keywords = item
        del item
        if future.set_running_or_notify_cancel():
            try:
                result = fn(*args, **keywords)
            except StopIteration as error:  # a Future cannot carry it, and its reader would wait for ever
                stopped = RuntimeError("the function raised StopIteration")
                stopped.__cause__ = error
                future.set_exception(stopped)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del future, fn, args, keywords
