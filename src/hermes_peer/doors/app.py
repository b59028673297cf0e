"""The door as an ASGI app: paths, methods, refusals, health; served alone or mounted in somebody's own app.

Knows: HTTP's methods and statuses. Refuses to know: sockets, TLS, messages. Called by: any ASGI server; server.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from starlette.routing import Route, Router, WebSocketRoute

from hermes_peer import CallError, HermesAgent, UsageError
from hermes_peer.access.tokens import Tokens
from hermes_peer.agent import local
from hermes_peer.doors import openapi
from hermes_peer.doors.desk import Desk, stopped
from hermes_peer.doors.gate import Gate, Headers, Refusal, headers_of, refused
from hermes_peer.doors.posting import SWALLOW, Gone, Posting, Receive, Scope, Send, reply
from hermes_peer.doors.websocket import Sockets
from hermes_peer.wire.invoke import encode_json

BASE = "/hermes/v1"
BODY_MAX = 5 * 1024 * 1024
SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
]
_encode = msgspec.json.encode


class Door:
    """An ASGI app (see `door`). `lifespan` starts the agent with an app of your own: `FastAPI(lifespan=d.lifespan)`."""

    def __init__(
        self,
        agent: HermesAgent,
        *,
        hosts: Iterable[str],
        origins: Iterable[str],
        rate: float | None,
        body_max: int,
        heartbeat_s: float,
        dead_s: float,
    ) -> None:
        self.agent = agent
        self._tokens: Tokens | None = None
        self.gate = Gate(self.tokens, hosts=hosts, origins=origins, rate=rate, now=time.monotonic)
        self.desk = Desk(agent, self.gate.spend)
        self.posting = Posting(self.desk, body_max)
        self.sockets = Sockets(self.desk, self.gate, body_max, heartbeat_s=heartbeat_s, dead_s=dead_s)
        self._starting = asyncio.Lock()
        self._holding: AsyncIterator[None] | None = None
        self._lived = False  # the agent has run: who ended it had a reason
        self._rooms = room = {
            f"{BASE}/invoke": _Room(self, {"POST": self._invoke}),
            f"{BASE}/describe": _Room(self, {"GET": self._describe}),
            f"{BASE}/openapi.json": _Room(self, {"GET": self._openapi}),
            f"{BASE}/health": _Room(self, {"GET": self._health}, open=True),
            f"{BASE}/ready": _Room(self, {"GET": self._ready}, open=True),
        }
        self._router = Router(
            [*(Route(path, each) for path, each in room.items()), WebSocketRoute(f"{BASE}/invoke", self.sockets)],
            redirect_slashes=False,
            default=_Room(self, {}),
            lifespan=self.lifespan,
        )

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """The agent runs while this is open, unless it ran before; then it is left alone."""
        self._lived = True
        if self.agent.running:
            yield
            return
        async with self.agent:
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._lived and scope["type"] != "lifespan":
            await self._start()
        if scope["type"] == "http" and not scope.get("root_path") and (room := self._rooms.get(scope["path"])):
            return await room(scope, receive, send)  # what a router would find by trying each
        return await self._router(scope, receive, send)

    async def _start(self) -> None:
        """Mounted in an app whose lifespan knows nothing of us: the first request starts the agent.

        It ends with the event loop: an async generator that was begun is closed then.
        """
        async with self._starting:
            if not self.agent.running and not self._lived:
                await self.agent.__aenter__()
                self._holding = self._hold()
                await anext(self._holding)
            self._lived = True

    async def _hold(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.agent.aclose()

    def tokens(self) -> Tokens:
        """Those of the agent's home."""
        if self._tokens is None:
            self._tokens = Tokens(local.home_of(self.agent))
        return self._tokens

    # ------------------------------------------------------------------ the rooms
    async def _invoke(
        self, principal: str, headers: Headers, extra: Any, scope: Scope, receive: Receive, send: Send
    ) -> None:
        await self.posting(principal, headers, extra, scope, receive, send)

    async def _describe(self, principal: str, headers: Headers, extra: Any, *way: Any) -> None:
        await _json(way[-1], 200, self.desk.description(principal), extra)

    async def _openapi(self, principal: str, headers: Headers, extra: Any, *way: Any) -> None:
        await _json(way[-1], 200, openapi.document(self.desk.description(principal)), extra)

    async def _health(self, principal: str, headers: Headers, extra: Any, *way: Any) -> None:
        await _json(way[-1], 200, {"status": "ok"}, extra)

    async def _ready(self, principal: str, headers: Headers, extra: Any, *way: Any) -> None:
        state = local.state_of(self.agent)
        await _json(way[-1], 200 if state == "ready" else 503, {"status": state, "agent": self.agent.name}, extra)

    async def refuse(self, refusal: Refusal, extra: Any, receive: Receive, send: Send) -> None:
        """Answer with a status, then read on for a moment, so that the answer is not lost with the connection."""
        meta, payload = self.desk.failure(refusal.error, None)
        headers = [*extra, *refusal.headers]
        if refusal.status not in (408, 413):
            return await reply(send, refusal.status, meta, payload, extra=headers)
        body = encode_json(meta, payload)
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        headers += [(b"connection", b"close")]
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if refusal.status == 413:
            await _swallow(receive)
        return await send({"type": "http.response.body", "body": b""})


class _Room:
    """One path. `open`: no token is asked for; the Host is looked at all the same."""

    def __init__(self, door: Door, methods: dict[str, Any], *, open: bool = False) -> None:
        self._door = door
        self._methods = {**methods, **({"HEAD": methods["GET"]} if "GET" in methods else {})}
        self._allow = ", ".join([*self._methods, "OPTIONS"]).encode()
        self._open = open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        door, extra = self._door, list(SECURITY)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1000})
        try:
            headers = headers_of(scope)
            if door.gate.lists(headers):  # also a refusal may be read by a page that is listed
                extra += [(b"access-control-allow-origin", headers[b"origin"]), (b"vary", b"origin")]
            method = scope["method"]
            if method == "OPTIONS":
                return await self._options(headers, extra, send)
            if self._open:
                door.gate.check_host(headers)
                principal = ""
            else:
                principal = door.gate.admit(scope, headers)
            handler = self._methods.get(method)
            if not self._methods:
                raise refused(404, "no_path", f"there is nothing at this path; the door is at {BASE}/invoke")
            if handler is None:
                said = f"{method} is not for this path; it takes {self._allow.decode()}"
                raise refused(405, "method", said, headers=[(b"allow", self._allow)])
            await handler(principal, headers, extra, scope, receive, send)
        except Refusal as refusal:
            await door.refuse(refusal, extra, receive, send)
        except CallError as error:
            await door.refuse(Refusal(503, error), extra, receive, send)
        except UsageError:  # not even its tokens are known
            await door.refuse(Refusal(503, stopped()), extra, receive, send)
        except Gone:
            return

    async def _options(self, headers: Headers, extra: Any, send: Send) -> None:
        """Also a browser's question before the question: answered without a token, for listed pages alone."""
        gate = self._door.gate
        gate.check_host(headers)
        found = [(b"allow", self._allow), (b"content-length", b"0"), *extra]
        if gate.check_origin(headers):
            found += [
                (b"access-control-allow-methods", self._allow),
                (b"access-control-allow-headers", b"authorization, content-type, accept"),
                (b"access-control-max-age", b"600"),
            ]
            if b"access-control-request-private-network" in headers:
                found.append((b"access-control-allow-private-network", b"true"))
        await send({"type": "http.response.start", "status": 204, "headers": found[:1] + found[2:]})
        await send({"type": "http.response.body", "body": b""})


def door(
    agent: HermesAgent,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    rate: float | None = None,
    body_max: int = BODY_MAX,
    heartbeat_s: float = 30.0,
    dead_s: float = 90.0,
) -> Door:
    """The plain door of `agent` as an ASGI app, to be served or mounted: `app.mount("/", door(agent))`.

    `hosts`: names beside localhost that it answers to; `origins`: pages in browsers that may use it, with a token;
    `rate`: tasks a second for each caller; `body_max` in bytes; a WebSocket hears a HEARTBEAT every `heartbeat_s`
    seconds, and one that is silent for `dead_s` is closed. If the agent does not run, the app's lifespan, or the first
    request, starts it.
    """
    return Door(
        agent, hosts=hosts, origins=origins, rate=rate, body_max=body_max, heartbeat_s=heartbeat_s, dead_s=dead_s
    )


async def _json(send: Send, status: int, value: Any, extra: list[tuple[bytes, bytes]]) -> None:
    body = _encode(value)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _swallow(receive: Receive) -> None:
    left = SWALLOW
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while left > 0:
                event = await receive()
                if event["type"] == "http.disconnect" or not event.get("more_body", False):
                    return
                left -= len(event.get("body", b""))
