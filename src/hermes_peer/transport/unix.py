"""Unix sockets. Knows paths and their owners; refuses to know frames. Called by: transport.base."""

from __future__ import annotations

import asyncio
import os
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
    """A stale socket of our own is replaced, anything else at that path is refused. Raises OSError."""
    path = Path(address.path)
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            raise OSError(f"{path} exists and is not a socket of this user")
        path.unlink()
    before = os.umask(0o177)  # attack 68: nobody else may connect
    try:
        server = await asyncio.get_running_loop().create_unix_server(
            partial(protocol, make_sink, True), address.path, backlog=1024
        )
    finally:
        os.umask(before)
    return UnixListener(server, address)


class UnixListener(SocketListener):
    async def close(self) -> None:
        await super().close()
        Path(self.address.path).unlink(missing_ok=True)
