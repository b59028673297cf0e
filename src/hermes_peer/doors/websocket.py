"""The WebSocket on the path of the POST: text frames in the JSON form, binary frames in the binary form.

Knows: ASGI's WebSocket events, close codes. Refuses to know: what messages mean (talk). Called by: app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hermes_peer.doors.desk import Desk
from hermes_peer.doors.gate import PROTOCOL, Gate, Refusal, headers_of
from hermes_peer.doors.posting import Receive, Scope, Send
from hermes_peer.doors.talk import Talk
from hermes_peer.wire.invoke import (
    BadMessage,
    Message,
    Meta,
    decode_binary,
    decode_json,
    encode_binary,
    encode_json,
)

TOO_LARGE = 1009


class Sockets:
    """The WebSockets of one door."""

    def __init__(self, desk: Desk, gate: Gate, message_max: int, *, heartbeat_s: float, dead_s: float) -> None:
        self._desk = desk
        self._gate = gate
        self._max = message_max
        self._heartbeat_s = heartbeat_s
        self._dead_s = dead_s
        self.talks: set[Talk] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, from its handshake to its end."""
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            headers = headers_of(scope)
            principal = self._gate.admit(scope, headers)
        except Refusal as refusal:
            return await self._refuse(refusal, scope, send)
        offered = scope.get("subprotocols") or []
        await send({"type": "websocket.accept", "subprotocol": PROTOCOL if PROTOCOL in offered else None})
        line = _Line(send)
        talk = Talk(self._desk, principal, line.write, line.close, heartbeat_s=self._heartbeat_s, dead_s=self._dead_s)
        self.talks.add(talk)
        heard: Callable[[], float] | None = scope.get("hermes.heard")
        beating = asyncio.ensure_future(talk.beat(lambda: self._still(scope, headers), heard))
        try:
            await self._read(talk, line, receive)
        except OSError:
            pass  # the line is gone while something was being said
        finally:
            self.talks.discard(talk)
            line.closed = True
            beating.cancel()
            await asyncio.gather(beating, talk.over(), return_exceptions=True)

    def _still(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        try:
            self._gate.admit(scope, headers)
        except Refusal:
            return False
        return True

    async def _read(self, talk: Talk, line: _Line, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            talk.heard = loop.time()
            text, data = event.get("text"), event.get("bytes")
            binary = text is None
            raw: bytes = (data or b"") if text is None else text.encode("utf-8", "surrogatepass")
            if len(raw) > self._max:
                return await line.close(TOO_LARGE, f"a message has at most {self._max} bytes")
            try:
                message = self._decode(raw, binary)
            except BadMessage as error:
                await talk.unread(error, binary)
            else:
                await talk.take(message, binary)

    def _decode(self, raw: bytes, binary: bool) -> Message:
        return decode_binary(raw, payload_max=self._max) if binary else decode_json(raw)

    async def _refuse(self, refusal: Refusal, scope: Scope, send: Send) -> None:
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            return await send({"type": "websocket.close", "code": 1008, "reason": refusal.error.message[:120]})
        body = encode_json(*self._desk.failure(refusal.error, None))
        headers = [(b"content-type", b"application/json"), *refusal.headers]
        await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
        return await send({"type": "websocket.http.response.body", "body": body})


class _Line:
    """How a message leaves; after the close, it does not."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.closed = False

    async def write(self, meta: Meta, payload: dict[str, Any], binary: bool) -> None:
        if self.closed:
            return
        if binary:
            await self._send({"type": "websocket.send", "bytes": encode_binary(meta, payload)})
        else:
            await self._send({"type": "websocket.send", "text": encode_json(meta, payload).decode()})

    async def close(self, code: int, reason: str) -> None:
        if not self.closed:
            self.closed = True
            await self._send({"type": "websocket.close", "code": code, "reason": reason[:120]})
