"""Unix sockets. Knows paths and their owners; refuses to know frames. Called by: transport.base."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from functools import partial
from pathlib import Path

from hermes_peer.transport.base import MakeSink
from hermes_peer.transport.sockets import SocketListener, protocol
from hermes_peer.wire.address import Address


async def dial(address: Address, make_sink: MakeSink) -> None:
    """Raises OSError; a socket that belongs to another user is not dialled (attack 69)."""
    owner = os.stat(address.path).st_uid
    if owner not in (os.getuid(), 0):
        raise OSError(f"the socket belongs to user {owner}")
    await asyncio.get_running_loop().create_unix_connection(partial(protocol, make_sink, True), address.path)


async def listen(address: Address, make_sink: MakeSink) -> UnixListener:
    """A stale socket of our own is replaced; anything else at that path, a living one too, is refused.
    Raises OSError."""
    path = Path(address.path)
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            raise OSError(f"{path} exists and is not a socket of this user")
        if _lives(path):
            raise OSError("another running program listens there (an agent with a copy of the same key?)")
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)  # attack 68: nobody else may connect. No await until it is set back.
        try:
            sock.bind(address.path)
        finally:
            os.umask(before)
        return UnixListener(sock, address, make_sink)
    except BaseException:
        sock.close()
        raise


def _lives(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # its queue is full: somebody owns it
        except OSError:
            return False
    return True


class UnixListener(SocketListener):
    """Takes its own file away at the end, and never that of a successor."""

    def __init__(self, sock: socket.socket, address: Address, make_sink: MakeSink) -> None:
        self._inode = os.lstat(address.path).st_ino
        super().__init__([sock], address, make_sink, local=True)

    def unlink(self) -> None:
        with contextlib.suppress(OSError):
            if os.lstat(self.address.path).st_ino == self._inode:
                os.unlink(self.address.path)

    async def close(self) -> None:
        self.unlink()
        await super().close()
