"""One stream: two halves, two windows, what waits to be sent, what is half received.

Knows: itself. Refuses to know: other streams, links, numbers. Called by: session, which alone moves it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hermes_peer.core.flow import ReceiveWindow, SendWindow
from hermes_peer.core.states import HALF, RECEIVING_HALF, Half, HalfInput
from hermes_peer.errors import ProtocolError, UsageError

OPEN = Half.OPEN
# What every stream's queue is until something must wait in it: most streams never need one of their own.
NOTHING: deque[tuple[bytes | memoryview, bool]] = deque(maxlen=0)


class Stream(SendWindow):
    """Itself the window of what we may still send on it; `inbound` is what the peer may.

    `id` is 0 until the first frame enters a batch; `owner` is the layer above's: never read here, cut at the end.
    A stream is forgotten when both halves are done, all was consumed and its owner released it.
    """

    __slots__ = (
        "first",
        "id",
        "inbound",
        "mine",
        "notify",
        "owner",
        "partial",
        "partial_cost",
        "queue",
        "queued",
        "receiving",
        "released",
        "reserved",
        "scheduled",
        "seen_at",
        "sending",
        "shown_at",
    )

    def __init__(self, mine: bool, send_window: int, receive_window: int, reserved: bool = False) -> None:
        self.id = 0
        self.mine = mine
        self.reserved = reserved  # may use the places kept for asks and hermes.* methods
        self.first = -1  # number of the frame that opened it
        self.sending = OPEN
        self.receiving = OPEN
        self.limit = send_window
        self.sent = 0
        self.inbound = ReceiveWindow(receive_window)
        self.queue = NOTHING
        self.queued = 0
        self.scheduled = False
        self.notify = False  # tell the owner once the queue is empty
        self.partial: list[bytes] | None = None
        self.partial_cost = 0
        self.released = False
        self.seen_at = 0.0  # last sign of life of the peer's handler
        self.shown_at = 0.0  # last sign of life of ours
        self.owner: Any = None

    def command(self, input: HalfInput) -> None:
        """Move the sending half. Raises UsageError."""
        try:
            self.sending = HALF[self.sending, input]
        except KeyError:
            raise UsageError(f"this stream's sending side has {self.sending.name.lower()}") from None

    def arrive(self, input: HalfInput) -> None:
        """Move the receiving half. Raises ProtocolError."""
        try:
            self.receiving = RECEIVING_HALF[self.receiving, input]
        except KeyError:
            raise ProtocolError(f"stream {self.id}: data after its end") from None

    def abort(self) -> None:
        """Both halves end; what is unsent or half received is dropped."""
        self.sending = self.receiving = Half.ABORTED
        self.queue = NOTHING
        self.queued = 0
        self.partial = None
        self.partial_cost = 0

    @property
    def closed(self) -> bool:
        return (
            self.sending is not OPEN
            and self.receiving is not OPEN
            and not self.queue
            and self.inbound.received == self.inbound.consumed
        )
