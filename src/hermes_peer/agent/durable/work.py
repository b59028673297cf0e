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
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.context import CURRENT
from hermes_peer.agent.durable.retry import item_bytes
from hermes_peer.agent.methods import Method, Shape
from hermes_peer.agent.values import Final
from hermes_peer.errors import (
    CallError,
    Cancelled,
    Code,
    DeadlineExceeded,
    HermesError,
    JournalError,
    Unavailable,
    UsageError,
    error_body,
)
from hermes_peer.journal.operations import Append, Finish
from hermes_peer.journal.values import Contract, Taken
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.durable.inbox import Inbox
    from hermes_peer.journal.base import Transaction

log = logging.getLogger("hermes_peer.work")
TAIL = 256  # items kept in memory behind the log, for whoever reads along
AHEAD = 512  # items a handler may be ahead of the disk
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
        self.stopped: CallError | None = None
        self.transaction: WorkTransaction | None = None
        self.changed = asyncio.Event()
        self.tail: deque[tuple[int, bytes]] = deque(maxlen=TAIL)
        self._pending: list[bytes] = []
        self._flush: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ running
    def start(self, method: Method) -> None:
        """Run the handler; RUNNING is on disk already."""
        self.task = self.inbox.spawn(self._run(method))

    async def _run(self, method: Method) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            async with asyncio.timeout_at(self.deadline):
                value = await self._handle(method)
                await self._written()
        except asyncio.CancelledError:
            if self.stopped is None:
                if self.transaction is not None:
                    await asyncio.shield(self.transaction.rollback())
                raise  # the agent shuts down: the row stays RUNNING, and its contract decides after the restart
            error = self.stopped
        except TimeoutError as late:
            spent = self.inbox.time() >= self.deadline
            error = DeadlineExceeded("ttl", f"{self.method_name} did not end within its ttl") if spent else late
        except BaseException as raised:
            error = raised
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
                await generator.aclose()
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

    async def emit(self, value: Any) -> None:
        """Log one item. It is shown to readers after its commit; items of one turn of the loop share one."""
        self._pending.append(item_bytes(value))
        if self._flush is None:
            self._flush = self.inbox.spawn(self._write())
        if len(self._pending) >= AHEAD:
            await self._written()
        else:
            await asyncio.sleep(0)

    @property
    def emitted(self) -> int:
        """Items logged and about to be, over all runs."""
        return self.logged + len(self._pending)

    async def _write(self) -> None:
        while self._pending:
            batch, self._pending = tuple(self._pending), []
            first = self.logged
            self.inbox.fail("before-append")
            await self.inbox.journal.commit(Append(self.principal, self.id, first, batch))
            self.inbox.fail("after-append")
            self.logged = first + len(batch)
            self.tail.extend(enumerate(batch, first))
            self._tell()
        self._flush = None

    async def _written(self) -> None:
        if self._flush is not None:
            await asyncio.shield(self._flush)

    # ------------------------------------------------------------------ the end
    async def _finish(self, value: Any, error: BaseException | None) -> None:
        answer = self._answer(value, error)
        keep = self.inbox.keep_until(self.deadline)
        finish = Finish(self.principal, self.id, answer, keep)
        try:
            self.inbox.fail("before-done")
            if self.transaction is not None and error is None:
                await self.transaction.commit(finish)
            else:
                if self.transaction is not None:
                    await self.transaction.rollback()
                await self.inbox.journal.commit(finish)
            self.inbox.fail("after-done")
        except JournalError as bad:
            log.error("the outcome of %s could not be stored: %s", self.id, bad)
            return  # not durable, therefore not sent: after a restart the contract decides
        except UsageError as large:
            finish = Finish(self.principal, self.id, self._answer(None, large), keep)
            await self.inbox.journal.commit(finish)
        self.settle(finish.outcome)

    def settle(self, outcome: bytes) -> None:
        """The outcome is on disk: tell whoever waits."""
        self.outcome = outcome
        waiting, self.ended = self.ended, []
        for tell in waiting:
            tell(outcome)
        self._tell()
        self.inbox.finished(self)

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def _answer(self, value: Any, error: BaseException | None) -> bytes:
        if error is None:
            try:
                return messages.encode_end(Envelope("response", items=self.logged), jsons.encode(value, "result"))
            except (TypeError, ValueError) as bad:
                error = CallError("bad_result", f"the result cannot be sent: {bad}", code=Code.ERROR_INTERNAL)
        body = jsons.encode(error_body(self._as_call_error(error)), "error")
        return messages.encode_end(Envelope("error", items=self.logged), body)

    def _as_call_error(self, error: BaseException) -> CallError:
        if isinstance(error, CallError):
            return error
        if isinstance(error, JournalError):
            return Unavailable("journal", str(error), retryable=True)
        if isinstance(error, UsageError):
            return CallError("bad_result", str(error), code=Code.ERROR_INTERNAL)
        if isinstance(error, HermesError):
            return Unavailable("downstream", f"an agent that {self.method_name} needs failed: {error}", retryable=True)
        reference = os.urandom(4).hex()
        log.error("%s failed (reference %s, id %s)", self.method_name, reference, self.id, exc_info=error)
        return CallError("internal", f"the method failed; its log has the reference {reference}", code=7)

    def stop(self, why: CallError) -> None:
        """Cancel it for good: `why` becomes its outcome."""
        if self.outcome is not None:
            return
        self.stopped = self.stopped or why
        if self.task is not None:
            self.task.cancel()
        else:
            self.task = self.inbox.spawn(self._finish(None, why))

    def cancel(self) -> None:
        self.stop(Cancelled("cancelled", "the submitter cancelled it"))


class WorkTransaction:
    """`async with request.transaction() as db: await db.execute(...)`: the handler's SQL and its outcome, one commit.

    It holds the journal's writer until the handler returns: keep it short, and submit nothing inside. Raises
    JournalError once its time limit (5 s) has passed; then nothing was stored.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._open: Transaction | None = None

    async def __aenter__(self) -> WorkTransaction:
        work = self._work
        if work.contract is not Contract.TRANSACTIONAL:
            raise UsageError('transaction() is for methods with contract="transactional"')
        if work.transaction is not None:
            raise UsageError("one transaction per run: everything in it is stored with the outcome")
        await work._written()
        self._open = await work.inbox.journal.begin()
        work.transaction = self
        return self

    async def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """One statement; the rows that it gives. Raises sqlite3.Error, JournalError."""
        assert self._open is not None
        return await self._open.execute(sql, parameters)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.rollback()
            self._work.transaction = None

    async def commit(self, finish: Finish) -> None:
        assert self._open is not None
        await self._open.commit(finish)

    async def rollback(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            await opened.rollback()
