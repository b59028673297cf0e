"""The Stream that a caller iterates.

Knows: items, their order, credit by consumption, ways to leave. Refuses to know: links; a lost line is never seen here.
Called by: users, through `agent.stream(...)`; tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from hermes_peer.agent.calling import Outgoing
from hermes_peer.agent.inbound import read_item
from hermes_peer.errors import Cancelled, ProtocolError, SessionLost, Unavailable, UsageError
from hermes_peer.wire import messages

CREDIT_STEP = 8 * 1024


class StreamCall(Outgoing):
    """The owner of a stream whose items are read: what came and was not taken yet."""

    __slots__ = ("_taken", "began", "ended", "index", "items", "reading", "waiter")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.items: deque[tuple[bytes, int]] = deque()
        self.index = 0  # items that came
        self.waiter: asyncio.Future[None] | None = None
        self.reading = True
        self.ended = False
        self.began = self.contact.endpoint.loop.time()
        self._taken = 0

    def message(self, body: bytes, fin: bool, cost: int) -> None:
        kind = body[0]
        if kind == messages.ITEM or kind == messages.RAW:
            index = self.index
            if len(body) < messages.ITEM_HEAD or int.from_bytes(body[1:9], "big") != index or fin:
                raise ProtocolError(f"an item came where item {index} belongs")
            self.index = index + 1
            self.stream.seen_at = self.session.places.now
            if self.reading:
                self.items.append((body, cost))
                waiter = self.waiter
                if waiter is not None:
                    self.waiter = None
                    if not waiter.done():
                        waiter.set_result(None)
            else:
                self.session.consumed(self.stream, cost)
            return
        Outgoing.message(self, body, fin, cost)

    def settle(self, value: Any, error: BaseException | None) -> None:
        self.ended = True
        super().settle(value, error)
        if not self.items and self.stream.inbound.unread:
            self.session.consumed(self.stream, self.stream.inbound.unread)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        if self.future.done() and not self.future.cancelled():
            self.future.exception()  # seen: it is raised from the iteration or from result()

    def lost(self, text: str, offset: int = 0) -> None:
        super().lost(text, self.index)

    def took(self, cost: int) -> None:
        """Credit goes back in steps, and whenever all that came was taken."""
        self._taken += cost
        if self._taken >= CREDIT_STEP or not self.items:
            taken, self._taken = self._taken, 0
            self.session.consumed(self.stream, taken)
            if self.session.receiver.credits:
                self.contact.nudge()

    def discard(self) -> None:
        """Nobody reads any more: give all credit back, now and for what still comes."""
        self.reading = False
        self.items.clear()
        self.session.consumed(self.stream, self.stream.inbound.unread)
        if self.session.receiver.credits:
            self.contact.nudge()


Open = Callable[..., Coroutine[Any, Any, StreamCall]]  # anew: after which call, and which error of it


class Stream:
    """An async iterator of items, and an async context manager that cancels the handler if it is left early.

    `message_id`, `offset` (items taken), `silent_s`, `await result()` (what the handler returned, or `Final`).
    Raises CallError if the handler failed, SessionLost if the peer's process is gone; a cut line raises nothing.
    """

    def __init__(
        self,
        open: Open,
        message_id: str,
        detach: bool = False,
        *,
        again: bool = False,
    ) -> None:
        self.message_id = message_id
        self.offset = 0
        self._open = open
        self._detached = detach
        self._again = again  # it may be begun anew, while nothing has come
        self._call: StreamCall | None = None
        self._opening: asyncio.Task[StreamCall] | None = None
        self._closed = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        call = self._call
        if call is None:
            call = await self._start()
        items = call.items
        while not items:
            if call.ended:
                error = call.future.exception()
                if error is None:
                    raise StopAsyncIteration
                if not self._may_again(call, error):
                    raise error
                call = await self._start()
                items = call.items
                continue
            if self._closed:
                raise StopAsyncIteration
            if call.waiter is not None:
                raise UsageError("two tasks iterate the same stream: each item goes to one reader only")
            waiter = call.waiter = call.contact.endpoint.loop.create_future()
            try:
                await waiter
            finally:
                call.waiter = None
        body, cost = items.popleft()
        self.offset += 1
        call.took(cost)
        return read_item(body)

    @property
    def silent_s(self) -> float | None:
        """Seconds since the handler last showed life: by an item, or by the sign that its side gives while it is silent
        (about every 5 s; a lost line delays it). None before the stream began, and once it has ended."""
        call = self._call
        if call is None or call.ended or not call.stream.id:
            return None
        return max(0.0, call.contact.endpoint.loop.time() - max(call.began, call.stream.seen_at))

    async def result(self) -> Any:
        """The final value, once the stream has ended. Items that nobody took are passed over."""
        while True:
            call = self._call or await self._start()
            if call.reading and call.waiter is None:
                call.discard()
            try:
                return await asyncio.shield(call.future)
            except asyncio.CancelledError:
                if call.future.cancelled():
                    raise Cancelled("cancelled", "the stream was closed before its end") from None
                raise
            except (SessionLost, Unavailable) as error:
                if not self._may_again(call, error):
                    raise

    def _may_again(self, call: StreamCall, error: BaseException) -> bool:
        """Whether to go on with a new call, which may be the work of another reader: nothing of this one came."""
        if not self._again or self._closed or call.index or not isinstance(error, SessionLost | Unavailable):
            return False
        if self._call is call:
            self._call, self._opening = None, asyncio.ensure_future(self._open(call, error))
        return True

    def detach(self) -> None:
        """Leave the handler running: closing this stream no longer cancels it; its items are passed over."""
        self._detached = True

    async def resume(self, offset: int) -> None:
        """Raises UsageError: what goes on in another process is durable work, and its ticket has `items(offset)`."""
        raise UsageError(
            "a lost line heals by itself; what must outlive a process is for submit() and its ticket's items()"
        )

    async def aclose(self) -> None:
        """Leave. Harmless twice, and from any task."""
        if self._closed:
            return
        self._closed = True
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        call = self._call
        if call is None:
            return
        if not (self._detached or call.ended):
            call.give_up(Cancelled("cancelled", "the stream was closed by its reader"))
        call.discard()

    async def __aenter__(self) -> Stream:
        if self._call is None:
            await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # A stream that was dropped in the middle (`break` in a bare `async for`) must hold neither its handler nor
        # its place; one that has ended, with items that nobody took, not its place.
        call = self._call
        if call is not None and not self._closed:
            loop = call.contact.endpoint.loop
            if not loop.is_closed():
                loop.call_soon_threadsafe(_drop, call, self._detached)

    async def _start(self) -> StreamCall:
        if self._closed:
            raise UsageError("this stream is closed")
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        try:
            self._call = await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            opening = self._opening
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                self._call = opening.result()  # opened in the very turn in which the reader left: to be closed
            opening.cancel()
            if self._left():
                raise Cancelled("cancelled", "the stream was closed while it was being opened") from None
            raise
        if self._left():
            _drop(self._call, self._detached)
        return self._call

    def _left(self) -> bool:
        return self._closed


def _drop(call: StreamCall, detached: bool) -> None:
    if not (call.ended or detached):
        call.give_up(Cancelled("cancelled", "the stream was dropped"))
    call.discard()
