"""hermes.tap: the frames of an agent's links, opened, for whoever may `operate` (mission L25).

Knows: how a frame is told as plain values. Refuses to know: who may ask; the policy decides before.
Called by: links (through `Link.tap`, only while somebody listens), service.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.context import CURRENT
from hermes_peer.agent.methods import Method
from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames, messages
from hermes_peer.wire.frames import Flag, Frame, Type

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.core.link import Link
    from hermes_peer.runtime.contact import Contact
    from hermes_peer.runtime.pump import Pump

HELD_MAX = 4 * 1024 * 1024  # bytes that wait for a slow listener; what comes on top is counted and left out
PAYLOAD_MAX = 4096  # of one frame, in characters


class Listener:
    """One running hermes.tap: what it wants, and what waits for it."""

    def __init__(self, own: Contact, peer: str) -> None:
        self.own = own
        self.peer = peer
        self.held: deque[tuple[int, str, str, bytes]] = deque()
        self.bytes = 0
        self.lost = 0
        self.more = asyncio.Event()

    def hear(self, contact: Contact | None, name: str, direction: str, plain: bytes) -> None:
        """A record passed. The link to the listener itself is left out: telling of it would feed it."""
        if contact is self.own or (self.peer and self.peer != name):
            return
        if self.bytes + len(plain) > HELD_MAX:
            self.lost += 1
        else:
            self.bytes += len(plain)
            self.held.append((time.time_ns() // 1_000_000, name, direction, plain))
        self.more.set()


class Taps:
    """The listeners of one agent. Links are tapped while there is one, and only then."""

    def __init__(self, agent: HermesAgent) -> None:
        self._agent = agent
        self._listeners: set[Listener] = set()
        self._begun: set[tuple[str, str, int]] = set()  # streams whose present message goes on in the next frame

    def method(self) -> Method:
        """The method `hermes.tap`."""
        agent = self._agent

        async def tap(peer: str = "", payload: bool = False) -> AsyncIterator[dict[str, Any]]:
            """The frames of this agent's links as they pass, without payloads unless asked for."""
            request = CURRENT.get()
            assert request is not None
            listener = Listener(request._inbound.contact, peer)
            self._add(listener)
            try:
                yield {"tapped": agent.name, "links": self._links(listener)}
                while True:
                    await listener.more.wait()
                    listener.more.clear()
                    while listener.held:
                        at_ms, name, direction, plain = listener.held.popleft()
                        listener.bytes -= len(plain)
                        for told in self._told(name, direction, plain, payload):
                            yield {"at_ms": at_ms, "peer": name, "dir": direction, **told}
                    if listener.lost:
                        lost, listener.lost = listener.lost, 0
                        yield {"lost": lost}
            finally:
                self._drop(listener)

        return Method("hermes.tap", tap)

    def _links(self, listener: Listener) -> list[str]:
        contacts = self._agent._running().endpoint.contacts.values()
        found = {each.name for each in contacts if each.pump is not None and each is not listener.own}
        return sorted(found if not listener.peer else found & {listener.peer})

    def _add(self, listener: Listener) -> None:
        self._listeners.add(listener)
        endpoint = self._agent._running().endpoint
        endpoint.linked = self._attach
        for pump in list(endpoint.pumps.values()):
            self._attach(pump)

    def _drop(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._agent.running:
            endpoint = self._agent._running().endpoint
            endpoint.linked = None
            for link in endpoint.pumps:
                link.tap = None
            self._begun.clear()

    def _attach(self, pump: Pump) -> None:
        if pump.link is not None:
            pump.link.tap = partial(self._heard, pump, pump.link)

    def _heard(self, pump: Pump, link: Link, direction: str, plain: bytes) -> None:
        contact = pump.contact
        if contact is None and link.outcome is not None:  # LINK itself: the session is not there yet
            contact = self._agent._running().endpoint.contacts.get(link.outcome.peer_fingerprint)
        name = contact.name if contact is not None else pump.pipe.remote if pump.pipe is not None else "?"
        for listener in self._listeners:
            listener.hear(contact, name, direction, plain)

    def _told(self, name: str, direction: str, plain: bytes, payload: bool) -> list[dict[str, Any]]:
        try:
            found = frames.split(plain)
        except ProtocolError as error:
            return [{"type": "BROKEN", "length": len(plain), "body": {"problem": str(error)}}]
        told = []
        for frame in found:
            key = (name, direction, frame.stream)
            first = key not in self._begun
            if frame.type == Type.DATA:
                (self._begun.add if frame.flags & Flag.MORE else self._begun.discard)(key)
            told.append(told_frame(frame, first, payload))
        return told


def told_frame(frame: Frame, first: bool, payload: bool) -> dict[str, Any]:
    """One frame as plain values. `first`: its body begins a message; `payload`: with the payload's text."""
    kind = Type(frame.type).name if frame.type in Type._value2member_map_ else str(frame.type)
    told: dict[str, Any] = {
        "type": kind,
        "flags": [flag.name for flag in Flag if frame.flags & flag],
        "stream": frame.stream,
        "sequence": frame.sequence,
        "length": len(frame.body),
    }
    try:
        body, rest = _body(frame, first)
    except (ProtocolError, ValueError) as error:
        body, rest = {"problem": str(error)}, frame.body
    if body:
        told["body"] = body
    if payload and rest:
        told["payload"] = rest[: 4 * PAYLOAD_MAX].decode("utf-8", "backslashreplace")[:PAYLOAD_MAX]
    return told


def _body(frame: Frame, first: bool) -> tuple[dict[str, Any], bytes]:
    """What a frame's body says, and the payload in it."""
    kind, body = frame.type, frame.body
    if kind == Type.DATA:
        if not body or frame.flags & Flag.RST:
            return {}, body
        return _message(body) if first else ({"message": "goes on"}, body)
    if kind == Type.LINK:
        link = frames.Link.decode(body)
        return {
            "session": link.session.hex(),
            "resumed": link.resumed,
            "recv_next": link.recv_next,
            "send_next": link.send_next,
        }, b""
    if kind == Type.CREDIT:
        credit = frames.Credit.decode(body, frame.stream)
        return {"limit": credit.limit} | ({} if credit.streams is None else {"streams": credit.streams}), b""
    if kind == Type.ACK:
        return {"next": frames.decode_ack(body)}, b""
    if kind in (Type.PING, Type.PONG):
        return dict(frames.Ping.decode(body)._asdict()), b""
    if kind == Type.CLOSE:
        return dict(frames.Close.decode(body)._asdict()), b""
    return {}, b""


def _message(body: bytes) -> tuple[dict[str, Any], bytes]:
    kind = body[0]
    name = messages.Kind(kind).name if kind in messages.Kind._value2member_map_ else str(kind)
    said: dict[str, Any] = {"message": name}
    if kind in (messages.ITEM, messages.RAW) and len(body) >= messages.ITEM_HEAD:
        return said | {"index": int.from_bytes(body[1:9], "big")}, body[messages.ITEM_HEAD :]
    if kind in (messages.Kind.OPEN, messages.Kind.END):
        try:
            envelope, payload = messages.split_envelope(body)
        except ProtocolError:  # it goes on in the next frame
            return said, body[5:]
        for field in ("type", "method", "message_id", "trace_id", "span_id", "parent_id", "ttl"):
            if value := getattr(envelope, field):
                said[field] = value
        return said, payload
    return said, body[1:]
