"""The HTTP door that an agent opens by itself: its socket, TLS, what it may be bound to, its end.

Knows: uvicorn's protocols, TLS files, addresses. Refuses to know: paths and messages (app).
Called by: the agent's life (`http=`, `hermes-peer run --http`), by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_peer import HermesAgent, LinkError, UsageError
from hermes_peer.access.tokens import Tokens
from hermes_peer.agent import local

try:
    import uvicorn
    from uvicorn.server import ServerState

    from hermes_peer.doors.app import BASE, BODY_MAX, Door, door
    from hermes_peer.doors.guard import GuardedHttp, GuardedWebSocket
except ImportError as error:  # pragma: no cover
    raise UsageError(f"the HTTP door needs {error.name}: pip install 'hermes-peer[http]'") from None

KEEP_ALIVE_S = 75
CONNECTIONS_MAX = 1024
CLOSE_S = 0.3  # for connections that are still being answered at the end
OPTIONS = frozenset(
    {"bind", "cert", "key", "hosts", "origins", "rate", "body_max", "heartbeat_s", "dead_s", "keep_alive_s"}
)
_LOOPBACK_NAMES = ("localhost",)
_WILD = ("0.0.0.0", "::", "")


class HttpDoor:
    """An open door. `address` is its URL."""

    def __init__(self, app: Door, server: asyncio.Server, state: ServerState, address: str) -> None:
        self.address = address
        self._app = app
        self._server = server
        self._state = state
        self._clock = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        extra = list(self._state.default_headers)
        while True:
            now = time.time()
            date = (b"date", email.utils.formatdate(now, usegmt=True).encode())
            self._state.default_headers[:] = [date, *extra]
            await asyncio.sleep(1.001 - now % 1)

    async def close(self) -> None:
        """Take nothing new, let answers that are under way go out, cut the rest."""
        self._clock.cancel()
        self._server.close()
        for talk in list(self._app.sockets.talks):
            with contextlib.suppress(Exception):
                await talk.goodbye("the agent ends")
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_S)
        for connection in list(self._state.connections):
            transport = connection.transport
            if transport is not None:
                transport.abort()
        await asyncio.gather(self._clock, return_exceptions=True)
        await asyncio.sleep(0)  # what was aborted hears of it


async def start(agent: HermesAgent, wanted: str | Mapping[str, Any]) -> HttpDoor:
    """Open the door: "HOST:PORT", or a mapping with `bind` and more (docs/doors.md). Raises UsageError, LinkError."""
    options: dict[str, Any] = {"bind": wanted} if isinstance(wanted, str) else dict(wanted)
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise UsageError(f"http= has no {unknown[0]!r}; it takes {', '.join(sorted(OPTIONS))}")
    host, port = split(options.pop("bind", ""))
    cert, key = options.pop("cert", None), options.pop("key", None)
    tls = _tls(cert, key)
    if not is_loopback(host):
        _check_open(host, port, tls, Tokens(local.home_of(agent)))
    keep_alive = options.pop("keep_alive_s", KEEP_ALIVE_S)
    hosts = list(options.pop("hosts", ()))
    if host not in _WILD:
        hosts.append(f"[{host}]" if ":" in host else host)
    app = door(agent, hosts=hosts, **options)
    config = uvicorn.Config(
        app,
        http=GuardedHttp,
        ws=GuardedWebSocket,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=keep_alive,
        limit_concurrency=CONNECTIONS_MAX,
        ws_max_size=options.get("body_max", BODY_MAX),
        ws_ping_interval=options.get("heartbeat_s", 30.0),
        ws_ping_timeout=options.get("dead_s", 90.0) - options.get("heartbeat_s", 30.0) / 2,
        ws_per_message_deflate=False,
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"keep-alive", b"timeout=%d" % keep_alive)]
    loop = asyncio.get_running_loop()

    def protocol() -> GuardedHttp:
        return GuardedHttp(config=config, server_state=state, app_state={}, _loop=loop)

    try:
        server = await loop.create_server(protocol, host, port, ssl=tls, backlog=1024)
    except OSError as error:
        why = (error.strerror or str(error)).rpartition("] ")[2].lower()
        raise LinkError(
            f"the HTTP door cannot listen on {host}:{port}: {why}; stop the other program or choose another port"
        ) from None
    taken = server.sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return HttpDoor(app, server, state, f"{'https' if tls else 'http'}://{shown}:{taken}{BASE}/invoke")


def split(text: Any) -> tuple[str, int]:
    """HOST and PORT of HOST:PORT; an IPv6 address stands in brackets. Raises UsageError."""
    host, colon, port = str(text).rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(f"the HTTP door takes HOST:PORT such as 127.0.0.1:8080, not {str(text)[:80]!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound there."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        try:
            found = socket.getaddrinfo(host, None) if host else []
        except OSError:
            raise UsageError(f"the HTTP door cannot listen on {host!r}: no such host") from None
        return bool(found) and all(ipaddress.ip_address(each[4][0]).is_loopback for each in found)


def _check_open(host: str, port: int, tls: ssl.SSLContext | None, tokens: Tokens) -> None:
    """Attack 63: what others can reach is never open to whoever comes."""
    have = len(tokens)
    if tokens.problem:
        raise UsageError(tokens.problem)
    lacking = [
        *([] if tls else ["TLS (--http-cert and --http-key)"]),
        *([] if have else ["a token (hermes-peer token add NAME)"]),
    ]
    if lacking:
        raise UsageError(
            f"other machines could reach {host or '*'}:{port}, so the HTTP door opens there only with "
            f"{' and '.join(lacking)}; 127.0.0.1:{port} needs neither"
        )


def _tls(cert: Any, key: Any) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise UsageError("TLS takes both files: cert= and key= (--http-cert, --http-key)")
    for file in (cert, key):
        if not Path(file).is_file():
            raise UsageError(f"there is no file {file} for TLS")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"{cert} and {key} cannot be used for TLS: {error.strerror or error}") from None
    return context
