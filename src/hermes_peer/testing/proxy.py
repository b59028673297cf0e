"""A relay that misbehaves on order, between two peers on TCP or Unix sockets.

Knows: a listening address, the orders in force, what was forwarded. Refuses to know: frames, peers, meaning.
Called by: tests, ours and those of users; the demo that cuts its own line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from hermes_peer.errors import UsageError
from hermes_peer.testing.relay import BOTH, Address, Cut, Direction, Ending, Link, Orders, directions

__all__ = ["Address", "Direction", "FaultProxy", "Link"]


class FaultProxy:
    """`async with FaultProxy(target=("127.0.0.1", port)) as p:` and let the client dial `p.address`.

    `target` is (host, port) or the path of a Unix socket, and may be set anew; `listen` is the same for
    our side (default: a free port of 127.0.0.1, or a path in a folder of our own, as the target is).
    `keep` bytes of what was forwarded stay for `record()`, `buffer` is the size of the kernel's buffers
    on our sockets. `on_chunk(direction, chunk)` returns what shall be forwarded, or None for nothing;
    what it raises cuts the link and is raised again when the proxy closes. Directions are "up" (to the
    target) and "down". Verbs apply to the links there are; those that set a state hold for new ones too.
    Memory is bounded by one chunk of 64 KiB in each direction of a link, 1 MiB with a delay.
    """

    def __init__(
        self,
        target: Address,
        listen: Address | None = None,
        *,
        keep: int = 1 << 20,
        buffer: int = 1 << 18,
        on_chunk: Callable[[Direction, bytes], bytes | None] | None = None,
    ) -> None:
        self.connections = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self._orders = Orders(target, on_chunk, self._forwarded)
        self._listen, self._keep, self._buffer = listen, keep, buffer
        self._bound: Address | None = None
        self._listener: socket.socket | None = None
        self._holder: socket.socket | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._links: dict[int, Link] = {}
        self._failures: list[Exception] = []
        self._tape: deque[tuple[int, Direction, bytes]] = deque()
        self._taped = 0
        self._changed = asyncio.Event()
        self._dark: set[Direction] = set()
        self._cut: Cut | None = None

    @property
    def target(self) -> Address:
        """Where new connections go."""
        return self._orders.target

    @target.setter
    def target(self, where: Address) -> None:
        self._orders.target = where

    @property
    def on_chunk(self) -> Callable[[Direction, bytes], bytes | None] | None:
        """The hook that sees each chunk before it is forwarded."""
        return self._orders.on_chunk

    @on_chunk.setter
    def on_chunk(self, hook: Callable[[Direction, bytes], bytes | None] | None) -> None:
        self._orders.on_chunk = hook

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) to dial. Raises UsageError on a Unix socket or outside `async with`."""
        if isinstance(self._bound, tuple):
            return self._bound
        raise UsageError("the proxy listens on no TCP port")

    @property
    def path(self) -> str:
        """Path to dial. Raises UsageError on TCP or outside `async with`."""
        if isinstance(self._bound, str):
            return self._bound
        raise UsageError("the proxy listens on no Unix socket")

    @property
    def links(self) -> list[Link]:
        """Live connections, oldest first."""
        return [link for link in self._links.values() if link.live]

    async def cut(self) -> None:
        """RST on both sides of every link."""
        await asyncio.gather(*(link.cut() for link in self.links))

    async def fin(self) -> None:
        """FIN to both sides of every link."""
        await asyncio.gather(*(link.fin() for link in self.links))

    def half_close(self, direction: Direction) -> None:
        """FIN in one direction of every link."""
        for link in self.links:
            link.half_close(direction)

    def blackhole(self, direction: Direction | Literal["both"] = "both") -> None:
        """Sockets stay open and nothing is forwarded, on the links there are and on new ones."""
        self._dark.update(directions(direction))
        for link in self.links:
            link.blackhole(direction)

    def heal(self, *, old: bool = False) -> None:
        """End the black hole for new connections; with `old` also for those that were in it."""
        self._dark.clear()
        for link in self.links if old else ():
            link.heal()

    def stall(self, seconds: float) -> None:
        """Forward nothing for so long, then everything."""
        self._orders.stalled_until = asyncio.get_running_loop().time() + seconds

    def split(self, size: int | None) -> None:
        """Forward in writes of `size` bytes; None ends it. A reader elsewhere may still join them."""
        self._orders.split = None if size is None else int(_positive(size))

    def delay(self, seconds: float) -> None:
        """Each chunk arrives so much later; order and throughput stay (up to 1 MiB under way)."""
        if seconds < 0:
            raise UsageError("a delay is not negative")
        self._orders.delay = seconds

    def rate(self, bytes_per_s: float | None) -> None:
        """At most so many bytes per second in each direction of each link; None lifts it."""
        self._orders.rate = None if bytes_per_s is None else _positive(bytes_per_s)

    def cut_after(self, size: int | None, direction: Direction = "up", *, once: bool = True) -> None:
        """Cut a link (RST) when exactly `size` more bytes were forwarded in this direction.

        Links there are count from now; new ones from their first byte, over their whole life. With 0 they
        are cut at once, new ones before the target is dialled. The first link to get there uses the order
        up, unless `once` is False. None takes the order back. Raises UsageError for a negative size.
        """
        if size is None:
            self._cut = None
        elif size < 0 or direction not in BOTH:
            raise UsageError("cut_after takes a number of bytes and a direction, up or down")
        else:
            self._cut = Cut(size, direction, once)
        for link in self.links:
            self._arm(link)

    def record(self, link: int | None = None) -> dict[Direction, bytes]:
        """What was forwarded, {"up": bytes, "down": bytes}: the last `keep` bytes, or one link's share."""
        tape = [part for part in self._tape if link in (None, part[0])]
        return {way: b"".join(data for _, its, data in tape if its == way) for way in BOTH}

    async def until(self, true: Callable[[], bool], timeout: float = 5.0) -> None:
        """Wait until `true()` holds; asked after each chunk and each link's coming and going.

        Raises TimeoutError after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    def refuse(self) -> None:
        """New connections are refused, by the kernel's own RST, as if nobody listened."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def accept(self) -> None:
        """Take new connections again, on the same address. Raises OSError if somebody took it."""
        if self._listener is None:
            if self._bound is None:
                raise UsageError("the proxy is not running: use `async with`")
            self._listener = self._bind(self._bound)
            self._listener.listen(1024)
            asyncio.get_running_loop().add_reader(self._listener, self._on_connection)

    async def __aenter__(self) -> Self:
        if self._bound is not None:
            raise UsageError("the proxy is running")
        try:
            if self._listen is not None:
                self._bound = self._listen
            elif isinstance(self.target, tuple):
                self._bound = ("127.0.0.1", 0)
            else:
                self._folder = tempfile.TemporaryDirectory(prefix="fault-")
                self._bound = os.path.join(self._folder.name, "s")
            if isinstance(self._bound, tuple):
                # bound, never listening: keeps the port ours while new connections are refused
                self._holder = self._bind(self._bound)
                host, port = self._holder.getsockname()[:2]
                self._bound = (host, port)
                if sys.platform != "linux":
                    self._holder.close()  # elsewhere two sockets may not share a port
            self.accept()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
        if self._failures and kind is None:
            raise self._failures.pop(0)

    async def aclose(self) -> None:
        """Close everything; may be called twice."""
        self.refuse()
        links = list(self._links.values())
        for link in links:
            link.end(Ending.CLOSE)
        await asyncio.gather(*(link.task for link in links), return_exceptions=True)
        if self._holder is not None:
            self._holder.close()
        if isinstance(self._bound, str):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._bound)
        if self._folder is not None:
            self._folder.cleanup()
        self._bound = self._holder = self._folder = None

    def _bind(self, where: Address) -> socket.socket:
        sock = self._socket(where)
        try:
            if isinstance(where, tuple):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(where)  # our own of before refuse(), or of a run that was killed
            sock.bind(where)
        except BaseException:
            sock.close()
            raise
        return sock

    def _socket(self, where: Address) -> socket.socket:
        family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
        if isinstance(where, tuple) and ":" in where[0]:
            family = socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        # fixed: the kernel's own growth would swallow megabytes before a sender feels the other side
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, self._buffer)
        return sock

    def _on_connection(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # it went away before we looked
        client.setblocking(False)
        server = self._socket(self.target)
        for sock in (client, server):
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        link = self._links[self.connections] = Link(self._orders, self.connections, client, server)
        link.task.add_done_callback(lambda _: self._gone(link))
        for way in self._dark:
            link.blackhole(way)
        if self._cut is not None and not self._cut.used:
            self._arm(link)
        self._changed.set()

    def _arm(self, link: Link) -> None:
        for pipe in link.pipes:
            pipe.cut_after(self._cut if self._cut and self._cut.direction == pipe.direction else None)
        if self._cut is not None and self._cut.size == 0:
            self._cut.used = self._cut.once
            link.end(Ending.RST)

    def _gone(self, link: Link) -> None:
        del self._links[link.number]
        if link.failure is not None:
            self._failures.append(link.failure)
        self._changed.set()

    def _forwarded(self, number: int, way: Direction, data: bytes) -> None:
        if way == "up":
            self.bytes_up += len(data)
        else:
            self.bytes_down += len(data)
        self._tape.append((number, way, data))
        self._taped += len(data)
        while self._taped > self._keep:
            self._taped -= len(self._tape.popleft()[2])
        self._changed.set()


def _positive(value: float) -> float:
    if value <= 0:
        raise UsageError("a size or a rate is more than zero")
    return value
