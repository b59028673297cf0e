"""The work of the simulator: calls, their handlers, their readers, and what must hold of every one.

Knows: scripts, and the promise made to a caller. Refuses to know: links, faults.
Called by: the actors. A message is `kind u8, call u32, index u32` and filler that depends on both.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any

from hermes_peer.core.session import Session
from hermes_peer.core.states import Half
from hermes_peer.core.stream import Stream

if TYPE_CHECKING:
    from hermes_peer.testing.sim_actor import Actor

OPEN, ITEM, END, NOMORE = 1, 2, 4, 5
_HEAD = Struct(">BII")
_FILLER = Random(0).randbytes(1 << 17)
QUEUE = 4096  # a writer waits while so much of its stream is queued


class Violation(Exception):
    """A promise was broken."""


def message(kind: int, call: int, index: int, size: int) -> bytes:
    at = (call * 31 + index * 7) & 0xFFFF
    return _HEAD.pack(kind, call, index) + _FILLER[at : at + max(0, size - _HEAD.size)]


def understand(body: bytes) -> tuple[int, int, int]:
    """(kind, call, index), once the filler was found whole."""
    if len(body) < _HEAD.size:
        raise Violation(f"a message of {len(body)} bytes was never sent")
    kind, call, index = _HEAD.unpack_from(body)
    if body != message(kind, call, index, len(body)):
        raise Violation(f"the bytes of message {index} of call {call} were changed")
    return kind, call, index


@dataclass(slots=True)
class Script:
    """What one call will do. Times in seconds, sizes in bytes."""

    open_size: int = 20
    answer_size: int = 20
    item_size: int = 20
    items_in: int = 0
    items_out: int = 0
    pace: float = 0.0  # between two items
    read_s: float = 0.0  # a reader's time for one message
    stall_s: float = 0.0  # before it reads the first
    think_s: float = 0.0
    linger_s: float = 0.0  # between the end of the stream and its release
    cancel_s: float | None = None
    abort_s: float | None = None
    asks: int = 0
    early: bool = False  # the handler answers before it has read everything
    late: bool = False  # a reader goes on reading what was dropped by a reset
    error_size: int = 4


@dataclass(slots=True)
class Call:
    """One call as God sees it."""

    id: int
    caller: Actor
    callee: Actor
    script: Script
    asked: bool = False
    caller_life: int = 1
    callee_life: int = 1
    began: int = 0
    never: bool = False  # the caller was told that it did not run
    aborted: bool = False
    cancelled: bool = False
    outcome: str = ""
    session: Session | None = None
    on_end: Any = None
    talks: list[Talk] = field(default_factory=list)

    def begin(self) -> None:
        self.began += 1
        if self.began > 1:
            raise Violation(f"call {self.id}: its handler was started twice")
        if self.never:
            raise Violation(f"call {self.id}: its handler began although the caller was told that it never ran")

    def finish(self, outcome: str) -> None:
        if self.outcome:
            raise Violation(f"call {self.id}: a second outcome {outcome!r} after {self.outcome!r}")
        self.outcome = outcome
        if outcome == "lost_no":
            self.never = True
            if self.began:
                raise Violation(f"call {self.id}: said not to have run, but its handler began")
        if self.on_end is not None:
            self.on_end()


class Talk:
    """One side of one stream: a writer that waits for room, a reader that takes its time."""

    __slots__ = ("actor", "call", "dead", "expect", "fin_read", "mine", "read_at", "reading", "sent", "session",
                 "stream", "unread", "whole", "writing")  # fmt: skip

    def __init__(self, actor: Actor, session: Session, stream: Stream, call: Call, mine: bool) -> None:
        self.actor, self.session, self.stream, self.call, self.mine = actor, session, stream, call, mine
        self.dead = False
        self.expect = 0  # index of the next message to arrive
        self.whole = False  # the peer's side has ended, everything arrived
        self.fin_read = False
        self.unread: deque[tuple[int, bool, int]] = deque()
        self.reading = False
        self.writing = False
        self.read_at = actor.clock.now + (call.script.stall_s if call.id % 2 == mine else 0.0)
        self.sent = 0
        stream.owner = self
        call.talks.append(self)
        actor.talks[self] = None

    # ------------------------------------------------------------------ what both sides do
    def arrived(self, body: bytes, fin: bool, cost: int) -> None:
        kind, call, index = understand(body)
        if self.whole:
            raise Violation(f"call {call}: a message arrived after the end of its stream")
        if call != self.call.id or index != self.expect:
            raise Violation(f"call {self.call.id}: message {index} of {call} arrived, {self.expect} was expected")
        self.expect += 1
        if fin != (kind in (END, NOMORE) or (kind == OPEN and not self.call.script.items_in)):
            raise Violation(f"call {call}: message {index} of kind {kind} came with fin {fin}")
        self.whole = fin
        if fin:
            script = self.call.script
            items = script.items_in if not self.mine else script.items_out
            if self.expect != items + 1:
                raise Violation(f"call {call}: ended after {self.expect} messages instead of {items + 1}")
        self.unread.append((kind, fin, cost))
        if not self.reading:
            self.reading = True
            self._read_when_due()

    def _read_when_due(self) -> None:
        now = self.actor.clock.now
        if self.read_at <= now and not self.call.script.read_s:
            self.read()
        else:
            self.actor.later(max(self.read_at - now, self.call.script.read_s), self.read)

    def read(self) -> None:
        while self.unread:
            kind, fin, cost = self.unread.popleft()
            self.session.consumed(self.stream, cost)
            if self.dead:
                continue
            self.actor.touched = True
            self.fin_read = fin
            self.on_read(kind, fin)
            if self.unread and self.call.script.read_s and not self.dead:
                self.actor.later(self.call.script.read_s, self.read)
                return
        self.reading = False

    def write(self) -> None:
        """Everything that has room, at the pace of the script."""
        pace = self.call.script.pace
        self.writing = False
        while not self.dead and self.stream.sending is Half.OPEN and self.more():
            if self.stream.queued >= QUEUE:
                self.stream.notify = True
                return
            self.session.send(self.stream, *self.next())
            self.sent += 1
            self.actor.touched = True
            if pace:
                self.writing = True
                self.actor.later(pace, self.write)
                return

    def writable(self) -> None:
        if not self.writing:
            self.write()

    def close(self) -> None:
        """Nobody is interested any more: what is unread is dropped, the place is given back a little later."""
        if self.dead:
            return
        self.dead = True
        if not self.call.script.late:
            for _, _, cost in self.unread:
                self.session.consumed(self.stream, cost)
            self.unread.clear()
        elif self.unread and not self.reading:
            self.actor.later(self.call.script.linger_s, self.read)
        if self.call.script.linger_s:
            self.actor.later(self.call.script.linger_s, self._release)
        else:
            self._release()

    def _release(self) -> None:
        self.session.release(self.stream)
        self.actor.talks.pop(self, None)
        self.actor.touched = True

    def lost(self) -> None:
        """The session ended."""
        self.dead = True
        self.actor.talks.pop(self, None)

    def more(self) -> bool:
        raise NotImplementedError

    def next(self) -> tuple[bytes, bool]:
        raise NotImplementedError

    def on_read(self, kind: int, fin: bool) -> None:
        raise NotImplementedError

    def was_reset(self, body: bytes) -> None:
        raise NotImplementedError


class Asking(Talk):
    """The caller's side."""

    __slots__ = ()

    def start(self) -> None:
        script = self.call.script
        self.write()
        if script.cancel_s is not None:
            self.actor.later(script.cancel_s, self.cancel)

    def more(self) -> bool:
        return self.sent <= self.call.script.items_in

    def next(self) -> tuple[bytes, bool]:
        script, n = self.call.script, self.sent
        last = n == script.items_in
        if not n:
            return message(OPEN, self.call.id, 0, script.open_size), last
        return message(NOMORE if last else ITEM, self.call.id, n, script.item_size), last

    def on_read(self, kind: int, fin: bool) -> None:
        if fin:
            self.call.finish("answer")
            if self.more():  # the handler did not want the rest
                self.session.reset(self.stream, b"enough")
                self.call.cancelled = True
            self.close()

    def cancel(self) -> None:
        if self.dead or self.call.outcome:
            return
        self.call.cancelled = True
        self.session.reset(self.stream, bytes(self.call.script.error_size))
        self.call.finish("cancelled")
        self.close()

    def was_reset(self, body: bytes) -> None:
        if self.dead:
            return
        if not self.call.aborted:
            raise Violation(f"call {self.call.id} was reset by nobody: {body[:100]!r}")
        self.call.finish("reset")
        self.close()

    def lost(self) -> None:
        if not self.dead and not self.call.outcome:
            self.call.finish("lost_" + self.session.fate(self.stream))
        super().lost()


class Serving(Talk):
    """The handler's side."""

    __slots__ = ("answering", "asking", "asks")

    def __init__(self, actor: Actor, session: Session, stream: Stream, call: Call) -> None:
        super().__init__(actor, session, stream, call, False)
        self.answering = False
        self.asking = True
        self.asks = call.script.asks
        self.read_at = actor.clock.now  # OPEN is read at once; what follows at the reader's own time
        call.begin()
        if call.script.abort_s is not None:
            actor.later(call.script.abort_s, self.abort)

    def more(self) -> bool:
        script = self.call.script
        return self.sent < script.items_out or (self.answering and self.sent == script.items_out)

    def next(self) -> tuple[bytes, bool]:
        script, n = self.call.script, self.sent
        if n < script.items_out:
            return message(ITEM, self.call.id, n, script.item_size), False
        return message(END, self.call.id, n, script.answer_size), True

    def on_read(self, kind: int, fin: bool) -> None:
        script = self.call.script
        if kind == OPEN:
            if script.stall_s and self.call.id % 2 == 0:
                self.read_at = self.actor.clock.now + script.stall_s
            self.ask()
        if fin and not script.early:
            self.actor.later(script.think_s, self.answer)

    def ask(self) -> None:
        """Ask the caller something in the middle of the work, as often as the script says; then go on."""
        if self.dead:
            return
        if self.asks:
            self.asks -= 1
            self.actor.ask_back(self.session, self.call, self.ask)
            return
        self.asking = False
        self.write()
        if self.call.script.early:
            self.actor.later(self.call.script.think_s, self.answer)

    def answer(self) -> None:
        if self.dead:
            return
        if self.asking:
            self.actor.later(0.05, self.answer)
            return
        self.answering = True
        if not self.writing:
            self.write()
        self._leave_when_sent()

    def _leave_when_sent(self) -> None:
        if self.dead:
            return
        if self.more() and self.stream.sending is Half.OPEN:
            self.actor.later(0.1, self._leave_when_sent)
            return
        self.close()

    def abort(self) -> None:
        if self.dead or self.answering:
            return
        self.call.aborted = True
        self.session.reset(self.stream, bytes(self.call.script.error_size))
        self.close()

    def was_reset(self, body: bytes) -> None:
        if self.dead:
            return
        if not self.call.cancelled:
            raise Violation(f"call {self.call.id}: the handler was reset by nobody: {body[:100]!r}")
        self.close()
