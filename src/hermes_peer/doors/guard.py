"""uvicorn's two protocols with the limits that it lacks: slow heads, endless heads, half messages, readers that stop.

Knows: uvicorn's protocol classes and their timers. Refuses to know: paths, principals, messages. Called by: server.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from hermes_peer import CallError, Code
from hermes_peer.doors.answers import error_payload
from hermes_peer.wire.invoke import Meta, Type, encode_json

log = logging.getLogger("hermes_peer.door")
quiet = logging.getLogger("hermes_peer.door.uvicorn")  # it tells of every connection
quiet.setLevel(logging.WARNING)

HEAD_MAX = 64 * 1024  # bytes of a request's head
HEAD_S = 10.0  # from a request's first byte, or the connection's beginning, to the end of its head
GRACE_S = 0.05  # an idle connection is closed this much later, if nothing has come meanwhile (HPC-056)
LINGER_S = 1.0  # what still comes is dropped for so long after a last word, which a reset would take along
FLUSH_S = 30.0  # for the rest of an answer to be read before the connection is cut
FRAGMENTS_MAX = 4096  # of one WebSocket message
MESSAGE_S = 30.0  # from a WebSocket message's first byte to its last


class GuardedHttp(HttpToolsProtocol):
    """One connection. Raises nothing; what is too slow or too long is answered and closed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = quiet
        self._head = 0  # bytes of the head that is being received
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
        self._cutting = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._asked = False
        if self.parser is None or self._cutting or self.transport.is_closing():
            return
        if self._in_head:
            if self._timer is None:
                self._arm()
            self._head += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._disarm()
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            return
        except httptools.HttpParserError as error:
            log.debug("not HTTP: %s", ascii(error))
            return self._cut(400, "invalid_http", "this is not HTTP/1.1 as it should be")
        if self._in_head and self._head > HEAD_MAX:
            self._cut(431, "head_too_large", f"the head of a request has at most {HEAD_MAX} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer is no header: it must not speak of Host or tokens
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        self._disarm()
        self.scope["hermes.cut"] = self._abort  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.transport.is_closing():  # what was written still has to be read by somebody
            self.loop.call_later(FLUSH_S, self.transport.abort)
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Bytes may be here that nobody has read yet: look once more before the line is cut."""
        if self.transport.is_closing():
            return
        if not self._asked:
            self._asked = True
            self.timeout_keep_alive_task = self.loop.call_later(GRACE_S, self.timeout_keep_alive_handler)
        elif self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _abort(self) -> None:
        """For an app whose reader takes nothing any more."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()

    def _arm(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self._slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _slow(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self._cut(408, "slow_head", f"the head of a request comes within {HEAD_S:g} s")

    def _cut(self, status: int, reason: str, said: str) -> None:
        """Answer what never became a request, and close. A request that came whole before it gets its answer first."""
        self._disarm()
        cycle = self.cycle
        if self._cutting or self.transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False
                return
            cycle.disconnected = True  # the app hears that nobody is there
            cycle.message_event.set()
        if cycle is None or cycle.response_complete or not cycle.response_started:
            error = CallError(reason, said, code=Code.ERROR_INVALID_REQUEST)
            body = encode_json(Meta(Type.ERROR), error_payload(error))
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
                % (status, reason.replace("_", " ").encode(), len(body))
                + body
            )
        self._cutting = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()
        self.loop.call_later(FLUSH_S, self.transport.abort)


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket; the app finds in its scope, as `hermes.heard`, when the last byte came."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = self.conn.logger = quiet
        self.heard = self.loop.time()
        self._half: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["hermes.heard"] = lambda: self.heard  # type: ignore[typeddict-unknown-key]

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        super().data_received(data)
        if self.transport.is_closing():
            return self._whole()
        if len(self.frames) > FRAGMENTS_MAX:
            return self._fail(1009, "too many fragments")
        if self.conn.current_size is None and not self.conn.reader.buffer:
            self._whole()
        elif self._half is None:
            self._half = self.loop.call_later(MESSAGE_S, self._fail, 1008, "half a message, and no more of it")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._whole()
        if self in self.connections:
            super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # answered by a refusal: nothing is missing

    def _whole(self) -> None:
        if self._half is not None:
            self._half.cancel()
            self._half = None

    def _fail(self, code: int, why: str) -> None:
        self._half = None
        if self.transport.is_closing() or self.close_sent:
            return
        self.conn.fail(code, why)
        self.handle_parser_exception()
