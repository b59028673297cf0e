"""The works for one target: sent in the order in which they were submitted, again after what broke, given up in time.

Knows: which work is due, who can be reached, retries by class of error. Refuses to know: how rows are stored.
Called by: outbox.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_peer.agent.context import new_span
from hermes_peer.agent.durable.entry import Delivery, Entry
from hermes_peer.agent.durable.retry import TRIES, pause, read_end
from hermes_peer.agent.durable.rows import now_ms, why_dead
from hermes_peer.agent.reach import reach
from hermes_peer.errors import (
    CallError,
    Cancelled,
    Code,
    DeadlineExceeded,
    HermesError,
    JournalError,
    LinkError,
    SessionLost,
    UsageError,
)
from hermes_peer.journal import operations as op
from hermes_peer.runtime.contact import Contact

if TYPE_CHECKING:
    from hermes_peer.agent.durable.outbox import Outbox

log = logging.getLogger("hermes_peer.work")
REACH_S = 10.0  # one attempt to find a line
MARK_S = 0.05  # an answer that comes within it makes a note of the acceptance needless
AGAIN_S = 0.2  # after a refusal of what was never begun
WINDOW = 64  # works on the way to one peer at a time: half of its streams stay free for calls
FOR_EVER = float("inf")


class Lane:
    """`run` ends when nothing is left."""

    def __init__(self, outbox: Outbox, target: str) -> None:
        self.target = target
        self.entries: dict[str, Entry] = {}
        self.wake = asyncio.Event()
        self._outbox = outbox
        self._life = outbox.life
        self._loop = outbox.loop
        self._seeking: set[bytes] = set()  # keys (empty: anybody of that name) that are being reached
        self._failed: dict[bytes, int] = {}  # how often in a row they were not
        self._seek_at: dict[bytes, float] = {}

    async def run(self) -> None:
        while self.entries:
            self.wake.clear()
            try:
                soonest = await self._turn()
            except JournalError as error:
                if self._outbox.stopped(error):
                    return
                log.warning("works for %s wait: %s", self.target, error)
                soonest = self._loop.time() + pause(1)
            wait = soonest - self._loop.time()
            if wait > 0:
                try:
                    async with asyncio.timeout(min(3600.0, wait + 0.001)):
                        await self.wake.wait()
                except TimeoutError:
                    pass

    def linked(self, contact: Contact) -> None:
        """A line came up: look again for those that could not be reached, and ask again whoever had no room."""
        self._seek_at.clear()
        for entry in self.entries.values():
            if entry.refused == contact.peer.fingerprint:
                entry.refused, entry.next_try = b"", 0.0
        self.wake.set()

    # ------------------------------------------------------------------ one turn
    async def _turn(self) -> float:
        """Give up what is too old, send what can be sent, seek whom no line leads to. Returns when to look again."""
        now = self._loop.time()
        late = [e for e in self.entries.values() if now >= e.dies and e.stored and not e.busy]
        if late:
            await asyncio.gather(*(self._expire(entry) for entry in late))
        soonest, ready, lineless = FOR_EVER, [], dict[bytes, None]()
        for entry in self.entries.values():
            if entry.busy or not entry.stored:
                continue
            soonest = min(soonest, entry.dies)
            if entry.call is not None:
                continue
            if entry.next_try > now:
                soonest = min(soonest, entry.next_try)
            elif (contact := self._line(entry)) is None:
                lineless[entry.stays] = None
            elif self._outbox.flying[contact.peer.fingerprint] < WINDOW:
                self._outbox.flying[contact.peer.fingerprint] += 1  # given back when its stream has ended
                ready.append((entry, contact))
        for key in lineless:
            at = self._seek_at.get(key, 0.0)
            if at > now:
                soonest = min(soonest, at)
            elif key not in self._seeking:
                self._seeking.add(key)
                self._life.spawn(self._seek(key))
        if ready:
            await self._send_all(ready)
        return soonest

    def _line(self, entry: Entry) -> Contact | None:
        """Who can be sent to now; whoever has just refused it only if there is no other."""
        if key := entry.stays:
            contact = self._life.endpoint.contacts.get(key)
            return contact if contact is not None and _linked(contact) else None
        found = self._life.directory.route(self.target, self._loop.time())
        if found is None or found.peer.fingerprint != entry.refused:
            return found
        try:
            others = self._life.directory.find(self.target, self._loop.time())
        except (LinkError, UsageError):
            return found
        return next((c for c in others if _linked(c) and c.peer.fingerprint != entry.refused), found)

    async def _seek(self, key: bytes) -> None:
        """One attempt to have a line. It holds up nobody who has one."""
        try:
            until = self._loop.time() + REACH_S
            if not key:
                await reach(self._life, self.target, until)
            else:
                async with asyncio.timeout_at(until):
                    await self._life.directory.find_key(key, self.target).ready(linked=True)
        except (HermesError, OSError) as error:  # a TimeoutError is an OSError
            failed = self._failed[key] = self._failed.get(key, 0) + 1
            self._seek_at[key] = self._loop.time() + pause(failed)
            log.info("%d works for %s wait: %s", len(self.entries), self.target, error or "no line in time")
        else:
            self._failed.pop(key, None)
            self._seek_at.pop(key, None)
        finally:
            self._seeking.discard(key)
            self.wake.set()

    # ------------------------------------------------------------------ sending
    async def _send_all(self, ready: list[tuple[Entry, Contact]]) -> None:
        """Write down to whom each goes and which attempt it is, all in one commit; then send, in order."""
        changes: list[op.Operation] = []
        for entry, contact in ready:
            peer, attempt = contact.peer.fingerprint, entry.envelope.attempt
            if entry.row.peer != peer:
                changes.append(op.Move(entry.id, peer))
            if attempt > entry.row.attempts:
                changes.append(op.Attempt(entry.id, now_ms()))
            entry.row = msgspec.structs.replace(entry.row, peer=peer, attempts=max(attempt, entry.row.attempts))
            entry.busy, entry.free = True, False
        sent = 0
        try:
            if changes:
                await self._note(ready, changes)
            for entry, contact in ready:
                sent += 1
                self._outbox.fail("before-send")
                self.send(entry, contact)
                self._outbox.fail("after-send")
        finally:
            for entry, contact in ready[sent:]:
                entry.busy = False
                self._back(contact)

    async def _note(self, ready: list[tuple[Entry, Contact]], changes: list[op.Operation]) -> None:
        try:
            await self._outbox.journal.commit(*changes)
        except UsageError:  # the row of one of them is gone: it must not hold up the others
            for entry, _ in ready:
                own = [change for change in changes if getattr(change, "message_id", "") == entry.id]
                try:
                    await self._outbox.journal.commit(*own)
                except UsageError as error:
                    self._outbox.forget(entry, error)

    def send(self, entry: Entry, contact: Contact) -> None:
        """Over this line now; a place among its works on the way is held, and given back when the stream has ended."""
        entry.busy = False
        session = contact.session
        left = entry.expires - self._loop.time()
        if session is None or contact.pump is None or entry.over or (left <= 0 and not entry.accepted.done()):
            self._back(contact)
            return
        envelope = msgspec.structs.replace(
            entry.envelope, ttl=max(0.001, left), span_id=new_span(), again=entry.sent or entry.blind
        )
        try:
            call = Delivery(contact, session, envelope, self._life.server.deadlines)
        except UsageError:  # the session has just ended
            self._back(contact)
            entry.next_try = self._loop.time() + AGAIN_S
            return
        call.taken = False
        call.on_accepted = lambda: self._accepted(entry)
        entry.call, entry.sent = call, True
        call.future.add_done_callback(lambda future: self._ended(entry, call, future))
        try:
            call.begin(entry.row.payload)
        except UsageError as large:
            call.settle(None, CallError("too_large", str(large), code=Code.ERROR_RESOURCE_EXHAUSTED))
            return
        call.deadlines.discard(call)  # the lane watches its time; a stream that ends early ends nothing

    def _back(self, contact: Contact) -> None:
        flying = self._outbox.flying
        flying[contact.peer.fingerprint] -= 1
        if not flying[contact.peer.fingerprint]:
            del flying[contact.peer.fingerprint]

    def _accepted(self, entry: Entry) -> None:
        if not entry.accepted.done():
            entry.accepted.set_result(None)
            self._loop.call_later(MARK_S, self._mark_accepted, entry)

    def _mark_accepted(self, entry: Entry) -> None:
        if not entry.done.done() and not entry.busy and self._life.running:
            self._life.spawn(self._mark(op.MarkAccepted(entry.id, entry.row.expires_ms)))

    async def _mark(self, operation: op.Operation) -> None:
        try:
            await self._outbox.journal.commit(operation)
        except HermesError as error:
            log.info("%s", error)

    # ------------------------------------------------------------------ ends of a stream
    def _ended(self, entry: Entry, call: Delivery, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        self._back(call.contact)
        if entry.call is call:
            entry.call = None
        if future.cancelled() or entry.over or entry.busy:
            return
        if error is None:
            entry.busy = True
            self._life.spawn(self._answered(entry, call, future.result()))
        elif isinstance(error, CallError) and error.reason == "too_large":
            entry.busy = True
            self._life.spawn(self._bury(entry, error, "no"))
        else:  # the stream broke, not the work: ask again under the same id
            if not (isinstance(error, SessionLost) and error.ran == "no"):
                entry.blind = True
            elif not entry.blind and not entry.accepted.done():
                entry.free = True
            entry.next_try = self._loop.time() + (0.05 if isinstance(error, SessionLost) else pause(1))
        self._outbox.wake_all()

    async def _answered(self, entry: Entry, call: Delivery, answer: bytes) -> None:
        end = read_end(answer, entry.envelope.trace_id)
        error, attempts = end.error, entry.envelope.attempt
        self._outbox.ahead.learn(call, end.contract)
        if error is None or isinstance(error, Cancelled):
            self._outbox.fail("before-outcome")
            await self._outbox.finish(entry, op.MarkDone(entry.id, answer, self._outbox.keep_until(entry)))
            self._outbox.fail("after-outcome")
            return
        if entry.cancelled and error.retryable:
            await self._cancelled(entry)
        elif not error.retryable or (call.taken and attempts >= TRIES):
            await self._bury(entry, error, "answered", end.items)
        elif call.taken:
            entry.blind = False
            wait = pause(attempts, error.retry_after)
            entry.envelope = msgspec.structs.replace(entry.envelope, attempt=attempts + 1)
            await self._mark(op.Postpone(entry.id, now_ms() + int(wait * 1000)))
            self._later(entry, wait)
        else:  # refused before it was taken: no attempt is counted
            elsewhere = False
            entry.refused = call.contact.peer.fingerprint
            begun = isinstance(error.details, dict) and error.details.get("begun") is True
            if not begun and not entry.blind and not entry.accepted.done():
                entry.free = True
                elsewhere = self._other(call.contact)
            self._later(entry, 0.0 if elsewhere else max(AGAIN_S, error.retry_after or 0.0))

    async def _cancelled(self, entry: Entry) -> None:
        """Its receiver would have had it again, and the submitter will not."""
        try:
            await self._outbox.drop(entry, Cancelled("cancelled", "the submitter cancelled it"))
        except JournalError as error:
            log.warning("the end of %s could not be stored: %s", entry.id, error)
            if not self._outbox.stopped(error):
                self._later(entry, pause(2))

    def _other(self, contact: Contact) -> bool:
        """Whether another instance takes calls."""
        try:
            return self._life.directory.other(self.target, contact)
        except (LinkError, UsageError):
            return False

    def _later(self, entry: Entry, wait: float) -> None:
        entry.next_try = self._loop.time() + wait
        entry.busy = False
        self.wake.set()

    async def _expire(self, entry: Entry) -> None:
        entry.busy = True
        if entry.call is not None:
            entry.call.give_up(CallError("expired"))
        sent = entry.row.attempts > 0
        told = "; whether it ran is not known" if sent else "; it did not run"
        error = DeadlineExceeded("expired", "the ttl was spent" + told, origin="local")
        await self._bury(entry, error, "unknown" if sent else "no")

    async def _bury(self, entry: Entry, error: CallError, ran: Any, items: int = 0) -> None:
        """A dead letter: kept until an operator replays or discards it."""
        log.warning("%s for %s is dead: %s (trace %s)", entry.id, self.target, error, entry.envelope.trace_id)
        await self._outbox.finish(entry, op.MarkDead(entry.id, why_dead(error, ran, items)))


def _linked(contact: Contact) -> bool:
    return contact.session is not None and contact.pump is not None
