"""One relayed connection of the fault proxy: two directions, each with a gate and a count.

Knows: two sockets and the orders in force. Refuses to know: who gives orders, listening, recording.
Called by: `hermes_peer.testing.proxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from hermes_peer.errors import UsageError

Direction = Literal["up", "down"]
"""`up` is from whoever dialled to the target, `down` is back."""

Address = tuple[str, int] | str
"""(host, port) for TCP, a path for a Unix socket."""

BOTH: tuple[Direction, Direction] = ("up", "down")
CHUNK = 1 << 16  # largest read
LINE = 1 << 20  # bytes that may travel in one direction while `delay` is set; without it one chunk
DRAIN = 2.0  # seconds that an exact cut waits for a receiver with a full buffer


class Ending(Enum):
    """How the sockets of a link are let go."""

    CLOSE = "close"
    FIN = "fin"
    RST = "rst"


@dataclass
class Cut:
    """`size` bytes forwarded in `direction`, then the link dies; `once` for the first link only."""

    size: int
    direction: Direction
    once: bool
    used: bool = False


@dataclass
class Orders:
    """What is in force now, for all links of one proxy."""

    target: Address
    on_chunk: Callable[[Direction, bytes], bytes | None] | None
    forwarded: Callable[[int, Direction, bytes], None]
    stalled_until: float = 0.0  # loop time
    split: int | None = None
    delay: float = 0.0
    rate: float | None = None

    def most(self) -> int:
        """Largest piece. With a low rate a big one would be a long silence and then a burst."""
        return CHUNK if self.rate is None else max(1, min(CHUNK, int(self.rate / 50)))


class CutReached(Exception):
    """The byte was forwarded at which this link shall die."""


class Pipe:
    """One direction of a link. All news, bytes, FIN and RST alike, pass the same gate in order."""

    def __init__(self, orders: Orders, number: int, way: Direction, src: socket.socket, dst: socket.socket):
        self.orders, self.number, self.direction, self.src, self.dst = orders, number, way, src, dst
        self.forwarded = 0
        self.shut = False
        self.open = asyncio.Event()  # cleared: a black hole
        self.open.set()
        self.cut: Cut | None = None
        self._cut_at = 0
        self._line: deque[tuple[float, bytes | OSError]] = deque()  # (due, chunk); b"" is a FIN
        self._size = 0
        self._moved = asyncio.Event()
        self._next_at = 0.0

    def cut_after(self, cut: Cut | None) -> None:
        self.cut = cut
        self._cut_at = self.forwarded + (cut.size if cut else 0)

    async def read(self) -> None:
        loop, orders = asyncio.get_running_loop(), self.orders
        while True:
            news: bytes | OSError
            try:
                news = await loop.sock_recv(self.src, orders.most())
            except OSError as reset:
                news = reset
            self._line.append((loop.time() + orders.delay, news))
            self._moved.set()
            if isinstance(news, OSError) or not news:
                return
            self._size += len(news)
            while self._size >= (LINE if orders.delay else 1):
                self._moved.clear()
                await self._moved.wait()

    async def write(self, back: Pipe) -> None:
        """`back` is the other direction: that our receiver is gone is news that travels there."""
        loop, orders = asyncio.get_running_loop(), self.orders
        while True:
            while not self._line:
                self._moved.clear()
                await self._moved.wait()
            due, news = self._line[0]
            while (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            await self._gate()
            if isinstance(news, OSError):
                raise news
            if not news:
                self.half_close()
                return
            altered = orders.on_chunk(self.direction, news) if orders.on_chunk else news
            try:
                await self._send(altered or b"")
            except OSError:
                await back._gate()
                raise
            self._line.popleft()
            self._size -= len(news)
            self._moved.set()

    def half_close(self) -> None:
        if not self.shut:
            self.shut = True
            with contextlib.suppress(OSError):
                self.dst.shutdown(socket.SHUT_WR)

    async def _gate(self) -> None:
        """Wait while nothing may be forwarded."""
        loop, orders = asyncio.get_running_loop(), self.orders
        while True:
            await self.open.wait()
            left = max(orders.stalled_until, self._next_at if orders.rate else 0.0) - loop.time()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def _send(self, data: bytes) -> None:
        """Our own send(), piece by piece: a black hole or a cut may come between any two."""
        loop, orders = asyncio.get_running_loop(), self.orders
        view = memoryview(data)
        while view:
            await self._gate()
            if self.shut:
                return  # half-closed on order: the rest is lost
            most = min(orders.most(), orders.split or CHUNK)
            armed = self.cut is not None and not self.cut.used
            if armed:
                most = min(most, self._cut_at - self.forwarded)
            try:
                sent = self.dst.send(view[:most])
            except BlockingIOError:
                await _writable(self.dst)
                continue
            self.forwarded += sent
            orders.forwarded(self.number, self.direction, bytes(view[:sent]))
            view = view[sent:]
            if armed and self.cut is not None and self.forwarded >= self._cut_at:
                self.cut.used = self.cut.once
                await _handed_over(self.dst)
                raise CutReached
            if orders.rate:
                self._next_at = max(self._next_at, loop.time()) + sent / orders.rate
            if orders.split:
                # two turns: a reader on this very loop is woken in the first and reads before our next write
                await asyncio.sleep(0)
                await asyncio.sleep(0)


class Link:
    """One connection through the proxy. `number` counts from 1; `live` until it is cut, ended or gone."""

    def __init__(self, orders: Orders, number: int, client: socket.socket, server: socket.socket) -> None:
        self.number = number
        self.live = True
        self.failure: Exception | None = None
        self.pipes = (
            Pipe(orders, number, "up", client, server),
            Pipe(orders, number, "down", server, client),
        )
        self._orders, self._client, self._server = orders, client, server
        self._ending = Ending.CLOSE
        self._parted = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"fault-proxy-{number}")
        # in a callback, because a task that is cancelled before its first step runs no `finally`
        self.task.add_done_callback(self._let_go)

    @property
    def bytes_up(self) -> int:
        """Bytes forwarded to the target."""
        return self.pipes[0].forwarded

    @property
    def bytes_down(self) -> int:
        """Bytes forwarded to the client."""
        return self.pipes[1].forwarded

    async def cut(self) -> None:
        """RST to both sides. A Unix socket has no RST: its peer reads the end, or fails to write."""
        self.end(Ending.RST)
        await self._parted.wait()

    async def fin(self) -> None:
        """FIN to both sides; whatever they still send is read and thrown away."""
        self.end(Ending.FIN)
        await self._parted.wait()

    def half_close(self, direction: Direction) -> None:
        """FIN in one direction; what is still under way there is lost, the other direction goes on."""
        for pipe in self.chosen(direction):
            pipe.half_close()

    def blackhole(self, direction: Direction | Literal["both"] = "both") -> None:
        """Keep both sockets open and forward nothing: no bytes, no FIN, no RST."""
        for pipe in self.chosen(direction):
            pipe.open.clear()

    def heal(self) -> None:
        """Forward again, first what was held back."""
        for pipe in self.pipes:
            pipe.open.set()

    def chosen(self, direction: str) -> Iterator[Pipe]:
        return (pipe for pipe in self.pipes if pipe.direction in directions(direction))

    def end(self, how: Ending) -> None:
        """Begin to end; nothing is forwarded from here on."""
        if self.live or self._ending is Ending.FIN:
            self._ending = how
        if self.live or how is Ending.CLOSE:
            self.task.cancel()
        self.live = False

    async def _run(self) -> None:
        try:
            await self._relay()
        except asyncio.CancelledError:
            pass  # end() was called and has chosen how
        except (OSError, CutReached):
            self._ending = Ending.RST
        except Exception as error:  # of the hook, which is test code: told when the proxy closes
            self._ending, self.failure = Ending.RST, error
        self.live = False
        if self._ending is Ending.FIN:
            await self._discard()

    async def _relay(self) -> None:
        up, down = self.pipes
        await up.open.wait()  # in a black hole not even the dialling arrives
        await asyncio.get_running_loop().sock_connect(self._server, self._orders.target)
        tasks = [asyncio.ensure_future(c) for c in (up.read(), up.write(down), down.read(), down.write(up))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            while not all(task.done() for task in tasks):
                # cancelled once more or not: no socket is closed while a task still listens to it
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait(tasks)

    async def _discard(self) -> None:
        for pipe in self.pipes:
            pipe.half_close()
        self._parted.set()
        # a close with unread bytes would send RST after the FIN
        for sock in (self._client, self._server):
            with contextlib.suppress(OSError):
                while await asyncio.get_running_loop().sock_recv(sock, CHUNK):
                    pass

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self.live = False
        for sock in (self._client, self._server):
            if self._ending is Ending.RST and sock.family != socket.AF_UNIX:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self._parted.set()


def directions(word: str) -> tuple[Direction, ...]:
    """The directions that "up", "down" or "both" mean. Raises UsageError for any other word."""
    if word not in (*BOTH, "both"):
        raise UsageError(f"a direction is up, down or both, not {word!r}")
    return tuple(way for way in BOTH if word in (way, "both"))


async def _writable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(sock)


async def _handed_over(sock: socket.socket) -> None:
    """Wait until the kernel has sent what we wrote: an RST throws away what it still holds."""
    if sock.family == socket.AF_UNIX or sys.platform != "linux":
        return
    import fcntl

    unsent = 0x894B  # SIOCOUTQNSD; the plain SIOCOUTQ also counts what only waits for a lazy ACK
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(DRAIN):
            while struct.unpack("i", fcntl.ioctl(sock, unsent, b"\0\0\0\0"))[0]:
                await asyncio.sleep(0.001)
