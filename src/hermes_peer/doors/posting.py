"""POST /hermes/v1/invoke: one message in, one answer out, or a stream of server-sent events.

Knows: bodies, content types, who has left. Refuses to know: who may come in (gate), what messages mean (desk).
Called by: app. Any business outcome is HTTP 200; 400 is for a meta or body that cannot be read, other 4xx for HTTP.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hermes_peer import CallError, Code
from hermes_peer.agent.local import LocalCall
from hermes_peer.doors import answers
from hermes_peer.doors.desk import Desk
from hermes_peer.doors.gate import Headers, Refusal, refused
from hermes_peer.wire.invoke import BadMessage, Message, Meta, Type, decode_json, encode_json
from hermes_peer.wire.messages import Kind

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Pairs = list[tuple[bytes, bytes]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TYPES = ("application/hermes+json", "application/json")
SSE = "text/event-stream"
BEAT_S = 15.0  # between two comments of a silent event stream: half a minute is the shortest patience of a proxy
STALL_S = 90.0  # a reader that takes nothing for this long is gone
BODY_IDLE_S = 15.0  # between two pieces of a body
BODY_S = 120.0  # for the whole of it
SWALLOW = 8 * 1024 * 1024  # what is read and dropped of a body that was refused, so that the refusal can be read
_TASKS = (Type.TASK_REQUEST, Type.EVENT)


class Posting:
    """Answers the POSTs of one door. `body_max` in bytes."""

    def __init__(self, desk: Desk, body_max: int) -> None:
        self.desk = desk
        self.body_max = body_max

    async def __call__(
        self, principal: str, headers: Headers, extra: Pairs, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """One request that the gate let in. Raises Refusal."""
        desk, message = self.desk, None
        kind = media_type(headers)
        body = await self._body(headers, receive)
        try:
            message = decode_json(body)
            if message.meta.msg_type not in _TASKS:
                short, payload = desk.short(principal, message)
                return await reply(send, 200, desk.meta(short, message.meta), payload, kind, extra)
            if SSE in headers.get(b"accept", b"").decode("latin-1"):
                return await Events(desk, principal, message, extra, scope)(receive, send)
            call = desk.begin(principal, message)
            items: list[Any] | None = None
            if not call.done or call.queue:
                items = await self._wait(call, receive)
                if items is None:
                    return None  # nobody is there to be answered
        except CallError as error:
            meta, payload = desk.failure(error, message)
            return await reply(send, 400 if isinstance(error, BadMessage) else 200, meta, payload, kind, extra)
        meta, payload = desk.result(call, message, items)
        return await reply(send, 200, meta, payload, kind, extra)

    async def _wait(self, call: LocalCall, receive: Receive) -> list[Any] | None:
        """Until there is an answer: the items on the way to it. None if whoever called has left."""
        reading = asyncio.ensure_future(self._collect(call))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                leave(call)
                return None
            return reading.result()
        except CallError as error:
            call.stop(error)
            raise
        except asyncio.CancelledError:
            leave(call)
            raise
        finally:
            reading.cancel()
            leaving.cancel()

    async def _collect(self, call: LocalCall) -> list[Any]:
        items: list[Any] = []
        size = 0
        while (message := await call.next_message()) is not None:
            if message[0] in (Kind.ITEM, Kind.RAW):
                size += len(message)
                if size > self.body_max:
                    said = f"the items are more than {self.body_max} bytes; ask for a stream: Accept: {SSE}"
                    raise CallError("items_too_large", said, code=Code.ERROR_RESOURCE_EXHAUSTED)
                item = answers.item_of(message)
                items.append(item.get("item", item))
        return items

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body. Raises Refusal: 413 before all of it was read, 408 for one that does not come."""
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self.body_max:
            raise self._too_large(int(announced))
        parts: list[bytes] = []
        size = 0
        end = asyncio.get_running_loop().time() + BODY_S
        try:
            while True:
                async with asyncio.timeout(BODY_IDLE_S):
                    event = await receive()
                if event["type"] == "http.disconnect":
                    raise Gone
                part = event.get("body", b"")
                size += len(part)
                if size > self.body_max:
                    raise self._too_large(size)
                if not event.get("more_body", False):
                    return b"".join((*parts, part)) if parts else part
                parts.append(part)
                if asyncio.get_running_loop().time() > end:
                    raise TimeoutError
        except TimeoutError:
            raise refused(408, "slow_body", "the body did not come in time; send it whole and at once") from None

    def _too_large(self, size: int) -> Refusal:
        return refused(
            413,
            "body_too_large",
            f"the body has {size} bytes or more; at most {self.body_max} are taken: send a reference, or items over "
            "the WebSocket",
            Code.ERROR_RESOURCE_EXHAUSTED,
            resource="body",
            used_bytes=size,
            total_bytes=self.body_max,
        )


class Gone(Exception):
    """Whoever called has left before anything was begun."""


class Events:
    """The answer as server-sent events: each is one whole message in its JSON form, the last a TASK_RESULT."""

    def __init__(self, desk: Desk, principal: str, message: Message, extra: Pairs, scope: Scope) -> None:
        self._desk = desk
        self._message = message
        self._extra = extra
        self._cut = scope.get("hermes.cut")
        self._call = desk.begin(principal, message, desk.asker(principal))

    async def __call__(self, receive: Receive, send: Send) -> None:
        call, desk, message = self._call, self._desk, self._message
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # nginx would wait for a buffer to fill
            *self._extra,
        ]
        leaving = asyncio.ensure_future(_left(receive))
        talking = asyncio.ensure_future(self._talk(send))
        try:
            await _within(send({"type": "http.response.start", "status": 200, "headers": headers}))
            await asyncio.wait((talking, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                return
            talking.result()
            last = event(*desk.result(call, message))
            await _within(send({"type": "http.response.body", "body": last, "more_body": False}))
        except TimeoutError:  # a reader that reads nothing is not told why
            if self._cut is not None:
                self._cut()
        finally:
            if not call.done:
                leave(call)
            leaving.cancel()
            talking.cancel()
            await asyncio.gather(leaving, talking, return_exceptions=True)

    async def _talk(self, send: Send) -> None:
        call, desk, meta = self._call, self._desk, self._message.meta
        items = 0
        await self._write(send, event(desk.meta(Type.TASK_ACK, meta, call.ttl_left, call.trace_id), self._ack()))
        reading = asyncio.ensure_future(call.next_message())
        try:
            while True:
                await asyncio.wait((reading,), timeout=BEAT_S)
                if not reading.done():
                    await self._write(send, b": still here\n\n")
                    continue
                said = reading.result()
                if said is None:
                    break
                kind, payload = answers.step(call, said)
                items += kind is Type.STREAM_ITEM
                await self._write(send, event(desk.meta(kind, meta, call.ttl_left, call.trace_id), payload))
                reading = asyncio.ensure_future(call.next_message())
        finally:
            reading.cancel()
        if call.answer()[0] and items:
            end = {"task_id": call.message_id, "items": items}
            await self._write(send, event(desk.meta(Type.STREAM_END, meta, call.ttl_left, call.trace_id), end))

    def _ack(self) -> dict[str, Any]:
        return {"task_id": self._call.message_id, "status": "accepted"}

    @staticmethod
    async def _write(send: Send, data: bytes) -> None:
        await _within(send({"type": "http.response.body", "body": data, "more_body": True}))


def event(meta: Meta, payload: dict[str, Any]) -> bytes:
    """One server-sent event. JSON has no raw line breaks, so that one data line is enough."""
    name = Type(meta.msg_type).name.lower().encode()
    return b"event: " + name + b"\ndata: " + encode_json(meta, payload) + b"\n\n"


def leave(call: LocalCall) -> None:
    """Whoever called has gone: cancel, or let it go on where he said so."""
    if call.stays:
        call.detach()
    else:
        call.cancel()


def media_type(headers: Headers) -> str:
    """The content type that the answer has, too. Raises Refusal (415) for anything but JSON in UTF-8, unpacked."""
    given = headers.get(b"content-type", b"").decode("latin-1")
    name, *parameters = (part.strip() for part in given.split(";"))
    name = name.lower()
    if name not in TYPES:
        said = f"the content type is {given[:128]!a}" if given else "there is no Content-Type"
        raise refused(415, "content_type", f"{said}; send Content-Type: application/json", expected=list(TYPES))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset" and value.strip(' "').lower() not in ("utf-8", "utf8"):
            raise refused(415, "charset", f"JSON is sent in UTF-8, not in {value[:64]!a}", expected="utf-8")
    packed = headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
    if packed not in ("", "identity"):
        raise refused(415, "content_encoding", f"send the body as it is, not as {packed[:64]!a}", expected="identity")
    return name


async def reply(
    send: Send,
    status: int,
    meta: Meta,
    payload: dict[str, Any],
    kind: str = TYPES[1],
    extra: Pairs | tuple[()] = (),
) -> None:
    """One whole answer."""
    body = encode_json(meta, payload)
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *extra]
    if payload.get("retry_after") is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(payload["retry_after"]))))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _within(work: Awaitable[None]) -> None:
    async with asyncio.timeout(STALL_S):
        await work
