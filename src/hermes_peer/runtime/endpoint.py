"""The endpoint: our node among the others. Listens, admits, dispatches what happened to whom it concerns.

Knows: core and transport, and their order in one turn of the loop. Refuses to know: methods, payloads, trust files.
Called by: the agent, which gives it a Judge and a `serve` callback for streams that others open.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
from collections.abc import Callable
from types import CodeType
from typing import Protocol

from hermes_peer.core.events import Event
from hermes_peer.core.link import Link
from hermes_peer.core.node import Node, NodeEvent
from hermes_peer.core.session import Session
from hermes_peer.core.states import Reason
from hermes_peer.core.stream import Stream
from hermes_peer.errors import ProtocolError
from hermes_peer.runtime.busypoll import BusyPoll
from hermes_peer.runtime.contact import Contact
from hermes_peer.runtime.pump import Pump
from hermes_peer.runtime.watch import Watch
from hermes_peer.transport import base
from hermes_peer.transport.base import Listener
from hermes_peer.wire.address import Address

log = logging.getLogger("hermes_peer.link")
BROKEN = b'{"code":7,"reason":"internal","message":"the agent failed; its log says more"}'
TICK_S = 0.5
STALL_S = 1.0  # a loop that is so late is worth a warning
LINGER_S = 0.25  # how long close() waits for last words to leave


class Owner(Protocol):
    """What `Stream.owner` is to the endpoint. Called from the event loop; must not block."""

    def message(self, body: bytes, fin: bool, cost: int) -> None: ...
    def reset(self, body: bytes) -> None: ...
    def writable(self) -> None: ...
    def warm(self) -> None: ...


class Endpoint:
    """One per agent and event loop."""

    def __init__(
        self,
        node: Node,
        *,
        serve: Callable[[Contact, Stream, bytes, bool, int], None],
        ended: Callable[[Contact, Session, Reason, str], None],
        changed: Callable[[Contact], None] = lambda contact: None,
        redial_limit: int | None = None,
        whose: Callable[[CodeType], str] = lambda code: "",
    ) -> None:
        self.node = node
        self.loop = asyncio.get_running_loop()
        self.poll = BusyPoll(self.loop, node.config.poll_s)
        self.pumps: dict[Link, Pump] = {}
        self.open_pipes: set[Pump] = set()
        self.context = contextvars.copy_context()  # what we dial and serve in: never that of the call that caused it
        self.contacts: dict[bytes, Contact] = {}
        self.listeners: list[Listener] = []
        self.redial_limit = redial_limit
        self.refused: dict[str, int] = {}  # inbound links that were not wanted, by reason
        self.stalls = 0
        self.queued_ms: Callable[[], int] = lambda: 0  # how long work waits elsewhere than in the loop
        self.linked: Callable[[Pump], None] | None = None  # hears of each new link before its first byte
        self.noticed: Callable[[Contact, str, str, float], None] = lambda contact, what, text, seconds: None
        self._locals = itertools.count()
        self._serve = serve
        self._ended = ended
        self._changed = changed
        self._watch = Watch(whose)
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(TICK_S, self._tick, self.loop.time() + TICK_S)

    # ------------------------------------------------------------------ commands
    async def listen(self, address: Address) -> Address:
        """Accept links at `address`; returns it with the port that was taken. Raises LinkError."""
        listener = await base.listen(address, lambda: Pump(self, self._accept))
        self.listeners.append(listener)
        return listener.address

    def contact(self, fingerprint: bytes) -> Contact:
        """The one Contact for a key."""
        found = self.contacts.get(fingerprint)
        if found is None:
            found = self.contacts[fingerprint] = Contact(self, self.node.peer(fingerprint))
        return found

    def end_session(self, contact: Contact, reason: Reason, text: str) -> None:
        """End it from our side; streams' owners are told."""
        session, pump = contact.session, contact.pump
        self.node.end_session(contact.peer, reason, text)
        self._node_events()
        if session is not None:
            self._drain(contact, session)
        if pump is not None:
            pump.flush()

    def announce_drain(self) -> None:
        """Tell all peers to open nothing more."""
        self.node.accepting = False
        for link, pump in self.pumps.items():
            if pump.contact is not None:
                link.announce_drain()
                pump.schedule()

    async def close(self) -> None:
        """End every session and link now; twice does no harm."""
        self._watch.close()
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            await listener.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._flushed()
        for contact in list(self.contacts.values()):
            await contact.close()
        for contact in list(self.contacts.values()):
            if contact.session is not None:
                self.end_session(contact, Reason.SHUTDOWN, "the agent was closed")
        for link, pump in list(self.pumps.items()):
            link.close(Reason.SHUTDOWN, "the agent was closed")
            pump.flush()
        self._node_events()
        until = self.loop.time() + LINGER_S
        while self.open_pipes and self.loop.time() < until:
            await asyncio.sleep(0.001)
        for pump in list(self.open_pipes):
            pump.abort()
        await asyncio.sleep(0)

    async def _flushed(self) -> None:
        """Answers that were given a moment ago leave before the lines end; for a reader that takes nothing we do not
        wait long."""
        until = self.loop.time() + LINGER_S
        while True:
            for pump in list(self.pumps.values()):
                pump.flush()
            now = self.loop.time()
            if now >= until or not any(link.pending(now) or _unsent(link.session) for link in self.pumps):
                return
            await asyncio.sleep(0.001)

    # ------------------------------------------------------------------ what happened
    def settle(self, pump: Pump) -> None:
        """After a link took something in: tell owners, contacts and the agent."""
        contact = pump.contact
        if contact is not None:
            session = contact.session
            if session is not None and session.events:
                self._drain(contact, session)
        if self.node.events:
            self._node_events()

    def _drain(self, contact: Contact, session: Session) -> None:
        events = session.events
        serve = self._serve
        while events:
            batch = events[:]
            events.clear()
            for kind, stream, body, fin, cost in batch:
                try:
                    if kind == 0:  # Event.MESSAGE, for every token
                        owner: Owner | None = stream.owner
                        if owner is None:
                            if stream.mine or stream.released:
                                session.consumed(stream, cost)
                            else:
                                serve(contact, stream, body, fin, cost)
                        else:
                            owner.message(body, fin, cost)
                    elif stream is not None:
                        self._stream_event(session, kind, stream, body)
                    elif kind == Event.ENDED:
                        contact.ended()
                        self._ended(contact, session, body, fin)
                except ProtocolError as error:
                    link = contact.pump.link if contact.pump else None
                    if link is not None:
                        link.close(Reason.PROTOCOL, str(error))
                except Exception:
                    log.exception("a handler of link events failed")
                    if stream is not None:
                        session.reset(stream, BROKEN)
                        if stream.owner is not None:
                            stream.owner.reset(BROKEN)

    @staticmethod
    def _stream_event(session: Session, kind: int, stream: Stream, body: bytes) -> None:
        owner: Owner | None = stream.owner
        if owner is None:
            if kind == Event.RESET:
                session.release(stream)
        elif kind == Event.RESET:
            owner.reset(body)
        elif kind == Event.WRITABLE:
            owner.writable()
        else:
            owner.warm()

    def _node_events(self) -> None:
        events = self.node.events
        while events:
            kind, peer, link, reason, text = events.pop(0)
            pump = self.pumps.get(link) if link is not None else None
            if pump is not None:
                pump.schedule()
            if peer is None:
                if kind is NodeEvent.REFUSED:
                    self._count(reason)
                    where = pump.pipe.remote if pump is not None and pump.pipe is not None else "somebody"
                    log.info("refused a link from %s: %s", where, link.unproven_reason or text)
                continue
            contact = self.contact(peer.fingerprint)
            if contact.session is not None and contact.session.events:
                self._drain(contact, contact.session)
            if kind is NodeEvent.UP:
                if pump is not None and link.session is not None:
                    contact.up(pump, link)
                    self._drain(contact, link.session)
            elif kind is NodeEvent.DOWN:
                contact.down(link, reason, text)
            elif kind is NodeEvent.DIAL_FAILED:
                contact.dial_failed(link, reason, text)
            elif kind is NodeEvent.REFUSED:
                self._count(reason)
                log.info("refused a link of %s: %s", peer.fingerprint.hex(), text)
            self._changed(contact)

    def _count(self, reason: Reason) -> None:
        word = reason.name.lower()
        self.refused[word] = self.refused.get(word, 0) + 1

    def _accept(self, pump: Pump) -> Link:
        pipe = pump.pipe
        assert pipe is not None
        # Whoever may open our Unix socket is this user: a crowd of his agents is no flood of one stranger.
        where = f"{pipe.remote} {next(self._locals)}" if pipe.local else pipe.remote
        return self.node.accept(self.loop.time(), address=where, local=pipe.local, loopback=pipe.loopback)

    def _tick(self, planned: float) -> None:
        now = self.loop.time()
        culprit = self._watch.take()
        if now - planned > STALL_S:
            self.stalls += 1
            log.warning("the event loop stood still for %.1f s: %s blocks it", now - planned, culprit or "a handler")
        self.node.queue_ms = int(max(0.0, now - planned) * 1000) + self.queued_ms()
        self.node.tick(now)
        self._node_events()
        for contact in list(self.contacts.values()):
            if contact.session is not None and contact.session.events:
                self._drain(contact, contact.session)
        self._timer = self.loop.call_later(TICK_S, self._tick, now + TICK_S)


def _unsent(session: Session | None) -> bool:
    """Whether something waits for the peer's credit."""
    return session is not None and any(stream.queue for stream in session.places.streams.values())
