"""Pipes inside one event loop, for tests without sockets. Knows names; refuses to know frames.

Called by: transport.base. Bytes arrive in a later turn of the loop, as from a socket.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from hermes_peer.transport.base import WRITE_BUFFER, MakeSink, Sink
from hermes_peer.wire.address import Address

_listening: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, MakeSink]] = WeakKeyDictionary()


class MemoryPipe:
    """One end. Pauses its writer while the other end has not taken WRITE_BUFFER bytes."""

    def __init__(self, sink: Sink) -> None:
        self.paused = False
        self.local = True
        self.loopback = False
        self.remote = "memory"
        self._sink = sink
        self._other: MemoryPipe | None = None
        self._inbox: list[bytes] = []
        self._waiting = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def join(self, other: MemoryPipe) -> None:
        self._other, other._other = other, self
        for end in (other, self):
            end._sink.connected(end)

    def write(self, data: bytes) -> None:
        other = self._other
        if self._closed or other is None or other._closed:
            return
        if not other._inbox:
            self._loop.call_soon(other._deliver)
        other._inbox.append(data)
        other._waiting += len(data)
        if other._waiting > WRITE_BUFFER:
            self.paused = True

    def _deliver(self) -> None:
        inbox, self._inbox, self._waiting = self._inbox, [], 0
        if self._closed or not inbox:
            return
        self._sink.received(b"".join(inbox))
        if self._other is not None and self._other.paused and not self._other._closed:
            self._other.paused = False
            self._other._sink.writable()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon(self._sink.lost)
        other = self._other
        if other is not None and not other._closed:
            self._loop.call_soon(other._hang_up)

    def abort(self) -> None:
        other = self._other
        if not self._closed and other is not None:
            other._inbox.clear()
        self.close()

    def _hang_up(self) -> None:
        if not self._closed:
            self._closed = True
            self._sink.lost()


class MemoryListener:
    def __init__(self, address: Address, names: dict[str, MakeSink]) -> None:
        self.address = address
        self._names = names

    async def close(self) -> None:
        self._names.pop(self.address.path, None)


def _names() -> dict[str, MakeSink]:
    return _listening.setdefault(asyncio.get_running_loop(), {})


async def dial(address: Address, make_sink: MakeSink) -> None:
    """Raises ConnectionRefusedError if nobody listens under that name in this event loop."""
    accept = _names().get(address.path)
    if accept is None:
        raise ConnectionRefusedError("connection refused")
    MemoryPipe(make_sink()).join(MemoryPipe(accept()))


async def listen(address: Address, make_sink: MakeSink) -> MemoryListener:
    """Raises OSError if the name is taken."""
    names = _names()
    if address.path in names:
        raise OSError("address already in use")
    names[address.path] = make_sink
    return MemoryListener(address, names)
