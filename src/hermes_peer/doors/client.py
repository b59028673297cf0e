"""Calling a plain door: for agents that can only reach each other by HTTP, and for programs that are no agents.

Knows: httpx2, which failures may be sent again. Refuses to know: agents, links, the words of a message (exchange).
Called by: users (`HermesHttp`, `HermesHttpSync`), forwarding.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import msgspec

from hermes_peer import CallError, LinkError, UsageError
from hermes_peer.doors.exchange import PATH, TTL_DEFAULT, Caller, Events, link_error, outcome, read_answer, unpacked
from hermes_peer.wire.invoke import Message, Meta, Type, encode_json, forwarded

try:
    import httpx2
except ImportError:  # pragma: no cover
    raise UsageError("calling a door needs httpx2: pip install 'hermes-peer[http]'") from None

PATIENCE_S = 5.0  # beyond the ttl, for the way; a silent stream has a comment every 15 s
STREAM_PATIENCE_S = 60.0
RETRY_S = (0.0, 0.5, 1.0)  # a request that no answer came to is sent again under its id

OnAsk = Callable[[str, Any], Any]
OnProgress = Callable[[dict[str, Any]], Any]


class HermesHttp(Caller):
    """Calls an agent through its HTTP door, as `agent.call` does over a link.

    `url` is "http://HOST:PORT"; `token` from `hermes-peer token add`; `sender` a label. An async context manager.
    `options` go to httpx2.AsyncClient (verify, cert, proxy …).
    """

    def __init__(
        self, url: str, *, token: str = "", sender: str = "hermes-http", receiver: str | None = None, **options: Any
    ) -> None:
        super().__init__(url, token=token, sender=sender, receiver=receiver)
        self._client = httpx2.AsyncClient(**{"trust_env": False, **options})

    async def __aenter__(self) -> HermesHttp:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections. Harmless twice."""
        await self._client.aclose()

    async def call(
        self,
        tool: str = "",
        payload: Any = None,
        *,
        ttl: float | None = None,
        trace_id: str = "",
        task_id: str = "",
        detach: bool = False,
        durable: bool = False,
    ) -> Any:
        """The result of a method; of one that streams, its items. Raises CallError and its kinds, LinkError.

        A request that no answer came to is sent again under the same `task_id`, and so is handled once.
        """
        message = self.order(tool, payload, ttl, trace_id, task_id, detach=detach, durable=durable)
        return outcome(*await self._post(message))

    def stream(
        self,
        tool: str = "",
        payload: Any = None,
        *,
        ttl: float | None = 86_400.0,
        trace_id: str = "",
        task_id: str = "",
        on_progress: OnProgress | None = None,
        on_ask: OnAsk | None = None,
    ) -> HttpStream:
        """The items of a method: `async with door.stream(...) as items: async for item in items: ...`.

        `on_ask(tool, payload)` answers, now or awaited, what the method asks back. Leaving early cancels the method.
        """
        return HttpStream(self, self.order(tool, payload, ttl, trace_id, task_id), on_progress, on_ask)

    async def cancel(self, task_id: str) -> None:
        """Give up a running task of this client's. Raises CallError (unknown_task)."""
        outcome(*await self._post(Message(Meta(Type.TASK_CANCEL, self.sender, None, 10), {"task_id": task_id})))

    async def describe(self) -> dict[str, Any]:
        """The methods that may be called here, with their schemas."""
        response = await self._client.get(f"{self.url}/hermes/v1/describe", headers=self.headers)
        if response.status_code != 200:
            outcome(*read_answer(response.content, response.status_code))
        found: dict[str, Any] = msgspec.json.decode(response.content)
        return found

    async def forward(self, message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
        """Hand a whole message on (mission I10): meta and payload of the answer. Raises DeadlineExceeded at the end
        of its ttl, LinkError."""
        return await self._post(Message(forwarded(message.meta, self.sender, self.receiver), message.payload))

    async def _post(self, message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
        body, end = encode_json(message.meta, message.payload), time.monotonic() + message.meta.ttl
        for pause in (*RETRY_S, None):
            try:
                left = max(0.001, end - time.monotonic()) + PATIENCE_S
                response = await self._client.post(self.url + PATH, content=body, headers=self.headers, timeout=left)
                return read_answer(response.content, response.status_code)
            except httpx2.TransportError as error:
                if pause is None or time.monotonic() + pause >= end:
                    raise link_error(self.url, error) from error
                await asyncio.sleep(pause)
        raise AssertionError


class HttpStream:
    """The items of one stream; `await result()` after them. `task_id`, `trace_id`."""

    def __init__(
        self, door: HermesHttp, message: Message, on_progress: OnProgress | None, on_ask: OnAsk | None
    ) -> None:
        self.task_id: str = message.payload["task_id"]
        self.trace_id = message.meta.trace_id
        self._door = door
        self._message = message
        self._on_progress = on_progress
        self._on_ask = on_ask
        self._end: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._asked: set[asyncio.Task[None]] = set()
        self._items = self._read()

    def __aiter__(self) -> HttpStream:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._items)

    async def __aenter__(self) -> HttpStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave; the method is cancelled unless it has ended."""
        await self._items.aclose()
        for task in self._asked:
            task.cancel()

    async def result(self) -> Any:
        """What the method returned at its end; items that nobody took are passed over. Raises CallError, LinkError."""
        async for _ in self:
            pass
        if self._end is None:
            raise LinkError(f"the stream of {self._door.url} ended without a result", reason="lost")
        return outcome(*self._end)

    async def _read(self) -> AsyncGenerator[Any, None]:
        door, events = self._door, Events()
        meta, payload = self._message.meta, self._message.payload
        headers = {**door.headers, "accept": "text/event-stream"}
        timeout = httpx2.Timeout(PATIENCE_S, read=STREAM_PATIENCE_S)
        try:
            async with door._client.stream(
                "POST", door.url + PATH, content=encode_json(meta, payload), headers=headers, timeout=timeout
            ) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    self._end = read_answer(await response.aread(), response.status_code)
                    outcome(*self._end)
                    return
                async for data in response.aiter_bytes():
                    for meta_in, said in events.feed(data):
                        kind = meta_in.get("msg_type")
                        if kind == Type.STREAM_ITEM:
                            yield said["item"] if "item" in said else unpacked(said)
                        elif kind == Type.TASK_PROGRESS and self._on_progress is not None:
                            self._on_progress(said)
                        elif kind == Type.INFO_REQUEST:
                            self._answer(said)
                        elif kind in (Type.TASK_RESULT, Type.ERROR) or (kind == Type.TASK_ACK and "result" in said):
                            self._end = meta_in, said
                            outcome(meta_in, said)
                            return
        except httpx2.TransportError as error:
            raise link_error(door.url, error) from error

    def _answer(self, said: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._tell(said))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _tell(self, said: dict[str, Any]) -> None:
        body: dict[str, Any] = {"info_id": said.get("info_id")}
        try:
            if self._on_ask is None:
                raise CallError("no_answer", "this caller answers no questions: it gave no on_ask=")
            answer = self._on_ask(str(said.get("tool")), said.get("payload"))
            body["result"] = await answer if inspect.isawaitable(answer) else answer
        except CallError as error:
            body |= {"status": "error", "error_code": int(error.code), "reason": error.reason, "detail": error.message}
        meta = Meta(Type.INFO_RESULT, self._door.sender, None, TTL_DEFAULT, self.trace_id)
        await self._door._post(Message(meta, body))


class HermesHttpSync(Caller):
    """`HermesHttp` for programs without an event loop. A context manager; `options` go to httpx2.Client."""

    def __init__(
        self, url: str, *, token: str = "", sender: str = "hermes-http", receiver: str | None = None, **options: Any
    ) -> None:
        super().__init__(url, token=token, sender=sender, receiver=receiver)
        self._client = httpx2.Client(**{"trust_env": False, **options})

    def __enter__(self) -> HermesHttpSync:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. Harmless twice."""
        self._client.close()

    def call(
        self,
        tool: str = "",
        payload: Any = None,
        *,
        ttl: float | None = None,
        trace_id: str = "",
        task_id: str = "",
        detach: bool = False,
        durable: bool = False,
    ) -> Any:
        """As HermesHttp.call."""
        message = self.order(tool, payload, ttl, trace_id, task_id, detach=detach, durable=durable)
        body, end = encode_json(message.meta, message.payload), time.monotonic() + message.meta.ttl
        for pause in (*RETRY_S, None):
            try:
                left = max(0.001, end - time.monotonic()) + PATIENCE_S
                response = self._client.post(self.url + PATH, content=body, headers=self.headers, timeout=left)
                return outcome(*read_answer(response.content, response.status_code))
            except httpx2.TransportError as error:
                if pause is None or time.monotonic() + pause >= end:
                    raise link_error(self.url, error) from error
                time.sleep(pause)
        raise AssertionError

    def stream(
        self,
        tool: str = "",
        payload: Any = None,
        *,
        ttl: float | None = 86_400.0,
        trace_id: str = "",
        task_id: str = "",
        on_progress: OnProgress | None = None,
    ) -> Iterator[Any]:
        """The items of a method, one by one. Raises CallError, LinkError. Closing the iterator cancels the method."""
        message, events = self.order(tool, payload, ttl, trace_id, task_id), Events()
        headers = {**self.headers, "accept": "text/event-stream"}
        timeout = httpx2.Timeout(PATIENCE_S, read=STREAM_PATIENCE_S)
        try:
            with self._client.stream(
                "POST",
                self.url + PATH,
                content=encode_json(message.meta, message.payload),
                headers=headers,
                timeout=timeout,
            ) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    outcome(*read_answer(response.read(), response.status_code))
                    return
                for data in response.iter_bytes():
                    for meta, said in events.feed(data):
                        kind = meta.get("msg_type")
                        if kind == Type.STREAM_ITEM:
                            yield said["item"] if "item" in said else unpacked(said)
                        elif kind == Type.TASK_PROGRESS and on_progress is not None:
                            on_progress(said)
                        elif kind in (Type.TASK_RESULT, Type.ERROR):
                            outcome(meta, said)
                            return
        except httpx2.TransportError as error:
            raise link_error(self.url, error) from error

    def describe(self) -> dict[str, Any]:
        """As HermesHttp.describe."""
        response = self._client.get(f"{self.url}/hermes/v1/describe", headers=self.headers)
        if response.status_code != 200:
            outcome(*read_answer(response.content, response.status_code))
        found: dict[str, Any] = msgspec.json.decode(response.content)
        return found
