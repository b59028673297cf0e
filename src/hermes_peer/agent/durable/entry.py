"""One submitted work that has no outcome yet, and the stream on which it travels.

Knows: what is known of one work: to whom it went, whether that one may have it, when it dies. Refuses to know:
journals, other works. Called by: outbox, lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hermes_peer.agent.calling import Outgoing
from hermes_peer.journal.values import Sent, SentState
from hermes_peer.wire.messages import Envelope, Kind

LATE_S = 10.0  # how long after its ttl an accepted work may still bring its answer


class Entry:
    """`done` is resolved with the stored row, `accepted` once the receiver has it on its disk (or it has ended)."""

    def __init__(self, row: Sent, envelope: Envelope, expires: float, loop: asyncio.AbstractEventLoop) -> None:
        self.row = row
        self.id = row.message_id
        self.envelope = envelope
        self.expires = expires
        self.next_try = 0.0
        self.call: Delivery | None = None
        self.busy = False  # an answer or an end is on the way to the disk
        self.over = False  # its end is on the disk
        self.stored = True  # False while its submission is on the way to the disk: it was sent ahead, and is not again
        self.sent = False  # at least once by this process
        self.blind = False  # it was sent, and no answer tells what became of that
        self.free = False  # whoever it was sent to has refused it unprocessed: it may go to another
        self.refused = b""  # by whom, last
        self.cancelled = False
        self.accepted: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[Sent] = loop.create_future()
        if row.state is SentState.ACCEPTED:
            self.accepted.set_result(None)

    @property
    def stays(self) -> bytes:
        """The key that it must go to: whoever it was first sent to; empty while any will do."""
        return b"" if self.free else self.row.peer

    @property
    def dies(self) -> float:
        """When it is given up (the loop's clock). What was accepted has an end over there, which may be on its way."""
        return self.expires + (LATE_S if self.accepted.done() else 0.0)

    def tell(self, row: Sent) -> None:
        """This is how it ended."""
        if not self.accepted.done():
            self.accepted.set_result(None)
        if not self.done.done():
            self.done.set_result(row)

    def fail(self, error: BaseException) -> None:
        """Nobody will ever know here: tell whoever waits."""
        for future in (self.accepted, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen, also if nobody waits


class Delivery(Outgoing):
    """The stream of one work: OPEN, then ACCEPTED, then END. Its end never ends the work itself.

    `taken`: ACCEPTED came first, so that END is the work's own; without it, END refuses what was never begun.
    """

    __slots__ = ("on_accepted", "taken")
    on_accepted: Callable[[], None]
    taken: bool

    def message(self, body: bytes, fin: bool, cost: int) -> None:
        if body[0] == Kind.ACCEPTED:
            self.session.consumed(self.stream, cost)
            self.taken = True
            self.on_accepted()
        elif body[0] == Kind.END:
            self.session.consumed(self.stream, cost)
            self.settle(body, None)  # kept as it is: the bytes are the outcome
        else:
            super().message(body, fin, cost)
