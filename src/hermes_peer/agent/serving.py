"""The called side: from an opened stream to a handler, and from what it returns to an answer.

Knows: methods, policy, deadlines, outcomes. Refuses to know: sockets, keys, names' sources. Called by: endpoint
(`serve`), agent. A handler that ends without waiting costs no task; its answer leaves in the same turn of the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.context import CURRENT, new_trace
from hermes_peer.agent.methods import Method, Methods, Shape, unknown_method
from hermes_peer.agent.outcomes import Outcomes
from hermes_peer.agent.request import Request
from hermes_peer.agent.values import Final
from hermes_peer.core.session import Session
from hermes_peer.core.stream import Stream
from hermes_peer.errors import (
    CallError,
    Cancelled,
    Code,
    DeadlineExceeded,
    HermesError,
    PermissionDenied,
    ProtocolError,
    Unavailable,
    UsageError,
    error_body,
)
from hermes_peer.runtime.contact import Contact
from hermes_peer.runtime.deadlines import Deadlines
from hermes_peer.runtime.runner import Runner
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import Envelope, Kind, check_envelope, pack_item, split_envelope

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent

log = logging.getLogger("hermes_peer.call")
TTL_DEFAULT = 30.0
TTL_MAX = 86_400.0
_END_OF_THREAD = object()


class Server:
    """One agent's called side. `running` holds every call whose handler has not ended."""

    def __init__(self, agent: HermesAgent, methods: Methods, loop: asyncio.AbstractEventLoop) -> None:
        self.agent = agent
        self.methods = methods
        self.loop = loop
        self.deadlines = Deadlines(loop)
        self.runner = Runner(loop)
        self.running: set[Inbound] = set()
        self.outcomes = Outcomes(loop.time)
        self.draining = False
        self.served = 0

    def serve(self, contact: Contact, stream: Stream, body: bytes, fin: bool, cost: int) -> None:
        """A peer opened a stream; `body` is its first message."""
        session = contact.session
        assert session is not None
        session.consumed(stream, cost)
        if body[0] != 1:
            raise ProtocolError("a stream must begin with OPEN")
        envelope, payload = split_envelope(body)
        inbound = Inbound(self, contact, session, stream, envelope)
        stream.owner = inbound
        self.served += 1
        try:
            method = self._admit(contact, envelope, inbound)
            if method is None:
                return
            inbound.run(method, payload, fin)
        except CallError as error:
            inbound.finished(None, error)

    def _admit(self, contact: Contact, envelope: Envelope, inbound: Inbound) -> Method | None:
        """The method to run; None if an earlier outcome answers. Raises CallError."""
        problem = check_envelope(envelope)
        if problem:
            raise CallError("invalid_envelope", problem, code=Code.ERROR_INVALID_REQUEST)
        if self.draining:
            raise Unavailable("draining", "this agent is shutting down; call another instance", retryable=True)
        ttl = envelope.ttl
        if ttl is None:
            ttl = TTL_DEFAULT
        elif ttl <= 0:
            raise DeadlineExceeded("expired", "the ttl was spent before the call could run")
        inbound.deadline = self.loop.time() + (ttl if ttl < TTL_MAX else TTL_MAX)
        if not envelope.trace_id:
            envelope.trace_id = new_trace()
        name = envelope.method
        method = self.methods.get(name) if name else self.methods.default
        if method is None or not self.agent.allows(contact, method.name):
            self._refuse(contact, name, method)
        if method.min_ttl is not None and ttl < method.min_ttl:
            raise DeadlineExceeded(
                "min_ttl", f"{name} needs {method.min_ttl:g} s, the call has {ttl:g} s left", timer="min_ttl"
            )
        if envelope.own_id and not self.outcomes.begin(contact.peer.fingerprint, envelope.message_id, inbound):
            return None
        return method

    def _refuse(self, contact: Contact, name: str, method: Method | None) -> Any:
        """Policy before existence: a caller learns of no method that it may not call."""
        allowed = [m.name for m in self.methods if self.agent.allows(contact, m.name)]
        if method is None and (name and self.agent.allows(contact, name)):
            raise unknown_method(name, [n for n in allowed if not n.startswith("hermes.")])
        if not name:
            raise CallError("no_method", "the call names no method, and this agent has no default one", code=2)
        caller = contact.name
        raise PermissionDenied(
            "policy",
            f"{caller} may not call {name} of {self.agent.name}; a rule in that agent's policy.toml would allow it",
        )

    async def ask(self, contact: Contact, method: str, payload: Any, ttl: float | None) -> Any:
        """A call back to whoever called."""
        return await self.agent.call_contact(contact, method, payload, ttl=ttl, reserved=True)

    def session_ended(self, contact: Contact, session: Session) -> None:
        """Volatile handlers have nobody left to answer to, unless their caller said `detach`."""
        for inbound in [i for i in self.running if i.session is session]:
            inbound.abandoned()

    def recheck(self) -> None:
        """Policy or trust changed: what is no longer allowed ends now (attack 57)."""
        for inbound in list(self.running):
            if inbound.method is not None and not self.agent.allows(inbound.contact, inbound.method.name):
                inbound.stop(PermissionDenied("policy", "a rule that allowed this call was taken back"))

    def close(self) -> None:
        self.deadlines.close()
        self.runner.close()


class Inbound:
    """One call that we serve: the owner of a stream that a peer opened."""

    __slots__ = (
        "_done",
        "_incoming",
        "_index_in",
        "_index_out",
        "_waiter",
        "_writable",
        "contact",
        "deadline",
        "envelope",
        "method",
        "request",
        "server",
        "session",
        "stopped",
        "stream",
        "task",
        "tick",
    )

    def __init__(self, server: Server, contact: Contact, session: Session, stream: Stream, envelope: Envelope) -> None:
        self.server = server
        self.contact = contact
        self.session = session
        self.stream = stream
        self.envelope = envelope
        self.deadline = 0.0
        self.tick = 0
        self.method: Method | None = None
        self.request: Request | None = None
        self.task: asyncio.Task[None] | None = None
        self.stopped: CallError | None = None  # why the handler is being cancelled
        self._done = False
        self._incoming: deque[tuple[bytes, int]] | None = None
        self._index_in = self._index_out = 0
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------ running the handler
    def run(self, method: Method, payload: bytes, fin: bool) -> None:
        server = self.server
        request = self.request = Request(self, payload)
        self.method = method
        if not fin:
            self._incoming = deque()
        args, keywords = method.arguments(payload, request)
        handler, shape = method.handler, method.shape
        if shape is Shape.CALL:
            coroutine = handler(*args, **keywords)
        elif shape is Shape.STREAM:
            coroutine = self._stream(handler(*args, **keywords))
        elif shape is Shape.THREAD:
            coroutine = self._thread(partial(handler, *args, **keywords))
        else:
            coroutine = self._thread_stream(handler(*args, **keywords))
        context = contextvars.copy_context()
        context.run(CURRENT.set, request)
        server.running.add(self)
        task = server.runner.start(coroutine, context, self.finished)
        if task is not None and not self._done:
            self.task = task
            server.deadlines.add(self, self.deadline)

    async def _stream(self, generator: AsyncIterator[Any]) -> Any:
        try:
            async for value in generator:
                if type(value) is Final:
                    return value.value
                self.emit(value)
                if self.stream.queue:
                    await self._room()
        finally:
            close = getattr(generator, "aclose", None)
            if close is not None:
                await close()
        return None

    async def _thread(self, call: partial[Any]) -> Any:
        context = contextvars.copy_context()
        return await self.server.loop.run_in_executor(self.server.agent.threads, context.run, call)

    async def _thread_stream(self, iterator: Iterator[Any]) -> Any:
        loop, threads = self.server.loop, self.server.agent.threads
        context = contextvars.copy_context()
        try:
            while True:
                value = await loop.run_in_executor(threads, context.run, next, iterator, _END_OF_THREAD)
                if value is _END_OF_THREAD:
                    return None
                if type(value) is Final:
                    return value.value
                self.emit(value)
                if self.stream.queue:
                    await self._room()
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                await loop.run_in_executor(threads, close)

    def emit(self, value: Any) -> None:
        """Send one item. Raises TypeError, ValueError for what has no JSON form, UsageError for a size over the
        limit."""
        index = self._index_out
        if type(value) is bytes:
            message = pack_item(messages.RAW, index) + value
        else:
            message = pack_item(2, index) + jsons.encode(value, "item")
        self._index_out = index + 1
        self.request.emitted = index + 1  # type: ignore[union-attr]
        if not self._done:
            self.contact.send(self.stream, message)

    async def progress(self, state: str, tokens_used: int, partial: Any) -> None:
        from hermes_peer.agent.tasks import ProgressEvent, progress_item

        event = ProgressEvent(state, tokens_used, partial)
        if self.method is not None and self.method.kind == "task":
            self.emit(progress_item(event))
        elif not self._done:
            self.contact.send(self.stream, messages.PROGRESS_HEAD + jsons.encode(event, "progress"))
        if self.stream.queue:
            await self._room()

    async def _room(self) -> None:
        """Wait until the stream has sent what it holds: the reader's window is the generator's brake."""
        while self.stream.queue and not self._done:
            self.stream.notify = True
            future = self._writable = self.server.loop.create_future()
            await future

    # ------------------------------------------------------------------ the end
    def finished(self, value: Any, error: BaseException | None) -> None:
        """The handler has ended: answer, once, and give its place back."""
        if self._done:
            return
        self._done = True
        server, stream, session = self.server, self.stream, self.session
        server.running.discard(self)
        if self.task is not None:
            server.deadlines.discard(self)
        if error is None:
            try:
                answer = messages.RESPONSE_HEAD + jsons.encode(value, "result")
            except (TypeError, ValueError) as bad:
                error = CallError("bad_result", f"the result cannot be sent: {bad}", code=Code.ERROR_INTERNAL)
        if error is not None:
            answer = self._error_answer(error)
        if self.envelope.own_id:
            server.outcomes.end(self.contact.peer.fingerprint, self.envelope.message_id, answer)
        if self.contact.session is session:
            try:
                self.contact.send(stream, answer, True)
            except UsageError as large:
                too_large = CallError("result_too_large", str(large), code=Code.ERROR_RESOURCE_EXHAUSTED)
                self.contact.send(stream, self._error_answer(too_large), True)
            if self._incoming is not None:
                self._drop_items()
        session.release(stream)
        if session.places.tell:
            self.contact.nudge()

    def _error_answer(self, error: BaseException) -> bytes:
        body = error_body(self._as_call_error(error))
        try:
            return messages.ERROR_HEAD + jsons.encode(body, "error")
        except (TypeError, ValueError) as bad:
            body["details"] = f"the details cannot be sent: {bad}"
            return messages.ERROR_HEAD + jsons.encode(body)

    def _as_call_error(self, error: BaseException) -> CallError:
        if isinstance(error, CallError):
            if error.trace_id and not error.__traceback__:
                return error
            return error
        if isinstance(error, asyncio.CancelledError):
            return self.stopped or Cancelled("cancelled", "the call was given up")
        if isinstance(error, UsageError):
            return CallError("bad_result", str(error), code=Code.ERROR_INTERNAL)
        if isinstance(error, HermesError):
            return Unavailable("downstream", f"an agent that {self.envelope.method} needs failed: {error}")
        reference = os.urandom(4).hex()
        log.error(
            "%s failed (reference %s, trace %s)",
            self.envelope.method,
            reference,
            self.envelope.trace_id,
            exc_info=error,
        )
        return CallError(
            "internal", f"the method failed; its log has the reference {reference}", code=Code.ERROR_INTERNAL
        )

    def answer_stored(self, answer: bytes) -> None:
        """An earlier call of this id has the outcome already."""
        if not self._done:
            self._done = True
            self.contact.send(self.stream, answer, True)
            self.session.release(self.stream)

    def stop(self, why: CallError) -> None:
        """Cancel the handler; `why` is the answer if it obeys."""
        if self.stopped is None:
            self.stopped = why
        if self.task is not None:
            self.task.cancel()
        elif self.method is None:
            self.finished(None, why)

    def abandoned(self) -> None:
        """The session is gone. The outcome is kept for a retry of the same id."""
        if not self.envelope.detach:
            self.stop(CallError("outcome_unknown", "the caller's session was lost while this ran", code=1))

    # ------------------------------------------------------------------ from the stream
    def expire(self) -> None:
        self.stop(DeadlineExceeded("ttl", f"{self.envelope.method} did not end within the caller's ttl"))

    def message(self, body: bytes, fin: bool, cost: int) -> None:
        """Items from the caller."""
        kind = body[0]
        if kind == Kind.NOMORE or kind not in (messages.ITEM, messages.RAW):
            self.session.consumed(self.stream, cost)
            if kind != Kind.NOMORE:
                raise ProtocolError(f"message kind {kind} where an item belongs")
        else:
            if int.from_bytes(body[1:9], "big") != self._index_in or len(body) < messages.ITEM_HEAD:
                raise ProtocolError(f"an item came where item {self._index_in} belongs")
            self._index_in += 1
            if self._incoming is None or self._done:
                self.session.consumed(self.stream, cost)
            else:
                self._incoming.append((body, cost))
        if fin and self._incoming is not None:
            self._incoming.append((b"", 0))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def items(self) -> AsyncIterator[Any]:
        incoming = self._incoming
        if incoming is None:
            return
        while True:
            while not incoming:
                self._waiter = self.server.loop.create_future()
                await self._waiter
            body, cost = incoming.popleft()
            if not body:
                return
            self.session.consumed(self.stream, cost)
            if self.session.receiver.credits:
                self.contact.nudge()
            yield read_item(body)

    def _drop_items(self) -> None:
        while self._incoming:
            self.session.consumed(self.stream, self._incoming.popleft()[1])

    def reset(self, body: bytes) -> None:
        """The caller gave it up."""
        if self._done:
            return
        if self.task is None and self.method is not None:
            return  # it ends in this very turn
        self.stop(Cancelled("cancelled", "the caller gave the call up"))
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def writable(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def warm(self) -> None:
        pass


def read_item(body: bytes) -> Any:
    """The value of an ITEM or RAW message. Raises CallError (bad_item)."""
    rest = body[messages.ITEM_HEAD :]
    if body[0] == messages.RAW:
        return rest
    try:
        return jsons.decode(rest)
    except ValueError as error:
        raise CallError("bad_item", f"an item cannot be read: {error}", code=Code.ERROR_INVALID_REQUEST) from None
