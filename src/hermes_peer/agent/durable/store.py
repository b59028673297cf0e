"""The durable side of one running agent: its journal, opened at first use, and the two halves above it.

Knows: where the journal lies, in which order it is opened, gone on with and closed. Refuses to know: what is in it.
Called by: life, serving, agent. An agent that neither submits nor takes durable work has no journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.durable.inbox import AT_ONCE, Inbox, Reader
from hermes_peer.agent.durable.lane import WINDOW
from hermes_peer.agent.durable.outbox import Outbox
from hermes_peer.agent.durable.recovery import recover
from hermes_peer.agent.durable.retry import error_answer
from hermes_peer.agent.methods import Method
from hermes_peer.core.session import Session
from hermes_peer.core.stream import Stream
from hermes_peer.errors import JournalError, ProtocolError, Unavailable
from hermes_peer.journal.meta import mark_path
from hermes_peer.journal.sqlite import SqliteJournal
from hermes_peer.journal.values import Limits
from hermes_peer.runtime.contact import Contact
from hermes_peer.wire.messages import Envelope, Kind

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life
    from hermes_peer.journal.base import Journal

log = logging.getLogger("hermes_peer.work")
FILE = "journal.db"
SWEEP_S = 60.0
LIMITS = Limits()


class Durable:
    """`open()` gives (inbox, outbox); everything else waits for it."""

    def __init__(self, life: Life) -> None:
        self.journal: Journal | None = None
        self.inbox: Inbox | None = None
        self.outbox: Outbox | None = None
        self.problem: str | None = None
        self._life = life
        self._opening: asyncio.Task[tuple[Inbox, Outbox]] | None = None
        self._closed = False
        self._open_at_once = False  # nothing that came earlier still waits for the opening
        self._fail = failpoint()

    @property
    def path(self) -> Path:
        return self._life.slot.path / FILE

    async def open(self) -> tuple[Inbox, Outbox]:
        """The two halves. Raises JournalError; the agent goes on with volatile work, and the next one tries again."""
        if self._closed:
            raise _was_closed()
        if self._opening is None:
            if not self._life.running:
                raise _ending()
            self._opening = self._life.loop.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> tuple[Inbox, Outbox]:
        life = self._life
        try:
            self.journal = journal = await life.loop.run_in_executor(None, self._open_file)
        except JournalError as error:
            self.problem = str(error)
            log.error("%s", error)
            self._opening = None
            error.ran = "no"
            raise
        if not life.running:
            raise _ending()
        self.problem = journal.notice or None
        if journal.notice:
            log.warning("%s", journal.notice)
        self.inbox = Inbox(life, journal, self._fail)
        self.outbox = Outbox(life, journal, self._fail)
        sent = await self.outbox.recover()  # first: a handler that begins may hold the writer with its transaction
        # A command line that only delivers in an agent's place has none of its methods: what that took stays as it is.
        taken = await recover(self.inbox) if life.agent.takes_work else 0
        if taken or sent:
            log.info("going on with %d taken and %d submitted works", taken, sent)
        life.spawn(self._sweep())
        return self.inbox, self.outbox

    def _open_file(self) -> Journal:
        return SqliteJournal(
            self.path,
            fingerprint=self._life.slot.identity.fingerprint,
            entropy=os.urandom,
            limits=LIMITS,
            failpoint=self._fail,
        )

    async def begin(self) -> None:
        """At start: if an earlier process left a journal, go on with it."""
        if self.path.exists() or mark_path(self.path).exists():  # a mark alone: the journal was taken away
            try:
                await self.open()
            except JournalError:
                pass  # told in `problem`; volatile work goes on

    def linked(self, contact: Contact) -> None:
        """A line to this peer came up."""
        if self.outbox is not None:
            self.outbox.linked(contact)

    def recheck(self) -> None:
        """Policy or trust changed."""
        if self.inbox is not None:
            self.inbox.recheck()

    @property
    def running(self) -> bool:
        """Whether a handler of durable work runs."""
        return self.inbox is not None and self.inbox.running

    async def drain(self) -> None:
        """The agent ends: what still runs stays RUNNING in the journal, and its contract decides at the next start."""
        if self.inbox is not None:
            await self.inbox.close()

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        if self.journal is not None:
            await self._life.loop.run_in_executor(None, self.journal.close)
        self._closed = True
        if self.outbox is not None:
            self.outbox.end(_was_closed())

    def take(
        self, contact: Contact, session: Session, stream: Stream, envelope: Envelope, method: Method, payload: bytes
    ) -> None:
        """An OPEN that says durable, admitted by policy: from here on the stream only waits for the end."""
        reader = StreamReader(contact, session, stream)
        stream.owner = reader
        if self.inbox is not None and self._open_at_once:
            self.inbox.take(contact.peer.fingerprint, envelope, method, payload, reader)
        else:
            self._life.spawn(self._take(contact, envelope, method, payload, reader))

    async def _take(self, contact: Contact, envelope: Envelope, method: Method, payload: bytes, reader: Reader) -> None:
        try:
            inbox, _ = await self.open()
        except JournalError as error:
            reader.ended(error_answer(Unavailable("journal", str(error), retryable=True, retry_after=5)))
            return
        inbox.take(contact.peer.fingerprint, envelope, method, payload, reader)
        self._open_at_once = True

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            assert self.inbox is not None
            try:
                await self.inbox.sweep()
            except JournalError as error:
                log.warning("%s", error)

    def gauges(self) -> dict[str, Any]:
        """Sizes for `status` (mission M24)."""
        if self.journal is None or self.inbox is None or self.outbox is None:
            return {"open": False, "problem": self.problem}
        g = self.journal.gauges()
        return {
            "open": True,
            "problem": self.problem or g.stopped or None,
            "sent": {state.name.lower(): n for state, n in g.sent.items()},
            "taken": {state.name.lower(): n for state, n in g.taken.items()},
            "in_hand": len(self.inbox.works),
            "to_deliver": len(self.outbox.entries),
            "to_settle": len(self.outbox.settling),
            "on_the_way": sum(self.outbox.flying.values()),
            "bytes": g.size,
            "wal_bytes": g.wal,
            "queue": g.queue,
            "commits": g.commits,
            "units": g.units,
            "last_commit_ms": round(g.last_commit_ms, 2),
            "set_aside": g.set_aside,
            "limits": {
                "bytes": LIMITS.size,
                "rows_per_peer": LIMITS.rows_per_peer,
                "body": LIMITS.body,
                "handlers": AT_ONCE,
                "on_the_way_per_peer": WINDOW,
            },
        }


def _ending() -> JournalError:
    return JournalError("This agent ends, and its journal is not open: submit again once it runs.", ran="no")


def _was_closed() -> JournalError:
    return JournalError("This agent was closed. Its durable work is kept: agent.ticket(ID) has it once it runs again.")


class StreamReader(Reader):
    """The owner of a stream on which a submitter waits. The stream's fate is not the work's."""

    def __init__(self, contact: Contact, session: Session, stream: Stream) -> None:
        self._contact = contact
        self._session = session
        self._stream = stream
        self._over = False

    def accepted(self) -> None:
        if not self._over and self._contact.session is self._session:
            self._contact.send(self._stream, bytes([Kind.ACCEPTED]))

    def ended(self, outcome: bytes) -> None:
        if not self._over:
            self._over = True
            if self._contact.session is self._session:
                self._contact.send(self._stream, outcome, True)
            self._release()

    def message(self, body: bytes, fin: bool, cost: int) -> None:
        self._session.consumed(self._stream, cost)
        raise ProtocolError("durable work takes no items from its caller")

    def reset(self, body: bytes) -> None:
        """A reset only detaches."""
        self._over = True
        self._release()

    def _release(self) -> None:
        self._session.release(self._stream)
        if self._session.places.tell and self._contact.session is self._session:
            self._contact.nudge()

    def abandoned(self) -> None:
        self._over = True

    def writable(self) -> None:
        pass

    def warm(self) -> None:
        pass


def failpoint() -> Callable[[str], None]:
    """The crash tests' hook: HERMES_PEER_FAILPOINT="name" or "name:n" kills this process at that point's n-th pass."""
    wanted = os.environ.get("HERMES_PEER_FAILPOINT", "")
    if not wanted:
        return lambda name: None
    point, _, count = wanted.partition(":")
    left = [int(count or 1)]

    def fail(name: str) -> None:
        if name == point:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return fail
