"""The submitting side of durable work: on disk before `submit` returns, sent until it is answered.

Knows: the journal's half for sent work, which works are open, dead letters. Refuses to know: sockets, handlers, when
what is sent (lanes do). Called by: agent (submit, ticket), the hermes.* methods, life.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_peer.agent.calling import check_call, check_method, encode_payload
from hermes_peer.agent.context import current_trace, new_span, new_trace, parent_of
from hermes_peer.agent.durable.ahead import Ahead
from hermes_peer.agent.durable.entry import Entry
from hermes_peer.agent.durable.lane import Lane
from hermes_peer.agent.durable.letters import Letters
from hermes_peer.agent.durable.retry import LONGEST_S, digest, error_answer, key_id, new_work_id, pause
from hermes_peer.agent.durable.rows import consumed, items_of, now_ms, why_dead
from hermes_peer.agent.durable.settling import Settling
from hermes_peer.errors import CallError, Code, DeadlineExceeded, HermesError, JournalError, OutcomeUnknown, UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal.pending import Pending
from hermes_peer.journal.values import Kind as Became
from hermes_peer.journal.values import Limits, Origin, Sent, SentState, Verdict
from hermes_peer.runtime.contact import Contact
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life
    from hermes_peer.journal.base import Journal

log = logging.getLogger("hermes_peer.work")
TTL_DEFAULT = 3600.0
TTL_MAX = 30 * 86_400.0
RETENTION_S = 86_400.0
PAGE = 500
LARGEST = Limits().body

_envelope = msgspec.json.Decoder(Envelope).decode


class Outbox:
    """One lane per target. `flying` counts the streams of works per receiver."""

    def __init__(self, life: Life, journal: Journal, fail: Callable[[str], None]) -> None:
        self.life = life
        self.journal = journal
        self.loop = life.loop
        self.entries: dict[str, Entry] = {}
        self.flying: Counter[bytes] = Counter()
        self.settling = Settling(life, journal)
        self.ahead = Ahead(self)
        self.fail = fail
        self.letters = Letters(self)
        self._lanes: dict[str, Lane] = {}

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
        """Keep it, on disk; delivery goes on by itself. Raises UsageError (misuse, conflict), JournalError."""
        check_method(method)
        check_call(ttl, trace_id, message_id, idempotency_key)
        self.life.directory.check(target)
        ttl = TTL_DEFAULT if ttl is None else min(ttl, TTL_MAX)
        if ttl <= 0:
            raise DeadlineExceeded("ttl", "no time is left for this work", origin="local")
        data = encode_payload(payload)
        now = now_ms()
        own_id = bool(message_id)
        if not message_id:
            message_id = key_id(target, method, idempotency_key) if idempotency_key else new_work_id(now)
        envelope = Envelope(
            type,  # type: ignore[arg-type]
            method,
            message_id,
            ttl,
            trace_id or current_trace() or new_trace(),
            new_span(),
            now,
            own_id=own_id,
            delivery="durable",
            idempotency_key=idempotency_key,
        )
        envelope.parent_id = parent_of(envelope.trace_id)
        # Whoever would get it now is written down with it: that saves a commit before it is sent.
        contact = self.life.directory.linked(target, self.loop.time())
        row = Sent(
            message_id=message_id,
            peer=contact.peer.fingerprint if contact is not None else b"",
            target=target,
            method=method,
            envelope=msgspec.json.encode(envelope),
            payload=data,
            digest=digest(method, data),
            created_ms=now,
            expires_ms=now + int(ttl * 1000),
            next_try_ms=now,
            attempts=1 if contact is not None else 0,
        )
        if len(row.envelope) + len(data) > LARGEST:
            raise UsageError(f"the payload has {len(data)} bytes; durable work takes at most {LARGEST} in all")
        expires = self.loop.time() + ttl
        self.fail("before-submit")
        pending = self.journal.commit(op.Submit(row))
        sent = self._send_ahead(row, envelope, expires, contact)
        self.ahead.storing.add(pending)
        try:
            return await self._stored(pending, envelope, expires, sent)
        except asyncio.CancelledError:  # it is stored all the same, and must not lie there unsent
            self.ahead.storing.add(pending)
            self.life.spawn(self._stored_late(pending, envelope, expires, sent))
            raise

    def _send_ahead(self, row: Sent, envelope: Envelope, expires: float, contact: Contact | None) -> Entry | None:
        """Send it now if it may be. Nobody finds the entry by its id before it is stored."""
        if contact is None or contact.session is None:
            return None
        if not self.ahead.may(row, envelope, contact.session, self._lanes.get(row.target)):
            return None
        entry = self._enter(row, envelope, expires, stored=False)
        self.flying[contact.peer.fingerprint] += 1
        self._lanes[row.target].send(entry, contact)
        return entry

    async def _stored(self, pending: Pending[Any], envelope: Envelope, expires: float, sent: Entry | None) -> Sent:
        """The commit of a submission; what was not `sent` ahead of it is sent now. Raises what `submit` raises."""
        try:
            (verdict,) = await pending
            self.fail("after-submit")
            assert isinstance(verdict, Verdict)
            if verdict.kind is Became.CONFLICT:
                raise UsageError(f"the id {envelope.message_id} was used for other work: take another, or none")
            if verdict.kind is Became.REFUSED:
                raise CallError("outbox_full", verdict.why, code=Code.ERROR_RESOURCE_EXHAUSTED, retryable=True)
        except Exception as error:
            if sent is not None:
                self._leave(sent)
                if self.ahead.withdraw(sent):
                    told = f"{error} The work {sent.id} had left by then: whether it runs is not known."
                    raise JournalError(told) from error
            raise
        finally:
            self.ahead.storing.discard(pending)
        there = verdict.row
        assert isinstance(there, Sent)
        if sent is None and verdict.kind is Became.NEW:
            self._enter(there, envelope, expires)
        elif sent is not None and not sent.over:
            sent.stored = True
            self.entries[sent.id] = sent
            self.wake_all()
        return there

    async def _stored_late(self, *stored: Any) -> None:
        try:
            await self._stored(*stored)
        except HermesError as error:
            log.info("%s", error)

    def _enter(self, row: Sent, envelope: Envelope, expires: float, wait: float = 0.0, *, stored: bool = True) -> Entry:
        entry = Entry(row, envelope, expires, self.loop)
        entry.next_try = self.loop.time() + wait
        entry.stored = stored
        if stored:
            self.entries[row.message_id] = entry
        lane = self._lanes.get(row.target)
        if lane is None:
            lane = self._lanes[row.target] = Lane(self, row.target)
            self.life.spawn(self._run(lane))
        lane.entries[row.message_id] = entry
        lane.wake.set()
        return entry

    async def _run(self, lane: Lane) -> None:
        try:
            await lane.run()
        finally:
            self._lanes.pop(lane.target, None)

    # ------------------------------------------------------------------ after a restart
    async def recover(self) -> int:
        """Go on with what an earlier process left. Returns how many works that is."""
        after, count = 0, 0
        while rows := await self.journal.find_sent((SentState.WAITING, SentState.ACCEPTED), after=after, limit=PAGE):
            after = rows[-1].seq
            rows = [row for row in rows if row.message_id not in self.entries]
            count += len(rows)
            if self.journal.origin not in (Origin.NEW, Origin.SAME):
                await self._distrust(rows)
                continue
            now = now_ms()
            for row in rows:
                envelope = _envelope(row.envelope)
                envelope.attempt, envelope.round = max(1, row.attempts), row.requeued_ms
                # No clock that was set meanwhile gives it more than it had, or a pause without end.
                whole = row.expires_ms - max(row.created_ms, row.requeued_ms)
                left = min((row.expires_ms - now) / 1000, whole / 1000, TTL_MAX)
                waits = row.state is SentState.WAITING and row.next_try_ms > now
                wait = min((row.next_try_ms - now) / 1000, 1.5 * LONGEST_S) if waits else 0.0
                self._enter(row, envelope, self.loop.time() + left, wait).blind = row.attempts > 0
        self.life.spawn(self._recover_ended())
        return count

    async def _distrust(self, rows: list[Sent]) -> None:
        """This journal is a copy, or an older one: what is open here may have been done since, by whatever went on
        from the true one. A human decides (replay)."""
        error = OutcomeUnknown(
            "outcome_unknown",
            "the journal that held this work was restored from a copy, so whether it ran since is not known; replay "
            "it if it should be sent once more",
        )
        why = why_dead(error, "unknown")
        await asyncio.gather(*(_awaited(self.journal.commit(op.MarkDead(row.message_id, why))) for row in rows))
        for row in rows:
            self.letters.tell(msgspec.structs.replace(row, state=SentState.DEAD, why=why))

    async def _recover_ended(self) -> None:
        """Receivers that were not told yet that they may forget."""
        after = 0
        try:
            while rows := await self.journal.find_sent((SentState.DONE, SentState.DEAD), after=after, limit=PAGE):
                after = rows[-1].seq
                for row in rows:
                    self.settling.add(row, dial=row.state is SentState.DONE)
        except JournalError as error:
            log.info("%s", error)

    # ------------------------------------------------------------------ ends
    async def finish(self, entry: Entry, operation: op.MarkDone | op.MarkDead) -> None:
        """Store how it ended and tell whoever waits. What cannot be stored is asked for again later.

        A result is told while it is on its way to the disk: the receiver keeps it until we have it. A death is told
        once it is stored, as nobody else knows of it.
        """
        entry.busy = True
        stored = self.journal.commit(operation, patient=isinstance(operation, op.MarkDone))
        if isinstance(operation, op.MarkDone):
            entry.tell(msgspec.structs.replace(entry.row, state=SentState.DONE, outcome=operation.outcome))
        try:
            await stored
        except JournalError as error:
            if not self.stopped(error):
                log.warning("the end of %s could not be stored: %s", entry.id, error)
                entry.next_try = self.loop.time() + pause(2)
                entry.expires = max(entry.expires, entry.next_try + LONGEST_S)
                entry.busy = False
                self.wake_all()
            return
        except UsageError as error:
            if isinstance(operation, op.MarkDone):
                large = CallError("outcome_too_large", str(error), code=Code.ERROR_RESOURCE_EXHAUSTED)
                await self.finish(entry, op.MarkDead(entry.id, why_dead(large, "answered")))
            else:
                self.forget(entry, error)
            return
        self._over(entry, operation)

    def _over(self, entry: Entry, operation: op.MarkDone | op.MarkDead) -> None:
        """Its end is on the disk."""
        if isinstance(operation, op.MarkDone):
            row = msgspec.structs.replace(entry.row, state=SentState.DONE, outcome=operation.outcome)
        else:
            row = msgspec.structs.replace(entry.row, state=SentState.DEAD, why=operation.why)
        entry.row = row
        self._leave(entry)
        entry.tell(row)
        if row.state is SentState.DEAD:
            self.letters.tell(row)
        self.settling.add(row)

    def forget(self, entry: Entry, error: UsageError) -> None:
        """Its row is not there any more (damaged and set aside), if it ever was (sent ahead, and not stored)."""
        if entry.over:
            return
        log.error("the work %s is lost: %s", entry.id, error)
        self._leave(entry)
        entry.fail(JournalError(f"the row of {entry.id} is not in the journal any more: {error}"))

    def _leave(self, entry: Entry) -> None:
        entry.over = True
        self.entries.pop(entry.id, None)
        lane = self._lanes.get(entry.row.target)
        if lane is not None:
            lane.entries.pop(entry.id, None)
            lane.wake.set()

    async def drop(self, entry: Entry, error: CallError) -> None:
        """End a work from our side, by the submitter's own wish: no dead letter. Told once it is stored, as nobody
        else knows of it; carried through if whoever asked goes away. Raises JournalError; then it goes on."""
        if entry.call is not None:
            entry.call.give_up(error)
        entry.busy = True
        done = op.MarkDone(entry.id, error_answer(error), self.keep_until(entry))
        await asyncio.shield(self.life.spawn(self._drop(entry, done)))

    async def _drop(self, entry: Entry, operation: op.MarkDone) -> None:
        try:
            await self.journal.commit(operation)
        except JournalError:
            entry.busy = False
            self.wake_all()
            raise
        except UsageError as gone:
            self.forget(entry, gone)
        else:
            self._over(entry, operation)

    def stopped(self, error: JournalError) -> bool:
        """Whether the journal is at its end; then every ticket that waits hears it."""
        if not self.journal.gauges().stopped:
            return False
        self.end(error)
        return True

    def end(self, error: JournalError) -> None:
        """Nothing is delivered any more: every ticket that waits hears why. What is in the journal stays."""
        for entry in list(self.entries.values()):
            self._leave(entry)
            entry.fail(error)

    def keep_until(self, entry: Entry) -> int:
        """Unix ms until which an outcome is kept here: a day, and never less than the ttl."""
        return now_ms() + int(max(RETENTION_S, entry.expires - self.loop.time()) * 1000)

    def linked(self, contact: Contact) -> None:
        """A line to this peer came up."""
        for lane in self._lanes.values():
            lane.linked(contact)
        self.settling.linked(contact)

    def wake_all(self) -> None:
        for lane in self._lanes.values():
            lane.wake.set()

    # ------------------------------------------------------------------ tickets and dead letters
    def consumed_all(self, message_id: str) -> None:
        """Whoever read the items of a work is done with them; once it has ended, the receiver may forget all of it."""
        self.life.spawn(self._consumed_all(message_id))

    async def _consumed_all(self, message_id: str) -> None:
        try:
            entry = self.entries.get(message_id)
            row = await asyncio.shield(entry.done) if entry is not None else await self.journal.sent(message_id)
            if row is not None and row.state is SentState.DONE and consumed(row) < (items_of(row) or 0):
                await self.journal.commit(op.MarkConsumed(message_id, items_of(row) or 0))
            if row is not None:
                self.settling.add(row, read=True)
        except (UsageError, JournalError) as error:
            log.info("%s", error)

    async def row(self, message_id: str) -> Sent | None:
        return await self.journal.sent(message_id)

    def state(self, row: Sent) -> str:
        """The state of a row that was just read: an acceptance is known before it is on the disk."""
        entry = self.entries.get(row.message_id)
        if entry is not None and entry.accepted.done() and row.state is SentState.WAITING:
            return "accepted"
        return row.state.name.lower()

    def enter_again(self, row: Sent, envelope: Envelope, ttl: float, *, blind: bool) -> None:
        """A dead letter goes out once more; `blind`: whether it ran is not known."""
        entry = self._enter(row, envelope, self.loop.time() + ttl)
        entry.blind, entry.free = blind, not blind


async def _awaited(pending: Any) -> Any:
    """A Pending as a coroutine, so that many can be waited for at once."""
    return await pending
