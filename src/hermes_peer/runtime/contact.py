"""The standing relation with one peer: where it lives, the pump that carries its session now, and dialling it again.

Knows: addresses, back-off, who waits for a link. Refuses to know: bytes, streams' contents, trust.
Called by: endpoint (links come and go), the agent (`ready`, `send`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hermes_peer.core.link import Link
from hermes_peer.core.peer import Peer
from hermes_peer.core.session import Session
from hermes_peer.core.states import FINAL, Reason
from hermes_peer.core.stream import Stream
from hermes_peer.errors import DeadlineExceeded, HermesError, LinkError, UsageError
from hermes_peer.runtime.backoff import Backoff
from hermes_peer.runtime.pump import Pump
from hermes_peer.transport import base
from hermes_peer.wire.address import Address

if TYPE_CHECKING:
    from hermes_peer.runtime.endpoint import Endpoint

log = logging.getLogger("hermes_peer.link")
TRIES = 4  # at once, then after about 1, 2 and 4 s: then whoever waits is told (mission M9)
INVITE_S = 10.0  # between two invitations of an instance that does not come
YIELD_S = 2.0  # the side that was dialled leaves the first redial to the other for this long


class Contact:
    """`session` is None until the first link is up, and again after the session has ended."""

    def __init__(self, endpoint: Endpoint, peer: Peer) -> None:
        self.endpoint = endpoint
        self.peer = peer
        self.session: Session | None = None
        self.pump: Pump | None = None
        self.find_addresses: Callable[[], Sequence[Address]] = Contact.no_addresses
        self.keep = False  # hold a link even without work
        self.backoff = Backoff()
        self.lost_at: float | None = None
        self.recoveries: list[float] = []  # seconds without a link, newest last, at most 1,000
        self.breaks = 0
        self.last_error: LinkError | None = None
        self.address = ""  # of the newest link
        self._batch = endpoint.node.config.batch
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[LinkError | None] | None = None
        self._marks: tuple[int, int] | None = None  # of the session, when its newest link came up
        self._up_at = 0.0
        self._redials = 0  # since the session last moved on: what `redial_limit` bounds
        self._closed = False
        self._invited = False
        self._invite_at = 0.0
        self._told: LinkError | None = None

    @staticmethod
    def no_addresses() -> Sequence[Address]:
        """Until somebody says where the peer lives."""
        return ()

    # ------------------------------------------------------------------ the agent's side
    def send(self, stream: Stream, message: bytes, fin: bool = False, alone: bool = False) -> None:
        """Queue a message; it leaves in this turn of the loop, or right now if there is nothing it could share a
        record with (`alone`). Raises UsageError (spec: session, section 3)."""
        session = self.session
        if session is None:
            return  # it ended; the stream's owner has been told
        session.send(stream, message, fin)
        pump = self.pump
        if pump is not None:
            if session.sender.batched >= self._batch:
                pump.flush()
            elif not pump.scheduled:
                if alone:
                    pump.flush()
                else:
                    pump.schedule()
        else:
            self.wake()

    def nudge(self) -> None:
        """Something besides a message waits to be sent: credit, a reset."""
        pump = self.pump
        if pump is not None:
            if not pump.scheduled:
                pump.schedule()
        else:
            self.wake()

    async def ready(self, *, linked: bool = False) -> Session:
        """The session, dialling first if there is none; `linked`: and a line that carries it now.

        Raises LinkError after TRIES attempts or a final refusal.
        """
        while self.session is None or (linked and self.pump is None):
            if self._closed:
                raise LinkError("this agent is closed", reason="closed")
            future: asyncio.Future[None] = self.endpoint.loop.create_future()
            self._waiters.append(future)
            self.wake()
            try:
                await future
            finally:
                if future in self._waiters:
                    self._waiters.remove(future)
        return self.session

    async def ping(self, patience: float) -> float:
        """Seconds that one PING and its PONG take on the link. Raises LinkError, DeadlineExceeded (timer "ping")."""
        await self.ready()
        if self.pump is None or self.pump.link is None:
            raise LinkError(f"the line to {self.name} is down", reason="lost")
        link, answer = self.pump.link, self.endpoint.loop.create_future()
        beat, now = link.heartbeat, self.endpoint.loop.time()
        before, beat.next_ping = beat.n, now

        def heard(n: int, seconds: float) -> None:
            if n > before and not answer.done():
                answer.set_result(seconds)

        beat.heard = heard
        link.tick(now)
        self.pump.schedule()
        try:
            async with asyncio.timeout(patience):
                seconds: float = await answer
                return seconds
        except TimeoutError:
            raise DeadlineExceeded(
                "ping", f"{self.name} answered no ping within {patience:g} s", origin="local", timer="ping"
            ) from None
        finally:
            beat.heard = None

    def invite(self) -> None:
        """Try once to have a link, for nobody in particular: another instance to choose from (mission M4)."""
        now = self.endpoint.loop.time()
        if self.session is None and self._task is None and now >= self._invite_at:
            self._invite_at = now + INVITE_S
            self._invited = True
            self.wake()

    def wake(self) -> None:
        """Dial if a link is wanted and nobody is at it."""
        if self.pump is None and self._task is None and not self._closed and self._wanted():
            self._task = self.endpoint.context.copy().run(self.endpoint.loop.create_task, self._redial())

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(LinkError("this agent is closed", reason="closed"))

    # ------------------------------------------------------------------ the endpoint's side
    def up(self, pump: Pump, link: Link) -> None:
        """A link carries the session."""
        session = link.session
        assert session is not None and pump.pipe is not None
        now = self.endpoint.loop.time()
        self.session = session
        self.pump = pump
        pump.contact = self
        self.address = pump.pipe.remote
        if self._marks is None:  # a new session has its own budget
            self._redials = 0
            self._marks = self._progress()
        self._note_progress()  # both LINKs may tell of data that the last link had carried
        self._up_at = now
        if self.lost_at is not None:
            self.recoveries = [*self.recoveries[-999:], now - self.lost_at]
            log.info("link to %s is back after %.0f ms", self.name, (now - self.lost_at) * 1000)
            self.endpoint.noticed(self, "back", "", now - self.lost_at)
            self.lost_at = None
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._settle_attempt(None)
        pump.rearm()
        pump.schedule()

    def down(self, link: Link, reason: Reason, text: str) -> None:
        """The link is gone; if something is open, find another."""
        self.pump = None
        if link.heartbeat.rtt:  # else it said nothing of its crowd yet, and what we know of it still holds (HPC-009)
            self.backoff.crowd = max(1, link.heartbeat.load.links)
        self._note_progress()
        if self._held(link):
            self._moved()
        session = self.session
        if reason is Reason.IDLE and not self._wanted():
            return
        self.breaks += 1
        if session is not None:
            self.lost_at = self.endpoint.loop.time()
        if reason in FINAL:
            self._final(LinkError(text, reason=reason.name.lower(), refused=True))
            return
        self.last_error = LinkError(text, reason=reason.name.lower())
        log.info("link to %s was lost (%s)", self.name, text)
        self.endpoint.noticed(self, "lost", text, 0.0)
        if session is not None and not link.dialled:
            self.endpoint.loop.call_later(YIELD_S, self.wake)
        else:
            self.wake()

    def dial_failed(self, link: Link, reason: Reason, text: str) -> None:
        if reason is Reason.LOST or reason is Reason.PROOF:
            text = (
                "the other end closed the connection without an answer: it is busy, or it does not hold the key "
                f"{self.peer.fingerprint.hex()} of {self.name}, or it is no Hermes Peer; "
                "compare with 'hermes-peer trust show' over there"
            )
        # A clear REFUSE is nobody's word: anyone on the way can write one. It may end a first dial, never a session.
        proven = link.outcome is not None
        if not proven and reason in FINAL:
            text = f"somebody at that address refuses, without proof of being {self.name}: {text}"
        refused = reason in FINAL and (proven or self.session is None)
        self._settle_attempt(LinkError(text, reason=reason.name.lower(), refused=refused))

    def ended(self) -> None:
        """The session is over for good."""
        self._note_progress()
        self.session = None
        self.lost_at = self._marks = None
        if self._waiters or self.keep:
            self.wake()

    @property
    def name(self) -> str:
        """What people call the peer."""
        return min(self.peer.names, default="") or self.peer.fingerprint.hex()[:16]

    # ------------------------------------------------------------------ inside
    def _progress(self) -> tuple[int, int]:
        session = self.session
        return (session.receiver.next, session.sender.replay.acked) if session is not None else (0, 0)

    def _note_progress(self) -> None:
        if self.session is not None and self._marks != (now := self._progress()):
            self._marks = now
            self._moved()

    def _moved(self) -> None:
        """Progress: the next loss begins with a short pause and a full budget. A bare handshake is none (HPC-003)."""
        self.backoff.reset()
        self._redials = 0

    def _held(self, link: Link) -> bool:
        """Whether the link was seen to work, both ways, for longer than a dead one is borne (HPC-003)."""
        beat = link.heartbeat
        proven = beat.last_in if beat.waiting is None else min(beat.waiting, beat.last_in)
        return proven - self._up_at > beat.patience

    def _wanted(self) -> bool:
        session = self.session
        return self.keep or self._invited or bool(self._waiters) or (session is not None and not session.idle)

    async def _redial(self) -> None:
        try:
            while self.pump is None and self._wanted() and not self._closed:
                limit = self.endpoint.redial_limit
                if limit and self.session is not None:
                    if self._redials >= limit:
                        self._final(LinkError(f"{self.last_error} (given up after {limit} attempts)", reason="lost"))
                        return
                    self._redials += 1
                if self.session is not None or self.backoff.attempts:
                    await asyncio.sleep(self.backoff.delay())
                else:
                    self.backoff.attempts = 1
                if self.peer.live:
                    return  # the other side was faster
                self._invited = False
                error = await self._try_all()
                if error is None:
                    return
                self.last_error = error
                if error.refused:
                    self._final(error)
                    return
                if self.session is None and self.backoff.attempts >= (limit or TRIES):
                    if not self.keep:
                        self.backoff.reset()
                    self._fail(error)
        finally:
            self._task = None

    async def _try_all(self) -> LinkError | None:
        error = LinkError(
            f"no address is known for {self.name}: start it, or add one with "
            f"'hermes-peer trust add FINGERPRINT name={self.name} at=hermes://HOST:PORT'",
            reason="address",
        )
        try:
            addresses = self.find_addresses()
        except (OSError, HermesError) as unread:
            return LinkError(f"where {self.name} lives cannot be looked up: {unread}", reason="address")
        for address in addresses:
            try:
                failed = await self._try(address)
            except LinkError as refused:
                failed = refused
            except UsageError as misuse:
                failed = LinkError(str(misuse), reason="self", refused=True)
            if failed is None or failed.refused:
                return failed
            error = failed
        return error

    async def _try(self, address: Address) -> LinkError | None:
        """One dial. None if a link is up, whoever dialled it."""
        attempt = self._attempt = self.endpoint.loop.create_future()
        endpoint, key = self.endpoint, self.peer.fingerprint

        def make_link(pump: Pump) -> Link:
            pipe = pump.pipe
            assert pipe is not None
            return endpoint.node.dial(key, endpoint.loop.time(), local=pipe.local, loopback=pipe.loopback)

        if key == endpoint.node.identity.fingerprint:
            raise UsageError("this address belongs to this agent's own key: an agent does not dial itself")
        await base.dial(address, lambda: Pump(endpoint, make_link))
        failed: LinkError | None = await attempt
        return failed

    def _settle_attempt(self, error: LinkError | None) -> None:
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(error)

    def _final(self, error: LinkError) -> None:
        """No use in dialling again by ourselves: tell everybody who waits, and end what hangs on it."""
        if error.refused and str(error) != str(self._told):
            self._told = error
            log.warning("%s refuses us for good: %s", self.name, error)
        self.last_error = error
        self._fail(error)
        self.lost_at = None
        if self.session is not None:
            self.endpoint.end_session(self, Reason.LOST, str(error))

    def _fail(self, error: HermesError) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def report(self) -> dict[str, Any]:
        """For `list` and `status`: what a person asks about one line."""
        session, link = self.session, self.pump.link if self.pump else None
        beat = link.heartbeat if link else None
        return {
            "agent": self.name,
            "fingerprint": self.peer.fingerprint.hex(),
            "instance": self.peer.instance,
            "address": self.address,
            "state": self.peer.state,
            "sealed": link.sealed if link else None,
            "rtt_ms": round(beat.rtt * 1000, 3) if beat and beat.rtt else None,
            "in_flight": beat.load.in_flight if beat else 0,
            "queue_ms": beat.load.queue_ms if beat else 0,
            "accepting": beat.load.accepting if beat else None,
            "streams": len(session.places.streams) if session else 0,
            "links": session.links if session else 0,
            "breaks": self.breaks,
            "recovery_ms": [round(seconds * 1000, 1) for seconds in self.recoveries[-100:]],
            "heartbeat_s": beat.period if beat else None,
            "message_limit": session.settings.message if session else None,
        }
