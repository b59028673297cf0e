"""TCP. Knows host and port; refuses to know frames. Called by: transport.base."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from functools import partial

from hermes_peer.transport.base import MakeSink
from hermes_peer.transport.sockets import SocketListener, protocol
from hermes_peer.wire.address import Address

CONNECT_S = 5.0  # a silent address costs this long before the next one is tried


async def dial(address: Address, make_sink: MakeSink) -> None:
    """Connect to all that the name resolves to, in turn. Raises OSError."""
    loop = asyncio.get_running_loop()
    connecting = loop.create_connection(partial(protocol, make_sink, False), address.host, address.port)
    try:
        await asyncio.wait_for(connecting, CONNECT_S)
    except TimeoutError:
        raise OSError(f"no answer within {CONNECT_S:g} s") from None


async def listen(address: Address, make_sink: MakeSink) -> SocketListener:
    """Port 0 takes a free one; the listener's address tells which. Raises OSError."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        partial(protocol, make_sink, False), address.host, address.port, backlog=1024, reuse_address=True
    )
    port = next(s.getsockname()[1] for s in server.sockets if s.family in (socket.AF_INET, socket.AF_INET6))
    return SocketListener(server, dataclasses.replace(address, port=port))
