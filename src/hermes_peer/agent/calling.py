"""The calling side: one call that waits for one answer.

Knows: envelopes, deadlines, what an END says. Refuses to know: names, who retries. Called by: agent, streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import AsyncIterable, Callable
from typing import Any

from hermes_peer.access.names import is_method_name, shown
from hermes_peer.agent.context import CURRENT, new_ids, parent_of
from hermes_peer.core.session import Session
from hermes_peer.core.states import Half
from hermes_peer.errors import CallError, Code, DeadlineExceeded, ProtocolError, SessionLost, UsageError, call_error
from hermes_peer.runtime.contact import Contact
from hermes_peer.runtime.deadlines import Deadlines
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import ID_MAX, Envelope, Kind, encode_open, pack_item, split_envelope

TTL_DEFAULT = 30.0
TTL_MAX = 86_400.0
CANCELLED = b'{"code":1,"reason":"cancelled","message":"the caller gave the call up"}'
EXPIRED = b'{"code":3,"reason":"ttl","message":"the ttl is spent"}'
_OK = messages.RESPONSE_HEAD
_OK_SIZE = len(_OK)
OBJECT = ord("{")
_now_ms = time.time_ns
_NAMES_MAX = 4096
_PLAIN = (int, float)  # of which nothing but NaN and infinity need be refused
_known_names: set[str] = set()  # method names that were found to be some


def make_envelope(
    method: str,
    ttl: float | None,
    *,
    trace_id: str = "",
    message_id: str = "",
    type: str = "request",
    detach: bool = False,
) -> Envelope:
    """The envelope of a new call: a nested one inherits the trace, and no more time than is left (mission M8).

    Raises CallError (DeadlineExceeded) if nothing is left.
    """
    if not isinstance(method, str) or method not in _known_names:
        check_method(method)
    if trace_id or message_id or (ttl is not None and (ttl.__class__ not in _PLAIN or ttl - ttl)):
        check_call(ttl, trace_id, message_id)
    request = CURRENT.get()
    if request is not None:
        left = request.ttl_left
        ttl = left if ttl is None or ttl > left else ttl
        trace_id = trace_id or request.trace_id
    elif ttl is None:
        ttl = TTL_DEFAULT
    if ttl > TTL_MAX:
        ttl = TTL_MAX
    elif ttl <= 0:
        raise DeadlineExceeded("ttl", "no time is left for this call", origin="local", trace_id=trace_id)
    id, trace, span = new_ids()
    envelope = Envelope(
        type,  # type: ignore[arg-type]
        method,
        message_id or id,
        ttl,
        trace_id or trace,
        span,
        _now_ms() // 1_000_000,
        1,
        bool(message_id),
        detach,
    )
    if request is not None:
        envelope.parent_id = parent_of(trace_id)
    return envelope


def check_call(ttl: Any, trace_id: Any, message_id: Any, idempotency_key: Any = "") -> None:
    """Raises UsageError for what no envelope can carry."""
    # The difference is NaN, and thus true, for NaN and infinity.
    if ttl is not None and (not isinstance(ttl, int | float) or isinstance(ttl, bool) or ttl - ttl):
        raise UsageError(f"ttl is a finite number of seconds, or None for the default, not {ttl!r}")
    if trace_id and not (isinstance(trace_id, str) and len(trace_id) <= ID_MAX and trace_id.isprintable()):
        raise UsageError(f"a trace_id has 1 to {ID_MAX} printable characters")
    if message_id:
        _check_id("a message_id", message_id)
    if idempotency_key:
        _check_id("an idempotency_key", idempotency_key)


def check_method(method: Any) -> None:
    """Raises UsageError for what cannot be a method; "" is the agent's default one."""
    if not isinstance(method, str) or (method and not is_method_name(method)):
        raise UsageError(
            f"which method? {shown(method)} cannot be one: a method is segments of a-z, 0-9 and _ joined by dots "
            "(example: orders.create)"
        )
    if len(_known_names) >= _NAMES_MAX:
        _known_names.clear()
    _known_names.add(method)


def check_items(items: Any) -> Any:
    """Gives `items` back. Raises UsageError for what cannot be iterated as they come."""
    if items is not None and not hasattr(items, "__aiter__"):
        raise UsageError(
            f"items= takes an async iterator, such as an async generator that yields, not {type(items).__name__}"
        )
    return items


def encode_payload(payload: Any) -> bytes:
    """The payload's JSON; None stands for {}. Raises UsageError for what is no object, or has no JSON form."""
    if payload is None:
        return b"{}"
    try:
        data = jsons.encode(payload)
    except (TypeError, ValueError) as bad:
        raise UsageError(f"this cannot be sent: {bad}") from None
    if data[0] != OBJECT:
        raise UsageError(f"the payload is a JSON object, such as a dict, not {type(payload).__name__}")
    return data


def _check_id(what: str, id: Any) -> None:
    if not (isinstance(id, str) and len(id) <= ID_MAX and id.isascii() and id.isprintable()):
        raise UsageError(f"{what} has 1 to {ID_MAX} printable ASCII characters")


class Outgoing:
    """One stream of ours: the owner that waits for its END. `future` has the result, or the error."""

    __slots__ = (
        "contact",
        "context",
        "deadlines",
        "envelope",
        "future",
        "on_progress",
        "session",
        "stream",
        "tick",
        "upload",
    )

    def __init__(
        self,
        contact: Contact,
        session: Session,
        envelope: Envelope,
        deadlines: Deadlines,
        *,
        reserved: bool = False,
        on_progress: Callable[[Any], None] | None = None,
    ) -> None:
        self.contact = contact
        self.session = session
        self.envelope = envelope
        self.deadlines = deadlines
        self.on_progress = on_progress
        self.context = None if on_progress is None else contextvars.copy_context()  # the caller's, for his callback
        self.tick = 0
        self.upload: Upload | None = None
        self.future: asyncio.Future[Any] = contact.endpoint.loop.create_future()
        stream = self.stream = session.open(reserved=reserved)
        stream.owner = self

    def begin(self, payload: bytes, items: AsyncIterable[Any] | None = None) -> None:
        """Send OPEN and start the clock. Raises UsageError for a payload over the message limit."""
        alone = not self.session.places.open_mine and items is None
        self.contact.send(self.stream, encode_open(self.envelope, payload), items is None, alone)
        if items is not None:
            self.upload = Upload(self, items)
        ttl: float = self.envelope.ttl  # type: ignore[assignment]
        self.deadlines.add(self, self.contact.endpoint.loop.time() + ttl, ttl)

    # ------------------------------------------------------------------ from the stream
    def message(self, body: bytes, fin: bool, cost: int) -> None:
        self.session.consumed(self.stream, cost)
        if body[0] == messages.END:
            self.end(body, fin)
        elif body[0] == Kind.PROGRESS:
            self.progress(body)
        elif body[0] not in (messages.ITEM, messages.RAW):
            raise ProtocolError(f"message kind {body[0]} where an answer belongs")
        # Items of a stream that was called as a plain method are passed over: its END has the result.

    def progress(self, body: bytes) -> None:
        """A sign of progress. What `on_progress` raises ends the call, at the caller."""
        if self.on_progress is None:
            return
        from hermes_peer.agent.tasks import read_item

        try:
            event = read_item({"progress": jsons.decode(body[1:])})
            assert self.context is not None
            self.context.run(self.on_progress, event)
        except Exception as error:
            self.give_up(error)

    def end(self, body: bytes, fin: bool) -> None:
        """The answer. END without FIN, or bytes that cannot be read, break the peer's own promise."""
        if not fin:
            raise ProtocolError("END does not end its stream")
        try:
            if body.startswith(_OK):
                self.settle(jsons.decode(body[_OK_SIZE:]), None)
                return
            envelope, payload = split_envelope(body)
            value = jsons.decode(payload) if payload else None
        except ValueError as bad:
            self.settle(None, CallError("bad_answer", f"the answer cannot be read: {bad}", code=Code.ERROR_INTERNAL))
            return
        if envelope.type == "error":
            self.settle(None, call_error(value if isinstance(value, dict) else {}, self.envelope.trace_id))
        else:
            self.settle(value, None)

    def reset(self, body: bytes) -> None:
        """The peer aborted the stream without an answer."""
        try:
            value = jsons.decode(body) if body else {}
        except ValueError:
            value = {}
        error = call_error(value if isinstance(value, dict) else {}, self.envelope.trace_id)
        self.settle(None, error)

    def writable(self) -> None:
        if self.upload is not None:
            self.upload.writable()

    def warm(self) -> None:
        pass

    # ------------------------------------------------------------------ ends
    def settle(self, value: Any, error: BaseException | None) -> None:
        """The one outcome."""
        self.deadlines.discard(self)
        stream = self.stream
        if stream.sending is Half.OPEN:  # items of ours may still be open: the answer is here, they are not wanted
            self.session.reset(stream, CANCELLED)
        self.session.release(stream)
        if self.upload is not None:
            self.upload.task.cancel()
            self.upload = None
        future = self.future
        if not future.done():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def expire(self) -> None:
        ttl = self.envelope.ttl
        self.give_up(
            DeadlineExceeded(
                "ttl",
                f"{self.envelope.method} of {self.contact.name} gave no answer within the ttl of {ttl:g} s"
                + self._line(),
                origin="local",
                trace_id=self.envelope.trace_id,
            ),
            EXPIRED,
        )

    def _line(self) -> str:
        contact = self.contact
        if contact.pump is not None:
            return ""
        why = f": {contact.last_error}" if contact.last_error else ""
        return f"; the line to it is down{why}"

    def give_up(self, error: BaseException, told: bytes = CANCELLED) -> None:
        """End it from our side; the handler is cancelled."""
        if self.contact.session is self.session:
            self.session.reset(self.stream, told)
            self.contact.nudge()
        self.settle(None, error)

    def lost(self, text: str, offset: int = 0) -> None:
        """The session has ended (spec: session, section 4)."""
        ran = self.session.fate(self.stream)
        self.settle(None, SessionLost(text, ran=ran, offset=offset, trace_id=self.envelope.trace_id))

    async def wait(self) -> Any:
        """The result. Cancelling this cancels the call."""
        try:
            return await self.future
        except asyncio.CancelledError:
            self.left()
            raise

    def left(self) -> None:
        """Whoever awaited `future` was cancelled."""
        if not self.future.done() or self.future.cancelled():
            self.give_up(asyncio.CancelledError())
        if not self.future.cancelled():
            self.future.exception()  # seen: the answer came in the very turn in which the caller left


class Upload:
    """Items that go up beside a call: a task that waits whenever the peer's window is full."""

    __slots__ = ("_call", "_waiter", "task")

    def __init__(self, call: Outgoing, items: AsyncIterable[Any]) -> None:
        self._call = call
        self._waiter: asyncio.Future[None] | None = None
        self.task = call.contact.endpoint.loop.create_task(self._run(items))

    def writable(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _run(self, items: AsyncIterable[Any]) -> None:
        call, stream = self._call, self._call.stream
        contact, session = call.contact, call.session
        index = 0
        try:
            async for value in items:
                if type(value) is bytes:
                    message = pack_item(messages.RAW, index) + value
                else:
                    message = pack_item(messages.ITEM, index) + jsons.encode(value, "item")
                index += 1
                if contact.session is not session:
                    return  # it is lost, and a new one is nobody's business here
                contact.send(stream, message)
                while stream.queue and stream.sending is Half.OPEN:
                    stream.notify = True
                    self._waiter = call.contact.endpoint.loop.create_future()
                    await self._waiter
                if stream.sending is not Half.OPEN:
                    return
            if contact.session is session:
                contact.send(stream, messages.NOMORE_MESSAGE, True)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the items' own source failed: the call cannot be whole
            call.give_up(error)
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    await close()  # the source's `finally` runs now, not when memory is short
