"""One call that we serve: from its OPEN to its answer.

Knows: handlers, items both ways, how an end becomes an answer. Refuses to know: who may call, links' fates.
Called by: serving (run, stop), the endpoint (as the owner of a stream), requests.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.answers import error_answer, too_large
from hermes_peer.agent.context import CURRENT
from hermes_peer.agent.methods import Method, Shape
from hermes_peer.agent.request import Request
from hermes_peer.agent.values import Final
from hermes_peer.core.session import Session
from hermes_peer.core.stream import Stream
from hermes_peer.errors import (
    CallError,
    Cancelled,
    Code,
    DeadlineExceeded,
    ProtocolError,
    Unavailable,
    UsageError,
)
from hermes_peer.runtime.contact import Contact
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.frames import COST_MIN
from hermes_peer.wire.messages import Envelope, Kind, pack_item

if TYPE_CHECKING:
    from hermes_peer.agent.serving import Server

_END_OF_THREAD = object()
PATIENCE = 0.9  # the part of the ttl for which a thread is waited for


class Inbound:
    """One call that we serve: the owner of a stream that a peer opened."""

    __slots__ = (
        "_after_step",
        "_done",
        "_held",
        "_incoming",
        "_index_in",
        "_index_out",
        "_waiter",
        "_writable",
        "contact",
        "deadline",
        "entered",
        "envelope",
        "method",
        "request",
        "server",
        "session",
        "stopped",
        "stream",
        "task",
        "tick",
        "ttl",
    )

    def __init__(self, server: Server, contact: Contact, session: Session, stream: Stream, envelope: Envelope) -> None:
        self.server = server
        self.contact = contact
        self.session = session
        self.stream = stream
        self.envelope = envelope
        self.deadline = 0.0
        self.ttl = 0.0  # seconds that the caller gave
        self.tick = 0
        self.method: Method | None = None
        self.request: Request | None = None
        self.task: asyncio.Task[None] | None = None
        self.stopped: CallError | None = None  # why the handler is being cancelled
        self.entered = False  # its outcome is to be kept
        self._done = False
        self._held = False  # a thread of ours still runs: the place is not free
        self._after_step: Callable[[], None] | None = None
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
        coroutine: Any
        if shape is Shape.CALL:
            coroutine = handler(*args, **keywords)
        elif shape is Shape.STREAM:
            coroutine = self._stream(handler(*args, **keywords))
        elif shape is Shape.THREAD:
            coroutine = self._thread(partial(handler, *args, **keywords))
        else:
            coroutine = self._thread_stream(handler(*args, **keywords))
        context = server.context.copy()  # the agent's, not that of whoever made this link
        context.run(CURRENT.set, request)
        server.running.add(self)
        task = server.runner.start(coroutine, context, self.finished)
        if task is not None and not self._done:
            self.task = task
            server.deadlines.add(self, self.deadline, self.ttl)

    async def _stream(self, generator: AsyncIterator[Any]) -> Any:
        try:
            async for value in generator:
                if type(value) is Final:
                    return value.value
                self.emit(value)
                if self.stream.queue:
                    await self._room()
                elif self.stopped is not None or self.contact.session is not self.session:
                    await asyncio.sleep(0)  # no brake any more: let the cancel, or other calls, have their turn
        except asyncio.CancelledError as gone:
            # Given up while it waited for its reader: the handler hears of it at its `yield`, as from its own awaits.
            if hasattr(generator, "athrow"):
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await generator.athrow(gone)
            raise
        finally:
            close = getattr(generator, "aclose", None)
            if close is not None:
                await close()
        return None

    async def _thread(self, call: Callable[[], Any], patient: bool = False) -> Any:
        """Run in a thread. A thread cannot be cancelled: its place stays taken until it has really ended.

        Raises Unavailable (threads_full) if none became free in time, unless `patient`; then it has not run.
        """
        server = self.server
        threads = server.agent.threads
        work = threads.submit(contextvars.copy_context().run, call)
        refusal: list[Unavailable] = []
        timer = None
        if threads.waiting and not patient:
            left = (self.deadline - server.loop.time()) * PATIENCE  # the rest is for the refusal's way
            timer = server.loop.call_later(left, self._no_thread, work, refusal)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            if refusal and self.stopped is None:
                raise refusal[0] from None
            if not work.done():
                self._held = True
                work.add_done_callback(self._thread_ended)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _no_thread(self, work: Future[Any], refusal: list[Unavailable]) -> None:
        if work.cancel():
            refusal.append(self.server.threads_full(self._index_out == 0))

    def _thread_ended(self, work: Future[Any]) -> None:
        loop = self.server.loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._give_place)

    async def _thread_stream(self, iterator: Iterator[Any]) -> Any:
        context = contextvars.copy_context()

        def step() -> Any:
            return context.run(next, iterator, _END_OF_THREAD)

        close = partial(context.run, getattr(iterator, "close", lambda: None))
        stepping = False
        try:
            while True:
                stepping = True
                value = await self._thread(step)
                stepping = False
                if value is _END_OF_THREAD:
                    return None
                if type(value) is Final:
                    return value.value
                self.emit(value)
                await self._room()
        finally:
            # A generator that is in the middle of a step, in its thread, cannot be closed before that has ended.
            if stepping and self._held:
                self._after_step = close
            else:
                await self._thread(close, patient=True)

    def emit(self, value: Any) -> None:
        """Send one item. Raises CallError for what has no JSON form (HPC-048), or is over the size limit."""
        index = self._index_out
        try:
            if type(value) is bytes:
                message = pack_item(messages.RAW, index) + value
            else:
                message = pack_item(2, index) + jsons.encode(value, "item")
            if not self._done and self.contact.session is self.session:
                self.contact.send(self.stream, message)
        except (TypeError, ValueError) as bad:
            raise CallError("bad_item", f"item {index} cannot be sent: {bad}", code=Code.ERROR_INTERNAL) from bad
        except UsageError as large:
            raise CallError("item_too_large", f"item {index}: {large}", code=Code.ERROR_RESOURCE_EXHAUSTED) from large
        self._index_out = index + 1
        self.request.emitted = index + 1  # type: ignore[union-attr]

    async def progress(self, state: str, tokens_used: int, partial: Any) -> None:
        from hermes_peer.agent.tasks import ProgressEvent, progress_item

        event = ProgressEvent(state, tokens_used, partial)
        if self.method is not None and self.method.kind == "task":
            self.emit(progress_item(event))
        elif not self._done and self.contact.session is self.session:
            self.contact.send(self.stream, messages.PROGRESS_HEAD + jsons.encode(event, "progress"))
        await self._room()

    async def _room(self) -> None:
        """Wait until the stream has sent what it holds: the reader's window is the generator's brake."""
        stream = self.stream
        if self.contact.pump is None and max(stream.queued, COST_MIN * len(stream.queue)) < stream.room:
            return  # without a link the handler may run ahead as far as that window reaches (HPC-005)
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
            if self.stopped is not None and isinstance(error, asyncio.CancelledError):
                error = self.stopped
            answer = error_answer(error, self.envelope, self.method is not None)
        if len(answer) > session.settings.message:
            answer = too_large(answer, session.settings.message, self.envelope)
        if self.entered:
            server.outcomes.end(self.contact.peer.fingerprint, self.envelope.message_id, answer, self.deadline)
        if self.contact.session is session:
            self.contact.send(stream, answer, True)
        if self._incoming is not None:
            self._drop_items()
        if not self._held:
            self.request = None  # it holds us: nothing but the collector would part the two
            session.release(stream)
            if session.places.tell:
                self.contact.nudge()

    def _give_place(self) -> None:
        """The thread of a handler that was given up has ended."""
        self._held = False
        after, self._after_step = self._after_step, None
        if after is not None:
            self._held = True
            self.server.agent.threads.submit(after).add_done_callback(self._thread_ended)
        elif self._done:
            self.session.release(self.stream)
            if self.session.places.tell and self.contact.session is self.session:
                self.contact.nudge()

    def answer_stored(self, answer: bytes) -> None:
        """An earlier call of this id has the outcome already."""
        if not self._done:
            self._done = True
            limit = self.session.settings.message
            if len(answer) > limit:  # this session's limit may be another one than that of the session which ran it
                answer = too_large(answer, limit, self.envelope)
            if self.contact.session is self.session:
                self.contact.send(self.stream, answer, True)
            self.session.release(self.stream)

    def stop(self, why: CallError) -> None:
        """Cancel the handler; `why` is the answer if it obeys."""
        if self.stopped is None:
            self.stopped = why
        if self.task is not None:
            self.server.runner.cancel(self.task)
        elif self.method is None:
            self.server.outcomes.detach(self.contact.peer.fingerprint, self.envelope.message_id, self)
            self.finished(None, why)

    def abandoned(self) -> None:
        """The session is gone. The outcome is kept for a retry of the same id."""
        if not self.envelope.detach:
            self.stop(CallError("outcome_unknown", "the caller's session was lost while this ran", code=1))
        else:  # it goes on; what it still has to say has nowhere to go
            self.stream.queue.clear()
            self.writable()

    # ------------------------------------------------------------------ from the stream
    def expire(self) -> None:
        self.stop(DeadlineExceeded("ttl", f"{self.envelope.method} did not end within the caller's ttl"))

    def message(self, body: bytes, fin: bool, cost: int) -> None:
        """Items from the caller."""
        kind = body[0]
        if kind not in (messages.ITEM, messages.RAW):
            self.session.consumed(self.stream, cost)
            if kind != Kind.NOMORE or not fin:
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
        """What the caller sends, as it comes. Raises UsageError if two read it at once."""
        incoming = self._incoming
        if incoming is None:
            return
        while True:
            while not incoming:
                if self._waiter is not None and not self._waiter.done():
                    raise UsageError("two tasks iterate request.items: each item goes to one reader only")
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
