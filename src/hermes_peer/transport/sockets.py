"""Pipes over stream sockets, and the listener that accepts them, for TCP and Unix sockets alike.

Knows: asyncio's transports, descriptor limits. Refuses to know: addresses, frames. Called by: tcp, unix.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from hermes_peer.transport.base import WRITE_BUFFER, MakeSink, Sink
from hermes_peer.wire.address import Address

log = logging.getLogger("hermes_peer.transport")
BACKLOG = 1024
ACCEPTS = 64  # in one turn of the loop, so that a crowd at the door does not stop those inside
PAUSE_S = 0.5  # without accepting, once descriptors run out (HPC-091)
RESERVE = 16  # descriptors that connections of strangers may not have: files and our own dials need them
TOLD_S = 60.0  # between two log lines of that
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def is_loopback(address: str) -> bool:
    """Whether what is sent from or to this IP address stays on this machine."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


class SocketPipe(asyncio.Protocol):
    """`close` sends what is written and then FIN; `abort` drops it."""

    data_received: Callable[[bytes], None]  # type: ignore[assignment]  # the sink's own: nothing stands between
    write: Callable[[bytes], None]

    def __init__(self, sink: Sink, local: bool) -> None:
        self.paused = False
        self.local = local
        self.loopback = False
        self.remote = "unix" if local else ""
        self._sink = sink
        self._transport: asyncio.Transport | None = None
        self.data_received = sink.received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self.write = self._transport.write
        if not self.local:
            name: Any = transport.get_extra_info("peername")
            self.remote = str(name[0]) if name else "?"
            self.loopback = is_loopback(self.remote) and is_loopback(
                str((transport.get_extra_info("sockname") or "?")[0])
            )
        self._sink.connected(self)

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
    """Accepts by itself, because asyncio's own server logs a thousand lines when descriptors run out, and uvloop's
    drops connections. Those accepted are not its business."""

    def __init__(self, sockets: list[socket.socket], address: Address, make_sink: MakeSink, *, local: bool) -> None:
        self.address = address
        self._sockets = sockets
        self._make_pipe = partial(protocol, make_sink, local)
        self._loop = asyncio.get_running_loop()
        self._joining: set[asyncio.Task[Any]] = set()
        self._told_at = -TOLD_S
        self._timer: asyncio.TimerHandle | None = None
        for sock in sockets:
            sock.setblocking(False)
            sock.listen(BACKLOG)
        self._resume()

    def _resume(self) -> None:
        self._timer = None
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    log.warning("a connection could not be accepted: %s", error)
                    return
                self._pause()
                return
            if sock.fileno() >= _most_descriptors():
                sock.close()
                self._pause()
                return
            sock.setblocking(False)
            task = self._loop.create_task(self._join(sock))
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)

    async def _join(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_pipe, sock)
        except OSError as error:
            sock.close()
            log.info("a connection was gone before it began: %s", error)
        except BaseException:
            sock.close()
            raise

    def _pause(self) -> None:
        now = self._loop.time()
        if now - self._told_at >= TOLD_S:
            self._told_at = now
            log.warning(
                "no descriptors are left for new connections to %s; raise the limit (ulimit -n), now %d",
                self.address,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE_S, self._resume)

    async def close(self) -> None:
        """Stop accepting; a second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        await asyncio.gather(*self._joining, return_exceptions=True)


def _most_descriptors() -> int:
    """The kernel gives the lowest free number: one this high says that the table is almost full."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - RESERVE if limit > 4 * RESERVE else limit


def protocol(make_sink: MakeSink, local: bool) -> SocketPipe:
    return SocketPipe(make_sink(), local)
