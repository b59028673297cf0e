"""The pump: one transport and one link, and the turns of the event loop between them.

Knows: when to write. Refuses to know: what is written; streams; trust. Called by: transports (bytes, ends), contact
(something to send), the loop's timers. All that is queued in one turn leaves in one write; what passes 8 KiB leaves
within the turn, so that the other end can begin on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_peer.core.link import Link
from hermes_peer.transport.base import Pipe

if TYPE_CHECKING:
    from hermes_peer.runtime.contact import Contact
    from hermes_peer.runtime.endpoint import Endpoint

LATE_S = 1.0  # a timer that fires later than this was held up by us, not by the peer
LINGER_S = 1.0  # how long a closing transport may take to send its last words


class Pump:
    """`scheduled` is true while a flush is certain to come in this turn."""

    __slots__ = (
        "_ack_timer",
        "_loop",
        "_make_link",
        "_poll",
        "_timer",
        "contact",
        "endpoint",
        "link",
        "pipe",
        "scheduled",
    )

    def __init__(self, endpoint: Endpoint, make_link: Callable[[Pump], Link]) -> None:
        self.endpoint = endpoint
        self.link: Link | None = None
        self.pipe: Pipe | None = None
        self.contact: Contact | None = None  # once the link is up
        self.scheduled = False
        self._make_link = make_link
        self._loop = endpoint.loop
        self._poll = endpoint.poll
        self._timer: asyncio.TimerHandle | None = None
        self._ack_timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ from the transport
    def connected(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.endpoint.open_pipes.add(self)
        self.link = self._make_link(self)
        self.endpoint.pumps[self.link] = self
        if self.endpoint.linked is not None:
            self.endpoint.linked(self)
        self._arm()
        self.flush()

    def received(self, data: bytes) -> None:
        link = self.link
        if link is None:
            return
        self._poll.heard()
        self.scheduled = True
        link.receive(data, self._loop.time())
        self.endpoint.settle(self)
        self.flush()
        if self._ack_timer is None and (ack_at := link.ack_at) is not None:
            self._ack_timer = self._loop.call_at(ack_at, self._ack)

    def writable(self) -> None:
        self.flush()

    def lost(self) -> None:
        link = self.link
        if link is not None and self.endpoint.pumps.pop(link, None) is not None:
            self._stop_timers()
            link.eof(self._loop.time())
            self.endpoint.settle(self)
            self.link = None  # nothing is written to a transport that is gone
        self.endpoint.open_pipes.discard(self)

    # ------------------------------------------------------------------ to the transport
    def schedule(self) -> None:
        """Something was queued: flush at the end of this turn."""
        if not self.scheduled:
            self.scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what the link gives, as long as the transport takes it."""
        self.scheduled = False
        link, pipe = self.link, self.pipe
        if link is None or pipe is None:
            return
        now = self._loop.time()
        if not pipe.paused and (data := link.take(now)):
            pipe.write(data)
            while not pipe.paused and (data := link.take(now)):
                pipe.write(data)
            self._poll.wrote()
        session = link.session
        if session is not None and session.events:
            # Room was made for a stream that waits to send: its owner must hear of it now, not with the next bytes.
            self._loop.call_soon(self.endpoint.settle, self)
        if link.done:
            self._hang_up(pipe)

    def abort(self) -> None:
        """Drop the transport with all that it has not sent."""
        if self.pipe is not None:
            self.pipe.abort()

    def _hang_up(self, pipe: Pipe) -> None:
        link, self.link = self.link, None
        self._stop_timers()
        if link is not None:
            self.endpoint.pumps.pop(link, None)
        pipe.close()
        self._loop.call_later(LINGER_S, pipe.abort)

    # ------------------------------------------------------------------ time
    def rearm(self) -> None:
        """The link is up: its heartbeat is due long before the handshake's clock would have been."""
        if self._timer is not None:
            self._timer.cancel()
        self._arm()

    def _arm(self) -> None:
        link = self.link
        if link is None or link.done:
            return
        deadline = link.deadline
        self._timer = self._loop.call_at(deadline, self._tick, deadline)

    def _tick(self, planned: float) -> None:
        link = self.link
        if link is None:
            return
        now = self._loop.time()
        if now - planned > LATE_S:
            link.heartbeat.forgive(now - planned)
        link.tick(now)
        self.endpoint.settle(self)
        self.flush()
        self._arm()

    def _ack(self) -> None:
        self._ack_timer = None
        link = self.link
        if link is None:
            return
        self.flush()
        if (ack_at := link.ack_at) is not None:
            self._ack_timer = self._loop.call_at(max(ack_at, self._loop.time() + 0.02), self._ack)

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._ack_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._ack_timer = None
