"""TCP. Knows host and port; refuses to know frames. Called by: transport.base."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import socket
from functools import partial

from hermes_peer.transport.base import MakeSink
from hermes_peer.transport.sockets import SocketListener, protocol
from hermes_peer.wire.address import Address

CONNECT_S = 5.0  # a silent address costs this long before the next one is tried


async def dial(address: Address, make_sink: MakeSink) -> None:
    """Connect to all that the name resolves to and may stand for (`is_meant`), in turn. Raises OSError."""
    loop = asyncio.get_running_loop()
    error = OSError(f"{address.host} resolves to this machine or its own wire; if that is meant, write the number")
    try:
        async with asyncio.timeout(CONNECT_S):  # wait_for() may swallow a cancellation (Python 3.11)
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            for family, _, _, _, where in dict.fromkeys(found):
                number, scope = str(where[0]), where[3] if len(where) > 3 else 0
                if not is_meant(address.host, number):
                    continue
                if scope:
                    number = f"{number}%{scope}"
                try:
                    make = partial(protocol, make_sink, False)
                    await loop.create_connection(make, number, address.port, family=family)
                    return
                except OSError as refused:
                    error = refused
    except TimeoutError:
        raise OSError(f"no answer within {CONNECT_S:g} s") from None
    raise error


def is_meant(host: str, resolved: str) -> bool:
    """Whether a name may lead to this number. A DNS answer leads to no metadata service and to nothing on loopback
    (attack 62); what is written as a number was meant."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host.partition("%")[0])
        return True
    number = ipaddress.ip_address(resolved.partition("%")[0])
    number = getattr(number, "ipv4_mapped", None) or number
    if number.is_loopback:
        return host == "localhost" or host.endswith(".localhost") or host == socket.gethostname()
    return not (number.is_link_local or number.is_multicast or number.is_unspecified)


async def listen(address: Address, make_sink: MakeSink) -> SocketListener:
    """All that the host's name stands for, on one port; port 0 takes a free one, and the listener's address tells
    which. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, kind, proto, _, where in dict.fromkeys(found):
            sock = socket.socket(family, kind, proto)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((where[0], port, *where[2:]))
            port = sock.getsockname()[1]
        return SocketListener(sockets, dataclasses.replace(address, port=port), make_sink, local=False)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
