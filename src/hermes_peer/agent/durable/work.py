"""One piece of taken work: its handler, its items on disk, and who waits for its end.

Knows: contracts, the journal's promises, the order commit-then-send. Refuses to know: links; who submitted it beyond a
fingerprint. Called by: inbox.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hermes_peer.agent.context import CURRENT
from hermes_peer.agent.durable.acceptance import Acceptance, NotTaken
from hermes_peer.agent.durable.retry import error_answer, is_progress, item_bytes
from hermes_peer.agent.methods import Method, Shape
from hermes_peer.agent.values import Final
from hermes_peer.errors import (
    CallError,
    Cancelled,
    Code,
    DeadlineExceeded,
    HermesError,
    JournalError,
    OutcomeUnknown,
    Unavailable,
    UsageError,
    error_body,
)
from hermes_peer.journal.operations import Append, Finish
from hermes_peer.journal.values import Contract, Limits, Taken
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.durable.inbox import Inbox
    from hermes_peer.agent.durable.transaction import WorkTransaction

log = logging.getLogger("hermes_peer.work")
TAIL = 256  # items kept in memory behind the log, for whoever reads along
AHEAD = 512  # items a handler may be ahead of the disk
PIECE = 500  # logged items read at a time
AGAIN_S = 1.0  # between two attempts to store an outcome
LARGEST = Limits().body
_END: Any = object()


class Work:
    """`outcome` is the END message once it is on disk; `logged` counts the items that are."""

    def __init__(self, inbox: Inbox, row: Taken, envelope: Envelope, deadline: float) -> None:
        self.inbox = inbox
        self.principal = row.principal
        self.id = row.message_id
        self.envelope = envelope
        self.payload = row.payload
        self.method_name = row.method
        self.contract = row.contract
        self.deadline = deadline
        self.attempts = row.attempts
        self.logged = row.next_item
        self.outcome: bytes | None = row.outcome
        self.ended: list[Callable[[bytes], None]] = []
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None  # while it waits to be started
        self.counted = False  # it holds one of the places of running handlers
        self.stopped: CallError | None = None
        self._began = self._ending = False  # the handler's code; the storing of what came of it
        self.transaction: WorkTransaction | None = None
        self.acceptance: Acceptance | None = None  # of a work that began before it was on the disk
        self.changed = asyncio.Event()
        self.tail: deque[tuple[int, bytes]] = deque(maxlen=TAIL)
        self._earlier = row.next_item  # items that a run before a crash has logged
        self._repeated = 0  # how many of them this run has yielded once more
        self._goes_on = not row.next_item  # this run begins behind them
        self._page: list[bytes] = []
        self._pending: list[bytes] = []
        self._on_the_way = 0  # items that are being written
        self._flush: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ running
    def start(self, method: Method) -> None:
        """Run the handler; RUNNING is on disk already, unless it begins early (`acceptance`)."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.task = self.inbox.spawn(self._run(method))

    async def _run(self, method: Method) -> None:
        value: Any = None
        error: BaseException | None = self.stopped
        if error is not None:  # before its first step
            await self._finish(None, error)
            return
        self._began = True
        try:
            async with asyncio.timeout_at(self.deadline):
                value = await self._handle(method)
        except asyncio.CancelledError:
            if self.stopped is None and self.inbox.closing:
                if self.transaction is not None:
                    await asyncio.shield(self.transaction.rollback())
                raise  # the agent shuts down: the row stays RUNNING, and its contract decides after the restart
            error = self.stopped or CallError("internal", f"{self.method_name} cancelled itself", code=7)
        except TimeoutError as late:
            spent = self.inbox.time() >= self.deadline
            error = DeadlineExceeded("ttl", f"{self.method_name} did not end within its ttl") if spent else late
        except BaseException as raised:
            error = raised
        if self.task is not None and self.task.cancelling() and not self.inbox.closing:
            with suppress(asyncio.CancelledError):  # asked for, and not waited for, by the handler itself
                await asyncio.sleep(0)
        await self._finish(value, error)

    async def _handle(self, method: Method) -> Any:
        from hermes_peer.agent.durable.request import WorkRequest

        request = WorkRequest(self)
        CURRENT.set(request)
        args, keywords = method.arguments(self.payload, request)
        if method.shape is Shape.CALL:
            return await method.handler(*args, **keywords)
        if method.shape is Shape.STREAM:
            generator = method.handler(*args, **keywords)
            try:
                async for value in generator:
                    if type(value) is Final:
                        return value.value
                    await self.emit(value)
            finally:
                close = getattr(generator, "aclose", None)
                if close is not None:
                    await close()
            return None
        loop, threads = self.inbox.loop, self.inbox.agent.threads
        run = contextvars.copy_context().run
        result = await loop.run_in_executor(threads, run, partial(method.handler, *args, **keywords))
        if not inspect.isgenerator(result):
            return result
        while (value := await loop.run_in_executor(threads, run, next, result, _END)) is not _END:  # type: ignore[arg-type]
            if type(value) is Final:
                return value.value
            await self.emit(value)
        return None

    # ------------------------------------------------------------------ items
    async def emit(self, value: Any, *, progress: bool = False) -> None:
        """Log one item. It is shown to readers after its commit; items of one turn of the loop share one.

        Raises CallError for what cannot be an item, and if a second run yields other items than the first: what was
        read already and what would follow are two streams then, not one.
        """
        try:
            data = item_bytes(value)
        except (TypeError, ValueError) as bad:
            raise CallError("bad_item", f"item {self.emitted} cannot be sent: {bad}", code=7) from bad
        if len(data) > LARGEST:
            raise CallError("item_too_large", f"item {self.emitted} has {len(data)} bytes, at most {LARGEST}", code=6)
        if not self._goes_on and not progress and await self._is_repeated(data):
            return
        self._pending.append(data)
        if self.transaction is not None:
            return  # stored with it
        if self._flush is None:
            self._flush = self.inbox.spawn(self._write())
        if len(self._pending) >= AHEAD:
            await self.written()
        else:
            await asyncio.sleep(0)

    async def _is_repeated(self, data: bytes) -> bool:
        """Whether this item was logged by an earlier run."""
        while self._repeated < self._earlier:
            if not self._page:
                piece = await self.inbox.journal.items(self.principal, self.id, self._repeated, PIECE)
                if piece is None or not piece.items or piece.first != self._repeated:
                    raise CallError("items_lost", f"item {self._repeated} is no longer kept", code=7)
                self._page = list(reversed(piece.items))
            known = self._page.pop()
            self._repeated += 1
            if is_progress(known):
                continue
            if known != data:
                raise CallError(
                    "other_items",
                    f"after a crash {self.method_name} ran again and yielded other items than before, from item "
                    f"{self._repeated - 1} on; let it begin at request.emitted",
                    code=Code.ERROR_INTERNAL,
                )
            return True
        self._goes_on = True
        return False

    def begin_at(self) -> int:
        """`request.emitted`. A run that asks before its first item begins behind what is logged."""
        if not self._repeated:
            self._goes_on = True
        return self.emitted if self._goes_on else self._repeated

    @property
    def emitted(self) -> int:
        """Items logged and about to be, over all runs."""
        return self.logged + self._on_the_way + len(self._pending)

    def drop_pending(self) -> None:
        """The transaction that they belong to is not stored."""
        self._pending.clear()

    async def _write(self) -> None:
        try:
            while self._pending:
                batch, self._pending = tuple(self._pending), []
                self._on_the_way = len(batch)
                if self.acceptance is not None:
                    self.acceptance.handed_in()
                    await self.acceptance.stands()
                self.inbox.fail("before-append")
                await self.inbox.journal.commit(Append(self.principal, self.id, self.logged, batch))
                self.inbox.fail("after-append")
                self._on_the_way = 0
                self._show(batch)
        except NotTaken:
            self._pending.clear()
        finally:
            self._on_the_way = 0
            self._flush = None

    def _show(self, batch: tuple[bytes, ...]) -> None:
        self.tail.extend(enumerate(batch, self.logged))
        self.logged += len(batch)
        self._tell()

    async def written(self) -> None:
        """All items are on the disk. Raises JournalError."""
        if self._flush is not None:
            await asyncio.shield(self._flush)

    # ------------------------------------------------------------------ the end
    async def _finish(self, value: Any, error: BaseException | None) -> None:
        self._ending = True
        try:
            if error is not None and self.transaction is not None:
                await self.transaction.rollback()
            if self.transaction is None:
                await self.written()
        except (HermesError, OSError) as failed:
            error = error or failed
        while True:
            try:
                self.inbox.fail("before-done")
                outcome = await self._store(value, error)
                self.inbox.fail("after-done")
                break
            except JournalError as bad:
                if self.inbox.closing:
                    return  # it took no notice of being cancelled, and the journal is closed: the contract decides
                if self.inbox.journal.gauges().stopped:
                    self.unstored(Unavailable("journal", str(bad), retryable=True))
                    return
                log.warning("the outcome of %s could not be stored, it is tried again: %s", self.id, bad)
                await asyncio.sleep(AGAIN_S)
            except UsageError as gone:
                self.unstored(OutcomeUnknown("outcome_unknown", f"the row of this work was lost: {gone}"))
                return
            except NotTaken:
                return
        self.settle(outcome)

    async def _store(self, value: Any, error: BaseException | None) -> bytes:
        """Store the outcome, with what the transaction holds. Raises JournalError, UsageError if the row is gone."""
        keep = self.inbox.keep_until(self.deadline)
        answer = self._answer(value, error)
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            items = tuple(self._pending)
            more = (Append(self.principal, self.id, self.logged, items),) if items else ()
            try:
                await transaction.commit(*more, Finish(self.principal, self.id, answer, keep))
            except Exception as failed:  # nothing was stored: neither effect nor outcome
                self.drop_pending()
                if self.inbox.journal.gauges().stopped:
                    raise JournalError(str(failed)) from failed
                answer = self._answer(None, failed)
            else:
                self.drop_pending()
                self._show(items)
                return answer
        if len(answer) > LARGEST:
            answer = self._answer(None, UsageError(f"it has {len(answer)} bytes, at most {LARGEST} are kept"))
        if self.acceptance is None or not await self.acceptance.shared(answer, keep):
            await self.inbox.journal.commit(Finish(self.principal, self.id, answer, keep))
        return answer

    def settle(self, outcome: bytes) -> None:
        """The outcome is on disk: tell whoever waits."""
        self.outcome = outcome
        self._tell_ended(outcome)

    def unstored(self, why: CallError) -> None:
        """No outcome could be stored. Whoever waits asks again; after a restart the contract decides."""
        log.error("%s of %s has no stored outcome: %s", self.method_name, self.id, why)
        self._tell_ended(error_answer(why))

    def _tell_ended(self, answer: bytes) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.inbox.finished(self)
        waiting, self.ended = self.ended, []
        for tell in waiting:
            tell(answer)
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def _answer(self, value: Any, error: BaseException | None) -> bytes:
        if error is None:
            try:
                return messages.encode_end(self._head("response", self.emitted), jsons.encode(value, "result"))
            except (TypeError, ValueError) as bad:
                error = CallError("bad_result", f"the result cannot be sent: {bad}", code=Code.ERROR_INTERNAL)
        body = error_body(self._as_call_error(error))
        if self.logged and self.contract is not Contract.IDEMPOTENT:
            body["retryable"] = False  # what was read already, and a second run, are not one stream
        head = self._head("error", self.logged)
        try:
            return messages.encode_end(head, jsons.encode(body, "error"))
        except (TypeError, ValueError) as bad:
            body["details"] = f"the details cannot be sent: {bad}"
            for member in ("reason", "message", "details"):
                body[member] = str(body[member]).encode("utf-8", "replace").decode()
            body.pop("retry_after", None)
            return messages.encode_end(head, jsons.encode(body, "error"))

    def _head(self, type: Literal["response", "error"], items: int) -> Envelope:
        return Envelope(type, items=items, contract=self.contract.value)

    def _as_call_error(self, error: BaseException) -> CallError:
        if isinstance(error, CallError):
            return error
        again = self.contract is not Contract.NONE  # whether it may be run a second time is not ours to guess
        if isinstance(error, JournalError):
            return Unavailable("journal", str(error), retryable=again)
        if isinstance(error, UsageError):
            return CallError("bad_result", str(error), code=Code.ERROR_INTERNAL)
        reference = os.urandom(4).hex()
        log.error("%s failed (reference %s, id %s)", self.method_name, reference, self.id, exc_info=error)
        where = f"its log has the reference {reference}"
        if isinstance(error, HermesError):
            return Unavailable("downstream", f"an agent that {self.method_name} needs failed; {where}", retryable=again)
        return CallError("internal", f"the method failed; {where}", code=7)

    def stop(self, why: CallError) -> None:
        """Cancel it for good: `why` becomes its outcome."""
        if self._ending or self.stopped is not None:
            return
        self.stopped = why
        if self._began:
            assert self.task is not None
            self.task.cancel()
        elif self.task is None:
            self.task = self.inbox.spawn(self._finish(None, why))

    async def dropped(self) -> None:
        """It was not taken after all: end the run, whatever comes of it is nobody's."""
        assert self.task is not None
        if not self._ending and not self.task.cancelling():
            self.task.cancel()
        await asyncio.wait([self.task])

    def cancel(self) -> None:
        self.stop(Cancelled("cancelled", "the submitter cancelled it"))
