"""The called side of durable work: taken once, run as its contract says, answered however often it is asked.

Knows: the journal's half for taken work, which works are in hand. Refuses to know: sockets, policy (it was asked
before). Called by: serving (an OPEN that says durable), the hermes.* methods, life.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_peer.agent.durable.acceptance import running
from hermes_peer.agent.durable.clock import Clock
from hermes_peer.agent.durable.early import RETRY_AFTER_S, Early
from hermes_peer.agent.durable.reading import read
from hermes_peer.agent.durable.retry import digest, error_answer, read_end, supersedes
from hermes_peer.agent.durable.rows import now_ms
from hermes_peer.agent.durable.work import Work
from hermes_peer.agent.methods import Method
from hermes_peer.errors import (
    CallError,
    Code,
    DeadlineExceeded,
    JournalError,
    OutcomeUnknown,
    PermissionDenied,
    Unavailable,
    UsageError,
)
from hermes_peer.journal.operations import Expire, Operation, Run, Settle, Take
from hermes_peer.journal.values import Contract, Kind, Limits, Taken, TakenState, Verdict
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.life import Life
    from hermes_peer.journal.base import Journal

log = logging.getLogger("hermes_peer.work")
AT_ONCE = 64  # handlers of durable work that run at the same time; the others wait, accepted
RETENTION_S = 86_400.0
FAR_S = 86_400.0  # no timer is set for longer
CLOSE_S = 0.25  # what a cancelled handler has for its `finally`
AGAIN_S = 1.0
OTHER_IDS = 10_000
LARGEST = Limits().body

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
        self.closing = False
        self.clock = Clock(life.loop.time)
        self._life = life
        self._early = Early(self)
        self._taking: dict[tuple[bytes, str], asyncio.Future[None]] = {}
        self._other_ids: dict[tuple[bytes, str], str] = {}  # a second id of work that has an idempotency key
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
            raise_to(reader, Unavailable("journal", str(error), retryable=True, retry_after=RETRY_AFTER_S))
        except Exception:
            log.exception("taking %s failed", envelope.message_id)
            text = "the work could not be taken"
            raise_to(reader, Unavailable("internal", text, retryable=True, retry_after=RETRY_AFTER_S))
        finally:
            self._taking.pop(key).set_result(None)

    async def _take_alone(
        self, principal: bytes, envelope: Envelope, method: Method, payload: bytes, reader: Reader
    ) -> None:
        ttl = envelope.ttl or 0.0
        deadline = self.time() + ttl
        now = now_ms()
        row = Taken(
            principal=principal,
            message_id=envelope.message_id,
            method=method.name,
            contract=Contract(method.contract),
            envelope=msgspec.json.encode(envelope),
            payload=payload,
            digest=digest(method.name, payload),
            taken_ms=now,
            expires_ms=now + int(ttl * 1000),
            idempotency_key=envelope.idempotency_key,
        )
        if len(row.envelope) + len(payload) > LARGEST:
            text = f"durable work takes at most {LARGEST} bytes"
            raise_to(reader, CallError("too_large", text, code=Code.ERROR_RESOURCE_EXHAUSTED))
            return
        late = method.min_ttl is not None and ttl < method.min_ttl
        if late and await self.journal.taken(principal, row.message_id) is None:
            raise_to(reader, _too_late(method, ttl))
            return
        run = self._reserve()
        early = run and self._early.may(principal, method, envelope)
        try:
            self.fail("before-accept")
            if early:
                verdict = await self._early.take(running(row), envelope, method, deadline, reader)
            else:
                verdict = await self._commit(row, run)
            self.fail("after-accept")
            if verdict.kind is Kind.ATTACH and _again(envelope, there := _taken(verdict)):
                # What failed makes room for another run, in the same commit.
                verdict = await self._commit(row, run, Settle(principal, (there.message_id,)))
        except JournalError as error:
            self._give_back(run)
            raise_to(reader, self._early.no_room("journal", str(error), early))
            return
        except BaseException:
            self._give_back(run)
            raise
        if verdict.kind is Kind.NEW:
            if not early:
                self._begin(_taken(verdict), envelope, method, run, deadline, reader)
            return
        self._give_back(run)
        if verdict.kind is Kind.REFUSED:
            raise_to(reader, await self._refusal(row, verdict.why, early))
        elif verdict.kind is Kind.CONFLICT:
            text = f"the id or the key of {envelope.message_id} was used for other work; take a new one"
            raise_to(reader, CallError("conflict", text, code=Code.ERROR_INVALID_REQUEST))
        else:
            self._attach(_taken(verdict), envelope.message_id, reader)

    async def _commit(self, row: Taken, run: bool, *before: Operation) -> Verdict:
        verdict = (await self.journal.commit(*before, Take(running(row) if run else row)))[-1]
        assert isinstance(verdict, Verdict)
        return verdict

    async def _refusal(self, row: Taken, why: str, begun: bool) -> CallError:
        for aside in await self.journal.set_aside():
            if (aside.side, aside.principal, aside.message_id) == ("taken", row.principal, row.message_id):
                return OutcomeUnknown("outcome_unknown", f"the row of this work was damaged and set aside: {aside.why}")
        return self._early.no_room("full", why, begun)

    def _begin(
        self, row: Taken, envelope: Envelope, method: Method, run: bool, deadline: float, reader: Reader | None
    ) -> None:
        work = Work(self, row, envelope, deadline)
        self.taken(work, run, reader)
        if run:
            work.start(method)
        else:
            self._waiting.append(work)
            self._watch(work)

    def taken(self, work: Work, counted: bool, reader: Reader | None) -> None:
        """It is on the disk: from here on it is found. `counted`: it holds a place of running handlers."""
        self.works[work.principal, work.id] = work
        work.counted = counted
        if reader is not None:
            work.ended.append(reader.ended)
            reader.accepted()

    def _attach(self, row: Taken, asked: str, reader: Reader) -> None:
        reader.accepted()
        if asked != row.message_id:
            if len(self._other_ids) >= OTHER_IDS:
                self._other_ids.clear()
            self._other_ids[row.principal, asked] = row.message_id
        work = self.works.get((row.principal, row.message_id))
        if work is not None and work.outcome is None:
            work.ended.append(reader.ended)
            return
        outcome = work.outcome if work is not None else row.outcome
        if outcome is None:  # the journal knows it, we do not run it: its outcome could not be stored
            outcome = error_answer(OutcomeUnknown("outcome_unknown", "nobody can say how this work ended"))
        reader.ended(outcome)

    # ------------------------------------------------------------------ places of running handlers
    def _reserve(self) -> bool:
        """Take a place before the commit, so that a crowd that comes at once does not run at once. An agent that ends
        gives none: what it begins now may not come to its end, and what has not begun is run at the next start."""
        if self._running >= AT_ONCE or self._waiting or not self._life.running:
            return False
        self._running += 1
        return True

    def _give_back(self, held: bool) -> None:
        if held:
            self._running -= 1
        while self._waiting and self._running < AT_ONCE:
            following = self._waiting.popleft()
            if following.stopped is None:
                self._running += 1
                following.counted = True
                self.spawn(self._start_late(following))

    async def _start_late(self, work: Work) -> None:
        """Its turn has come after all; at the next start, if the agent ends."""
        if not self._life.running:
            return
        method = self.agent.methods.get(work.method_name)
        left = work.deadline - self.time()
        if method is None:
            work.stop(_gone(work.method_name))
        elif method.min_ttl is not None and left < method.min_ttl:
            work.stop(_too_late(method, left))
        else:
            try:
                await self.journal.commit(Run(work.principal, work.id))
            except (JournalError, UsageError) as error:
                if isinstance(error, JournalError) and not self.journal.gauges().stopped:
                    self.loop.call_later(AGAIN_S, lambda: self.spawn(self._start_late(work)))
                else:
                    work.unstored(Unavailable("journal", str(error), retryable=True, retry_after=RETRY_AFTER_S))
                return
            if work.stopped is None:
                work.attempts += 1
                work.start(method)

    def _watch(self, work: Work) -> None:
        """Its ttl may be spent before it begins."""
        left = work.deadline - self.time()
        if left <= 0:
            work.stop(DeadlineExceeded("expired", "the ttl was spent before the work could begin: it did not run"))
        else:
            work.timer = self.loop.call_later(min(left, FAR_S), self._watch, work)

    def finished(self, work: Work) -> None:
        """A work has its outcome on disk: the next one that waits may begin."""
        self.works.pop((work.principal, work.id), None)
        counted, work.counted = work.counted, False
        self._give_back(counted)

    # ------------------------------------------------------------------ what the submitter asks
    async def settle(self, principal: bytes, ids: list[str]) -> int:
        """The submitter has these outcomes: forget them (only its own). Returns how many went."""
        for id in ids:
            self._other_ids.pop((principal, id), None)
        (gone,) = await self.journal.commit(Settle(principal, tuple(ids)))
        return int(gone) if isinstance(gone, int) else 0

    async def cancel(self, principal: bytes, id: str) -> bool:
        """The submitter gives it up. False if there is nothing to give up."""
        while (taking := self._taking.get((principal, id))) is not None:
            await asyncio.shield(taking)
        work = self.works.get((principal, self._other_ids.get((principal, id), id)))
        if work is None:
            return False
        work.cancel()
        return True

    def resume(self, principal: bytes, id: str, offset: int) -> AsyncIterator[Any]:
        """See `read`."""
        return read(self, principal, self._other_ids.get((principal, id), id), offset)

    # ------------------------------------------------------------------ life
    def recheck(self) -> None:
        """Policy or trust changed: what is no longer allowed ends now (attack 57)."""
        for work in [*self.works.values(), *self._early.works]:
            if not self.may(work.principal, work.method_name):
                work.stop(PermissionDenied("policy", "a rule that allowed this work was taken back"))

    def may(self, principal: bytes, name: str) -> bool:
        """Whether its submitter may (still) have this method run."""
        method = self.agent.methods.get(name)
        return self._life.directory.allows_key(principal, name, method is not None and method.public)

    def go_on(self, row: Taken, envelope: Envelope, method: Method, run: bool, left: float) -> None:
        """Work of an earlier process; `run`: a place is reserved and RUNNING is on disk."""
        self._begin(row, envelope, method, run, self.time() + left, None)

    reserve = _reserve

    async def sweep(self) -> None:
        """Forget what was kept long enough."""
        over = Expire(self.clock.over())
        while (await self.journal.commit(over))[0]:
            pass

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    async def close(self) -> None:
        """End the handlers without an outcome. One that takes no notice is left behind."""
        self.closing = True
        for work in self.works.values():
            if work.timer is not None:
                work.timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

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
        return self.clock.keep(max(RETENTION_S, deadline - self.time()))

    def name_of(self, principal: bytes) -> str:
        return self._life.directory.name_of(principal)

    def call_sync(self, target: str, method: str, payload: Any, **options: Any) -> Any:
        call = self.agent.call(target, method, payload, **options)
        return asyncio.run_coroutine_threadsafe(call, self.loop).result()


def raise_to(reader: Reader, error: CallError) -> None:
    """Refuse, without having taken anything."""
    reader.ended(error_answer(error))


def _taken(verdict: Verdict) -> Taken:
    assert isinstance(verdict.row, Taken)
    return verdict.row


def _again(envelope: Envelope, there: Taken) -> bool:
    """A new round of an operator runs whatever failed; a new attempt only what said that it may be tried again."""
    if there.state is not TakenState.DONE or there.outcome is None:
        return False
    old = _envelope(there.envelope)
    error = read_end(there.outcome).error
    if error is None or not supersedes(envelope, old):
        return False
    return envelope.round > old.round or error.retryable


def _too_late(method: Method, left: float) -> CallError:
    text = f"{method.name} needs {method.min_ttl:g} s, the work has {max(0.0, left):.3g} s left"
    return DeadlineExceeded("min_ttl", text, timer="min_ttl")


def _gone(name: str) -> CallError:
    return CallError("unknown_method", f"{name} is gone", code=Code.ERROR_TOOL_NOT_FOUND)
