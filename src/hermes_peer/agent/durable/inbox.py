"""The called side of durable work: taken once, run as its contract says, answered however often it is asked.

Knows: the journal's half for taken work, which works are in hand. Refuses to know: sockets, policy (it was asked
before). Called by: serving (an OPEN that says durable), the hermes.* methods, life.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_peer.agent.durable.retry import digest, item_value, read_end, supersedes
from hermes_peer.agent.durable.work import Work
from hermes_peer.agent.methods import Method
from hermes_peer.agent.values import Final
from hermes_peer.errors import CallError, Code, DeadlineExceeded, JournalError, OutcomeUnknown, Unavailable, error_body
from hermes_peer.journal.operations import Expire, Finish, Run, Settle, Take
from hermes_peer.journal.values import Contract, Kind, Taken, TakenState, Verdict
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.life import Life
    from hermes_peer.journal.base import Journal

log = logging.getLogger("hermes_peer.work")
AT_ONCE = 64  # handlers of durable work that run at the same time; the others wait, accepted
RETENTION_S = 86_400.0
PIECE = 500  # items read from the log at a time

_envelope = msgspec.json.Decoder(Envelope).decode


class Reader:
    """Who waits for the end of a work: `accepted()` once it is on disk, then `ended(END message)`."""

    def accepted(self) -> None: ...
    def ended(self, outcome: bytes) -> None: ...


class Inbox:
    """One agent's taken work. `fail` is a hook of the crash tests: it is told the name of each failpoint."""

    def __init__(self, life: Life, journal: Journal, fail: Callable[[str], None]) -> None:
        self.agent: HermesAgent = life.agent
        self.loop = life.loop
        self.journal = journal
        self.fail = fail
        self.works: dict[tuple[bytes, str], Work] = {}
        self._life = life
        self._taking: dict[tuple[bytes, str], asyncio.Future[None]] = {}
        self._waiting: deque[Work] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # ------------------------------------------------------------------ taking
    def take(self, principal: bytes, envelope: Envelope, method: Method, payload: bytes, reader: Reader) -> None:
        """Take a submission, or attach `reader` to the work that has its id. Never raises: the reader hears it."""
        self.spawn(self._take(principal, envelope, method, payload, reader))

    async def _take(self, principal: bytes, envelope: Envelope, method: Method, payload: bytes, reader: Reader) -> None:
        key = (principal, envelope.message_id)
        while (earlier := self._taking.get(key)) is not None:
            await asyncio.shield(earlier)
        self._taking[key] = self.loop.create_future()
        try:
            await self._take_alone(principal, envelope, method, payload, reader)
        except JournalError as error:
            reader.ended(error_answer(Unavailable("journal", str(error), retryable=True, retry_after=5)))
        except Exception:
            log.exception("taking %s failed", envelope.message_id)
            reader.ended(error_answer(CallError("internal", "the work could not be taken", code=7, retryable=True)))
        finally:
            self._taking.pop(key).set_result(None)

    async def _take_alone(
        self, principal: bytes, envelope: Envelope, method: Method, payload: bytes, reader: Reader
    ) -> None:
        now_ms, ttl = _now_ms(), envelope.ttl or 0.0
        mark = digest(method.name, payload)
        row = Taken(
            principal=principal,
            message_id=envelope.message_id,
            method=method.name,
            contract=Contract(method.contract),
            envelope=msgspec.json.encode(envelope),
            payload=payload,
            digest=mark,
            taken_ms=now_ms,
            expires_ms=now_ms + int(ttl * 1000),
            idempotency_key=envelope.idempotency_key,
        )
        run = self._running < AT_ONCE
        self.fail("before-accept")
        operations = (Take(row), Run(principal, row.message_id)) if run else (Take(row),)
        verdict = (await self.journal.commit(*operations))[0]
        self.fail("after-accept")
        assert isinstance(verdict, Verdict)
        if verdict.kind is Kind.NEW:
            assert isinstance(verdict.row, Taken)
            self._begin(msgspec.structs.replace(row, attempts=int(run)), envelope, method, run, ttl, reader)
            return
        if verdict.kind is Kind.REFUSED:
            reader.ended(error_answer(Unavailable("full", verdict.why, retryable=True, retry_after=5)))
            return
        there = verdict.row
        assert isinstance(there, Taken)
        if verdict.kind is Kind.CONFLICT:
            reader.ended(
                error_answer(
                    CallError(
                        "conflict",
                        f"the id {envelope.message_id} was used for other work; take a new id",
                        code=Code.ERROR_INVALID_REQUEST,
                    )
                )
            )
            return
        if there.state is TakenState.DONE and there.outcome is not None and _again(envelope, there):
            await self.journal.commit(Settle(principal, (there.message_id,)))
            self.works.pop((principal, there.message_id), None)
            await self._take_alone(principal, envelope, method, payload, reader)
            return
        self._attach(there, reader)

    def _begin(
        self, row: Taken, envelope: Envelope, method: Method, run: bool, ttl: float, reader: Reader | None
    ) -> None:
        work = Work(self, row, envelope, self.time() + ttl)
        self.works[row.principal, row.message_id] = work
        if reader is not None:
            work.ended.append(reader.ended)
            reader.accepted()
        if run:
            self._running += 1
            work.start(method)
        else:
            self._waiting.append(work)
        self.loop.call_later(min(ttl, 3600.0 * 24), self._expire_waiting, work)

    def _attach(self, row: Taken, reader: Reader) -> None:
        reader.accepted()
        work = self.works.get((row.principal, row.message_id))
        if work is not None and work.outcome is None:
            work.ended.append(reader.ended)
            return
        outcome = work.outcome if work is not None else row.outcome
        if outcome is None:  # the journal knows it, we do not run it: it was set aside while we looked
            outcome = error_answer(OutcomeUnknown("outcome_unknown", "nobody can say how this work ended"))
        reader.ended(outcome)

    # ------------------------------------------------------------------ ends
    def finished(self, work: Work) -> None:
        """A work has its outcome on disk: the next one that waits may begin."""
        self.works.pop((work.principal, work.id), None)
        if work.task is not None and work not in self._waiting:
            self._running = max(0, self._running - 1)
        while self._waiting and self._running < AT_ONCE:
            following = self._waiting.popleft()
            if following.outcome is None and following.stopped is None:
                self._running += 1
                self.spawn(self._start_late(following))

    async def _start_late(self, work: Work) -> None:
        method = self.agent.methods.get(work.method_name)
        if method is None:
            work.stop(CallError("unknown_method", f"{work.method_name} is gone", code=Code.ERROR_TOOL_NOT_FOUND))
            return
        await self.journal.commit(Run(work.principal, work.id))
        work.attempts += 1
        work.start(method)

    def _expire_waiting(self, work: Work) -> None:
        if work.task is None and work.outcome is None:
            work.stop(DeadlineExceeded("expired", "the ttl was spent before the work could begin: it did not run"))

    async def settle(self, principal: bytes, ids: list[str]) -> int:
        """The submitter has these outcomes: forget them (only its own). Returns how many went."""
        (gone,) = await self.journal.commit(Settle(principal, tuple(ids)))
        return int(gone) if isinstance(gone, int) else 0

    def cancel(self, principal: bytes, id: str) -> bool:
        """The submitter gives it up. False if there is nothing to give up."""
        work = self.works.get((principal, id))
        if work is None:
            return False
        work.cancel()
        return True

    async def resume(self, principal: bytes, id: str, offset: int) -> AsyncIterator[Any]:
        """The items from `offset` on, the later ones as they come, then Final(result).

        Raises CallError: "unknown" (no such work of this submitter), "gap" (details: first), or the work's own error.
        """
        at = offset
        while True:
            work = self.works.get((principal, id))
            changed = work.changed if work is not None else None
            if work is not None and work.tail and work.tail[0][0] <= at < work.logged:
                for index, data in list(work.tail):
                    if index == at:
                        at += 1
                        yield item_value(data)
                continue
            piece = await self.journal.items(principal, id, at, PIECE)
            if piece is None:
                raise CallError("unknown", f"no work {id} of yours is kept here", code=2, details={"offset": at})
            if (piece.items and piece.first > at) or at > piece.next_item:
                raise CallError(
                    "gap",
                    f"items {at} to {piece.first - 1} are no longer kept",
                    code=2,
                    details={"first": piece.first, "next": piece.next_item},
                )
            for data in piece.items:
                at += 1
                yield item_value(data)
            if piece.items:
                continue
            if work is None or work.outcome is not None:
                row = await self.journal.taken(principal, id)
                if row is None or (row.state is TakenState.DONE and row.next_item <= at):
                    break
                if work is None and row.state is not TakenState.DONE:
                    raise Unavailable("restarting", "the work waits for its agent", retryable=True, retry_after=1)
                continue
            assert changed is not None
            if work.logged <= at:
                await changed.wait()
        row = await self.journal.taken(principal, id)
        end = read_end(row.outcome) if row is not None and row.outcome else None
        if end is None:
            raise CallError("unknown", f"no outcome of {id} is kept here", code=2)
        if end.error is not None:
            raise end.error
        yield Final(end.value)

    # ------------------------------------------------------------------ after a restart
    async def recover(self) -> int:
        """Go on with what was in hand when the process died, as each contract says. Returns how many works that is."""
        after, count = 0, 0
        while True:
            rows = await self.journal.find_taken((TakenState.ACCEPTED, TakenState.RUNNING), after=after, limit=500)
            if not rows:
                return count
            for row in rows:
                after = max(after, row.seq)
                count += 1
                await self._recover(row)

    async def _recover(self, row: Taken) -> None:
        envelope = _envelope(row.envelope)
        ttl = min((row.expires_ms - _now_ms()) / 1000, envelope.ttl or 0.0)
        method = self.agent.methods.get(row.method)
        error: CallError | None = None
        if row.state is TakenState.RUNNING and row.contract is Contract.NONE:
            error = OutcomeUnknown(
                "outcome_unknown",
                f"{row.method} was running when its process ended; it has no contract, so it is not run again",
            )
        elif ttl <= 0:
            ran = row.state is TakenState.RUNNING
            error = DeadlineExceeded("expired", "the ttl was spent" + ("" if ran else " before the work began"))
        elif method is None:
            error = CallError("unknown_method", f"{row.method} is gone", code=Code.ERROR_TOOL_NOT_FOUND)
        if error is not None:
            keep = _now_ms() + int(RETENTION_S * 1000)
            await self.journal.commit(Finish(row.principal, row.message_id, error_answer(error), keep))
            return
        assert method is not None
        run = self._running < AT_ONCE
        if run:
            await self.journal.commit(Run(row.principal, row.message_id))
        row = msgspec.structs.replace(row, attempts=row.attempts + int(run))
        self._begin(row, envelope, method, run, ttl, None)

    async def sweep(self) -> None:
        """Forget what was kept long enough."""
        await self.journal.commit(Expire(_now_ms()))

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    async def close(self) -> None:
        """End the handlers without an outcome."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------ for works
    def time(self) -> float:
        return self.loop.time()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of taken work: it gets the grace of a handler when the agent ends."""
        task: asyncio.Task[Any] = self._life.server.context.copy().run(self.loop.create_task, coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def keep_until(self, deadline: float) -> int:
        """Unix ms until which an outcome is kept: a day, and never less than the ttl."""
        return _now_ms() + int(max(RETENTION_S, deadline - self.time()) * 1000)

    def name_of(self, principal: bytes) -> str:
        return self._life.endpoint.contact(principal).name

    def call_sync(self, target: str, method: str, payload: Any, **options: Any) -> Any:
        call = self.agent.call(target, method, payload, **options)
        return asyncio.run_coroutine_threadsafe(call, self.loop).result()


def _again(envelope: Envelope, there: Taken) -> bool:
    """A new round of an operator runs whatever failed; a new attempt only what said that it may be tried again."""
    old = _envelope(there.envelope)
    assert there.outcome is not None
    error = read_end(there.outcome).error
    if error is None or not supersedes(envelope, old):
        return False
    return envelope.round > old.round or error.retryable


def error_answer(error: CallError) -> bytes:
    """The END message of an error."""
    return messages.ERROR_HEAD + jsons.encode(error_body(error), "error")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
