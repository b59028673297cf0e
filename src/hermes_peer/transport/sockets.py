"""A pipe over a stream socket, for TCP and Unix sockets alike.

Knows: asyncio's transports. Refuses to know: addresses, frames. Called by: tcp, unix.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hermes_peer.transport.base import WRITE_BUFFER, MakeSink, Sink
from hermes_peer.wire.address import Address


class SocketPipe(asyncio.Protocol):
    """`close` sends what is written and then FIN; `abort` drops it."""

    def __init__(self, sink: Sink, local: bool) -> None:
        self.paused = False
        self.local = local
        self.remote = "unix" if local else ""
        self._sink = sink
        self._transport: asyncio.Transport | None = None
        self.data_received = sink.received  # type: ignore[method-assign]  # nothing stands between

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self.write = self._transport.write
        if not self.local:
            name: Any = transport.get_extra_info("peername")
            self.remote = str(name[0]) if name else "?"
        self._sink.connected(self)

    def write(self, data: bytes) -> None:
        raise RuntimeError("not connected")

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._sink.writable()

    def eof_received(self) -> bool:
        return False  # half-closed is as good as lost: a link needs both directions

    def connection_lost(self, error: Exception | None) -> None:
        self.paused = True
        self._sink.lost()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class SocketListener:
    """Owns an asyncio server; connections accepted earlier are not its business."""

    def __init__(self, server: asyncio.Server, address: Address) -> None:
        self.address = address
        self._server = server

    async def close(self) -> None:
        # wait_closed() waits for connections from Python 3.12 on (HPC-088): the endpoint closes those itself.
        self._server.close()
        await asyncio.sleep(0)


def protocol(make_sink: MakeSink, local: bool) -> SocketPipe:
    return SocketPipe(make_sink(), local)
