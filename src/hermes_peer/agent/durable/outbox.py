"""The submitting side of durable work: on disk before `submit` returns, sent until it is answered.

Knows: the journal's half for sent work, lanes, retries by class, dead letters. Refuses to know: sockets, handlers.
Called by: agent (submit, ticket), the hermes.* methods, life.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_peer.agent.calling import Outgoing
from hermes_peer.agent.context import current_trace, new_span, new_trace
from hermes_peer.agent.durable.retry import TRIES, digest, new_work_id, pause, read_end
from hermes_peer.agent.reach import reach
from hermes_peer.errors import (
    CallError,
    Code,
    DeadlineExceeded,
    HermesError,
    LinkError,
    SessionLost,
    UsageError,
    call_error,
    error_body,
)
from hermes_peer.journal import operations as op
from hermes_peer.journal.values import Kind as Became
from hermes_peer.journal.values import Sent, SentState, Verdict
from hermes_peer.runtime.contact import Contact
from hermes_peer.wire import jsons
from hermes_peer.wire.messages import Envelope, Kind

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life
    from hermes_peer.journal.base import Journal

log = logging.getLogger("hermes_peer.work")
TTL_DEFAULT = 3600.0
TTL_MAX = 30 * 86_400.0
REACH_S = 10.0  # one attempt to find a line
MARK_S = 0.05  # an answer that comes within it makes a note of the acceptance needless
LATE_S = 10.0  # how long after its ttl an accepted work may still bring its answer
RETENTION_S = 86_400.0
FOR_EVER = float("inf")


class Entry:
    """One submitted work that has no outcome yet, in memory. `done` is resolved with the stored row."""

    def __init__(self, row: Sent, envelope: Envelope, expires: float, loop: asyncio.AbstractEventLoop) -> None:
        self.row = row
        self.id = row.message_id
        self.envelope = envelope
        self.expires = expires
        self.next_try = 0.0
        self.call: Outgoing | None = None
        self.answered = False  # its outcome is on the way to the disk
        self.accepted: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[Sent] = loop.create_future()
        if row.state is SentState.ACCEPTED:
            self.accepted.set_result(None)


class Delivery(Outgoing):
    """The stream on which one work travels: OPEN, then ACCEPTED, then END. Its end never ends the work itself."""

    __slots__ = ("on_accepted",)
    on_accepted: Callable[[], None]

    def message(self, body: bytes, fin: bool, cost: int) -> None:
        if body[0] == Kind.ACCEPTED:
            self.session.consumed(self.stream, cost)
            self.on_accepted()
        elif body[0] == Kind.END:
            self.session.consumed(self.stream, cost)
            self.settle(body, None)  # kept as it is: the bytes are the outcome
        else:
            super().message(body, fin, cost)


class Outbox:
    """One lane per target: works leave in the order in which they were submitted."""

    def __init__(self, life: Life, journal: Journal, fail: Callable[[str], None]) -> None:
        self.journal = journal
        self.loop = life.loop
        self.entries: dict[str, Entry] = {}
        self.fail = fail
        self.watchers: list[Callable[[Sent], Any]] = []  # hear of dead letters
        self._life = life
        self._lanes: dict[str, dict[str, Entry]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._unsettled: dict[bytes, list[str]] = {}

    # ------------------------------------------------------------------ submitting
    async def submit(
        self,
        target: str,
        method: str,
        payload: Any,
        *,
        ttl: float | None = None,
        message_id: str = "",
        trace_id: str = "",
        idempotency_key: str = "",
        type: str = "request",
    ) -> Sent:
        """Keep it, on disk; delivery goes on by itself. Raises UsageError (conflict), JournalError."""
        ttl = TTL_DEFAULT if ttl is None else min(ttl, TTL_MAX)
        if not ttl > 0:
            raise DeadlineExceeded("ttl", "no time is left for this work", origin="local")
        data = jsons.encode(payload) if payload is not None else b"{}"
        now_ms = _now_ms()
        envelope = Envelope(
            type,  # type: ignore[arg-type]
            method,
            message_id or new_work_id(now_ms),
            ttl,
            trace_id or current_trace() or new_trace(),
            new_span(),
            now_ms,
            own_id=bool(message_id),
            delivery="durable",
            idempotency_key=idempotency_key,
        )
        # Whoever would get it now is written down with it: that saves a commit before it is sent.
        contact = self._life.directory.route(target, self.loop.time())
        row = Sent(
            message_id=envelope.message_id,
            peer=contact.peer.fingerprint if contact is not None else b"",
            target=target,
            method=method,
            envelope=msgspec.json.encode(envelope),
            payload=data,
            digest=digest(method, data),
            created_ms=now_ms,
            expires_ms=now_ms + int(ttl * 1000),
            next_try_ms=now_ms,
            attempts=1 if contact is not None else 0,
        )
        self.fail("before-submit")
        (verdict,) = await self.journal.commit(op.Submit(row))
        self.fail("after-submit")
        assert isinstance(verdict, Verdict)
        if verdict.kind is Became.CONFLICT:
            raise UsageError(f"the id {row.message_id} was used for other work: take another, or none")
        if verdict.kind is Became.REFUSED:
            raise CallError("outbox_full", verdict.why, code=Code.ERROR_RESOURCE_EXHAUSTED, retryable=True)
        there = verdict.row
        assert isinstance(there, Sent)
        if verdict.kind is Became.NEW:
            self._enter(there, envelope, self.loop.time() + ttl)
        return there

    async def recover(self) -> int:
        """Go on with what an earlier process left. Returns how many works that is."""
        after, count = 0, 0
        while rows := await self.journal.find_sent((SentState.WAITING, SentState.ACCEPTED), after=after, limit=500):
            for row in rows:
                after = max(after, row.seq)
                if row.message_id in self.entries:
                    continue
                count += 1
                envelope = msgspec.json.decode(row.envelope, type=Envelope)
                left = min((row.expires_ms - _now_ms()) / 1000, TTL_MAX)
                self._enter(row, envelope, self.loop.time() + left)
        after = 0
        while rows := await self.journal.find_sent((SentState.DONE,), after=after, limit=500):
            for row in rows:
                after = max(after, row.seq)
                self._to_settle(row)
        return count

    def _enter(self, row: Sent, envelope: Envelope, expires: float) -> Entry:
        entry = Entry(row, envelope, expires, self.loop)
        entry.next_try = self.loop.time()
        self.entries[row.message_id] = entry
        lane = self._lanes.setdefault(row.target, {})
        lane[row.message_id] = entry
        if row.target not in self._wakes:
            self._wakes[row.target] = asyncio.Event()
            self._life.spawn(self._lane(row.target))
        self._wakes[row.target].set()
        return entry

    # ------------------------------------------------------------------ a lane
    async def _lane(self, target: str) -> None:
        """Deliver what is due, in order; sleep until something is; end when the lane is empty."""
        lane, wake = self._lanes[target], self._wakes[target]
        unreachable = 0
        while lane:
            wake.clear()
            now = self.loop.time()
            for entry in list(lane.values()):
                if now >= entry.expires + (LATE_S if entry.accepted.done() else 0.0):
                    await self._expire(entry)
            due = [e for e in lane.values() if e.call is None and e.next_try <= now]
            soonest = min((self._looks_at(e) for e in lane.values()), default=FOR_EVER)
            if due:
                try:
                    await self._send_all(target, due)
                    unreachable = 0
                except (HermesError, OSError) as error:
                    unreachable += 1
                    soonest = min(soonest, self.loop.time() + pause(unreachable))
                    log.info("%d works for %s wait: %s", len(due), target, error)
                    for entry in due:
                        if entry.call is None:
                            entry.next_try = max(entry.next_try, soonest)
                    soonest = min((self._looks_at(e) for e in lane.values()), default=FOR_EVER)
                else:
                    continue
            try:
                async with asyncio.timeout(min(3600.0, max(0.0, soonest - self.loop.time()) + 0.001)):
                    await wake.wait()
            except TimeoutError:
                pass
        self._lanes.pop(target, None)
        self._wakes.pop(target, None)

    @staticmethod
    def _looks_at(entry: Entry) -> float:
        expires = entry.expires + (LATE_S if entry.accepted.done() else 0.0)
        return expires if entry.call is not None else min(expires, entry.next_try)

    async def _send_all(self, target: str, due: list[Entry]) -> None:
        """Write down to whom each goes and which attempt it is, all in one commit; then send, in order."""
        routes: dict[bytes, Contact] = {}
        changes: list[op.Operation] = []
        whom: list[Contact] = []
        for entry in due:
            stays = entry.row.peer if entry.accepted.done() or entry.row.attempts > 0 else b""
            contact = routes.get(stays)
            if contact is None:
                contact = routes[stays] = await self._contact(target, entry, stays)
            whom.append(contact)
            peer, attempt = contact.peer.fingerprint, entry.envelope.attempt
            if entry.row.peer != peer:
                changes.append(op.Move(entry.id, peer))
            if attempt > entry.row.attempts:
                changes.append(op.Attempt(entry.id, _now_ms()))
            entry.row = msgspec.structs.replace(entry.row, peer=peer, attempts=max(attempt, entry.row.attempts))
        if changes:
            await self.journal.commit(*changes)
        for entry, contact in zip(due, whom, strict=True):
            if entry.call is None and not entry.done.done():
                self.fail("before-send")
                self._send(entry, contact)
                self.fail("after-send")

    async def _contact(self, target: str, entry: Entry, stays: bytes) -> Contact:
        """The agent first sent to, for as long as it may have the work; else whoever has the name now."""
        life = self._life
        until = min(entry.expires, self.loop.time() + REACH_S)
        if not stays:
            return life.directory.route(target, self.loop.time()) or await reach(life, target, until)
        contact = life.directory.find_key(stays, target)
        if contact.session is None or contact.pump is None:
            async with asyncio.timeout(max(0.0, until - self.loop.time())):
                await contact.ready(linked=True)
        return contact

    def _send(self, entry: Entry, contact: Contact) -> None:
        session = contact.session
        if session is None:
            raise LinkError("the line was lost", reason="lost")
        left = max(0.001, entry.expires - self.loop.time())
        envelope = msgspec.structs.replace(entry.envelope, ttl=left, span_id=new_span())
        call = Delivery(contact, session, envelope, self._life.server.deadlines)
        call.on_accepted = lambda: self._accepted(entry)
        entry.call = call
        call.begin(entry.row.payload)
        call.deadlines.discard(call)  # the lane watches its time; a stream that ends early ends nothing
        call.future.add_done_callback(lambda future: self._ended(entry, future))

    def _accepted(self, entry: Entry) -> None:
        if not entry.accepted.done():
            entry.accepted.set_result(None)
            self.loop.call_later(MARK_S, self._mark_accepted, entry)

    def _mark_accepted(self, entry: Entry) -> None:
        if not entry.done.done() and not entry.answered and self._life.running:
            self._life.spawn(self._mark(op.MarkAccepted(entry.id, entry.row.expires_ms)))

    async def _mark(self, operation: op.Operation) -> None:
        try:
            await self.journal.commit(operation)
        except (UsageError, HermesError) as error:
            log.info("%s", error)

    def _ended(self, entry: Entry, future: asyncio.Future[Any]) -> None:
        entry.call = None
        if future.cancelled() or entry.done.done() or not self._life.running:
            return
        error = future.exception()
        if error is None:
            self._life.spawn(self._answered(entry, future.result()))
            return
        # The stream broke, not the work: ask again under the same id.
        entry.next_try = self.loop.time() + (0.05 if isinstance(error, SessionLost) else pause(1))
        self._wake(entry)

    async def _answered(self, entry: Entry, answer: bytes) -> None:
        error = read_end(answer, entry.envelope.trace_id).error
        if error is None:
            entry.answered = True
            self.fail("before-outcome")
            await self._finish(entry, op.MarkDone(entry.id, answer, _now_ms() + int(RETENTION_S * 1000)))
            self.fail("after-outcome")
            return
        attempts = entry.envelope.attempt
        if not error.retryable or attempts >= TRIES:
            await self._bury(entry, error)
            return
        wait = 0.0 if error.reason == "draining" else pause(attempts, error.retry_after)
        if error.reason not in ("draining", "journal", "full"):
            entry.envelope = msgspec.structs.replace(entry.envelope, attempt=attempts + 1)
        else:
            wait = max(wait, 0.2)
        entry.next_try = self.loop.time() + wait
        await self._mark(op.Postpone(entry.id, _now_ms() + int(wait * 1000)))
        self._wake(entry)

    async def _expire(self, entry: Entry) -> None:
        if entry.call is not None:
            entry.call.give_up(CallError("expired"))
        ran = "; whether it ran is not known" if entry.accepted.done() else "; it did not run"
        await self._bury(entry, DeadlineExceeded("expired", "the ttl was spent" + ran, origin="local"))

    async def _bury(self, entry: Entry, error: CallError) -> None:
        """A dead letter: kept until an operator replays or discards it."""
        why = jsons.encode(error_body(error)).decode()
        log.warning("%s for %s is dead: %s (trace %s)", entry.id, entry.row.target, error, entry.envelope.trace_id)
        await self._finish(entry, op.MarkDead(entry.id, why))

    async def drop(self, entry: Entry, error: CallError) -> None:
        """End a work that never left."""
        await self._bury(entry, error)

    async def _finish(self, entry: Entry, operation: op.MarkDone | op.MarkDead) -> None:
        await self.journal.commit(operation)
        if isinstance(operation, op.MarkDone):
            row = msgspec.structs.replace(entry.row, state=SentState.DONE, outcome=operation.outcome)
        else:
            row = msgspec.structs.replace(entry.row, state=SentState.DEAD, why=operation.why)
        self.entries.pop(entry.id, None)
        self._lanes.get(entry.row.target, {}).pop(entry.id, None)
        self._wake(entry)
        if not entry.accepted.done():
            entry.accepted.set_result(None)
        if not entry.done.done():
            entry.done.set_result(row)
        if row.state is SentState.DEAD:
            for watcher in self.watchers:
                watcher(row)
        else:
            self._to_settle(row)

    def _wake(self, entry: Entry) -> None:
        wake = self._wakes.get(entry.row.target)
        if wake is not None:
            wake.set()

    # ------------------------------------------------------------------ settling
    def consumed_all(self, message_id: str) -> None:
        """Whoever read the items of a finished work is done with them."""

        async def settle() -> None:
            entry = self.entries.get(message_id)
            row = await asyncio.shield(entry.done) if entry is not None else await self.journal.sent(message_id)
            if row is not None and row.state is SentState.DONE:
                self._to_settle(msgspec.structs.replace(row, offset=items_of(row) or 0))

        self._life.spawn(settle())

    def _to_settle(self, row: Sent) -> None:
        """The receiver may forget it, its items too, unless somebody may still read them. Told in batches."""
        if not row.peer or row.offset < (items_of(row) or 0):
            return
        batch = self._unsettled.setdefault(row.peer, [])
        batch.append(row.message_id)
        if len(batch) == 1:
            self.loop.call_later(0.05, lambda: self._life.spawn(self._settle(row.peer)))

    async def _settle(self, peer: bytes) -> None:
        ids = self._unsettled.pop(peer, [])
        contact = self._life.endpoint.contacts.get(peer)
        if not ids or contact is None or contact.session is None:
            return  # it keeps them for its retention, or until we meet again
        for start in range(0, len(ids), 500):
            try:
                part = ids[start : start + 500]
                await self._life.agent.call_contact(contact, "hermes.settle", {"ids": part}, ttl=30, reserved=True)
            except HermesError as error:
                log.info("settling with %s failed: %s", contact.name, error)

    # ------------------------------------------------------------------ tickets and dead letters
    async def row(self, message_id: str) -> Sent | None:
        return await self.journal.sent(message_id)

    async def dead(self) -> list[Sent]:
        """All dead letters, oldest first."""
        return await self.journal.find_sent((SentState.DEAD,), limit=10_000)

    async def replay(self, message_id: str, by: str) -> Sent:
        """Send a dead letter once more: the same id, a fresh ttl, no attempts. Raises UsageError."""
        row = await self.journal.sent(message_id)
        if row is None or row.state is not SentState.DEAD:
            raise UsageError(f"there is no dead letter {message_id}: `hermes-peer dead list` shows them")
        envelope = msgspec.json.decode(row.envelope, type=Envelope)
        ttl = max(60.0, (row.expires_ms - row.created_ms) / 1000)
        now = _now_ms()
        await self.journal.commit(op.Requeue(message_id, now, by, now + int(ttl * 1000)))
        row = await self.journal.sent(message_id)
        assert row is not None
        # A round above all earlier ones tells the receiver that an operator wants another run of what had failed.
        self._enter(row, msgspec.structs.replace(envelope, ttl=ttl, attempt=1, round=now), self.loop.time() + ttl)
        return row

    async def discard(self, message_id: str) -> None:
        """Forget a dead letter. Raises UsageError."""
        row = await self.journal.sent(message_id)
        if row is None or row.state is not SentState.DEAD:
            raise UsageError(f"there is no dead letter {message_id}: `hermes-peer dead list` shows them")
        await self.journal.commit(op.Discard(message_id))

    async def sweep(self) -> None:
        await self.journal.commit(op.Expire(_now_ms()))


def items_of(row: Sent) -> int | None:
    """How many stream items a finished work has; None while it is open."""
    return read_end(row.outcome).items if row.outcome is not None else None


def outcome_of(row: Sent) -> Any:
    """The result that a finished row holds. Raises the CallError that ended it."""
    if row.state is SentState.DEAD:
        try:
            body = jsons.decode(row.why.encode())
        except ValueError:
            body = {"reason": "dead", "message": row.why}
        raise call_error(body if isinstance(body, dict) else {})
    assert row.outcome is not None
    end = read_end(row.outcome)
    if end.error is not None:
        raise end.error
    return end.value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
