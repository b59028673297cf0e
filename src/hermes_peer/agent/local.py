"""The way in for doors: a call that comes from this process and not over a link.

Knows: principals such as `door:loopback`, and how one object plays contact, session and stream for an `Inbound`.
Refuses to know: HTTP, sockets, tokens. Called by: `agent.serve`, that is by the doors; serving (asks back).
Policy, ttl, trace, outcomes, drain and schemas are those of every call: there is no second dispatcher.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from hermes_peer.agent.calling import encode_payload
from hermes_peer.agent.context import CURRENT, new_ids
from hermes_peer.agent.inbound import Inbound, read_item
from hermes_peer.errors import CallError, Code, DeadlineExceeded, UsageError, call_error
from hermes_peer.wire import jsons, messages
from hermes_peer.wire.messages import Envelope, Kind, pack_item, split_envelope

if TYPE_CHECKING:
    from hermes_peer.access.home import Home
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.serving import Server

WINDOW = 256 * 1024  # bytes of items that nobody has taken: then the generator waits
FEED_MAX = 1024 * 1024  # bytes of the caller's items that the handler has not read
PRINCIPALS_MAX = 10_000
LOOPBACK = "door:loopback"
_OK = len(messages.RESPONSE_HEAD)
_ERROR = len(messages.ERROR_HEAD)
_PROGRESS = int(Kind.PROGRESS)
QUESTION = 0xFF  # kind byte of what a door puts among the messages of a call: the handler asks back
_KEY_SIZE = 32  # of a fingerprint: what stands for a door must never look like one

OnAsk = Callable[["LocalCall", str, bytes], Any]


class Principal:
    """Who calls by a door: plays the part of a peer. `fingerprint` is a key for what is kept of him, never a hash."""

    __slots__ = ("calls", "fingerprint", "name", "names")

    def __init__(self, name: str) -> None:
        if not (
            name.startswith("door:") and 5 < len(name) <= messages.ID_MAX and name.isascii() and name.isprintable()
        ):
            raise UsageError(f'a principal is a text such as "door:loopback", not {name!r}')
        self.name = name
        # A process of a user who may open our socket can do what any process of this machine can.
        self.names = frozenset({name, LOOPBACK}) if name.startswith("door:uid:") else frozenset({name})
        key = name.encode()
        self.fingerprint = key if len(key) != _KEY_SIZE else key + b"\0"
        self.calls: dict[str, LocalCall] = {}  # what runs, by message id


class LocalCall:
    """One call from this process. Iterate it for items, `await result()` for the answer.

    `message_id`, `trace_id`; `done` once there is an answer. `cancel()` gives it up, `detach()` leaves it running.
    A generator that nobody reads waits after 256 KiB.
    """

    __slots__ = (
        "_answer",
        "_fed",
        "_on_ask",
        "_on_progress",
        "_waiter",
        "inbound",
        "left",
        "name",
        "notify",
        "owner",
        "peer",
        "queue",
        "queued",
        "session",
        "settings",
        "unread",
    )

    # The constant side of the three parts: never a line, nothing to tell a peer.
    pump = None
    places = SimpleNamespace(tell=False)
    receiver = SimpleNamespace(credits=False)
    room = WINDOW

    def __init__(
        self, peer: Principal, limit: int, on_ask: OnAsk | None, on_progress: Callable[[Any], None] | None
    ) -> None:
        self.peer = peer
        self.name = peer.name
        self.session: LocalCall | None = self  # None: nobody listens any more
        self.inbound: Inbound = None  # type: ignore[assignment]  # set before anybody else sees it
        self.owner: Any = None  # the same, until the journal takes durable work over
        self.queue: deque[bytes] = deque()
        self.queued = 0
        self.notify = False
        self.unread = 0
        self.left = False
        self.settings = SimpleNamespace(message=limit)
        self._fed = 0
        self._answer: bytes | None = None
        self._on_ask = on_ask
        self._on_progress = on_progress
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------ the caller's side
    @property
    def message_id(self) -> str:
        return self.inbound.envelope.message_id

    @property
    def trace_id(self) -> str:
        return self.inbound.envelope.trace_id

    @property
    def ttl_left(self) -> float:
        """Seconds; 0 once the time is spent, or if the call never had any."""
        return max(0.0, self.inbound.deadline - self.inbound.server.loop.time())

    @property
    def done(self) -> bool:
        """There is an answer; items may still wait to be taken."""
        return self._answer is not None

    def answer(self) -> tuple[bool, bytes]:
        """Once `done`: whether it went well, and the JSON of the result, or of the error object."""
        assert self._answer is not None
        if self._answer.startswith(messages.RESPONSE_HEAD):
            return True, self._answer[_OK:]
        if self._answer.startswith(messages.ERROR_HEAD):
            return False, self._answer[_ERROR:]
        envelope, body = split_envelope(self._answer)
        return envelope.type == "response", body

    async def next_message(self) -> bytes | None:
        """The next ITEM, RAW, PROGRESS or ACCEPTED as it would travel (spec: messages, section 1); None at the end."""
        while not self.queue:
            if self._answer is not None:
                return None
            if self._waiter is not None:
                raise UsageError("two tasks read the same call: each item goes to one reader only")
            self._waiter = self.inbound.server.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self.queue.popleft()
        self.queued -= len(message)
        if not self.queue and self.notify:
            self.notify = False
            self.owner.writable()
        return message

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.next_message()) is not None:
            if message[0] in (messages.ITEM, messages.RAW):
                yield read_item(message)
            elif message[0] == _PROGRESS and self._on_progress is not None:
                self._on_progress(jsons.decode(message[1:]))

    async def result(self) -> Any:
        """What the handler returned. Items that nobody took are passed over. Raises CallError."""
        async for _ in self:
            pass
        ok, body = self.answer()
        if ok:
            return jsons.decode(body)
        raise call_error(jsons.decode(body), self.trace_id)

    @property
    def stays(self) -> bool:
        """It said that it goes on without its caller."""
        return self.inbound.envelope.detach or self.inbound.envelope.delivery == "durable"

    def stop(self, why: CallError) -> None:
        """End it; `why` is the answer if the handler obeys."""
        if self._answer is None:
            self.inbound.stop(why)

    def cancel(self) -> None:
        """Give it up: the handler is cancelled, and the answer says so."""
        if self._answer is None:
            self.owner.reset(b"")

    def detach(self) -> None:
        """Nobody waits any more, and it goes on. The same id and payload, sent again, get its answer."""
        if self._answer is None:
            self.left = True
            self.session = None
            self.queue.clear()
            self.queued = 0
            self.owner.writable()

    def feed(self, data: bytes) -> None:
        """One item (its JSON) for a handler that reads `request.items`; needs `items=True`."""
        if self._answer is None and not self.left:
            self.unread += len(data)
            if self.unread > FEED_MAX:
                said = f"more than {FEED_MAX} bytes of items were sent that the method had not read; send them slower"
                self.inbound.stop(CallError("items_unread", said, code=Code.ERROR_RESOURCE_EXHAUSTED))
            else:
                self.inbound.message(pack_item(messages.ITEM, self._fed) + data, False, len(data))
                self._fed += 1

    def feed_end(self) -> None:
        """No more items."""
        if self._answer is None and not self.left:
            self.inbound.message(messages.NOMORE_MESSAGE, True, 0)

    # ------------------------------------------------------------------ the handler's side: contact, session, stream
    def send(self, stream: Any, message: bytes, fin: bool = False) -> None:
        """As a contact's. Raises UsageError over the limit, so that both ways refuse the same."""
        limit = self.settings.message
        if len(message) > limit:
            raise UsageError(
                f"a message of {len(message)} bytes is over the limit of {limit}: send it as a stream of items"
            )
        if fin:
            self._answer = message
        else:
            self.queue.append(message)
            self.queued += len(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def nudge(self) -> None:
        """Nothing waits for a line."""

    def consumed(self, stream: Any, cost: int) -> None:
        """As a session's: the handler took an item."""
        self.unread -= cost

    def release(self, stream: Any) -> None:
        """As a session's: the handler's place is free."""
        self.session = None  # it is ourselves: nothing but the collector would part us
        if self.peer.calls.get(self.message_id) is self:
            del self.peer.calls[self.message_id]

    async def ask(self, method: str, payload: Any, ttl: float | None) -> Any:
        """The handler asks back. Raises CallError (no_answer) where whoever called cannot be asked."""
        if self._on_ask is None or self.left:
            raise CallError(
                "no_answer",
                "whoever called this cannot be asked back: a plain POST has no way for a question; "
                "use the WebSocket, or Accept: text/event-stream",
                code=Code.ERROR_AGENT_UNAVAILABLE,
            )
        answer = self._on_ask(self, method, encode_payload(payload))
        if not inspect.isawaitable(answer):
            return answer
        left = self.ttl_left
        clock = asyncio.timeout(left if ttl is None or ttl > left else ttl)
        try:
            async with clock:
                return await answer
        except TimeoutError:
            if not clock.expired():
                raise
            said = f"whoever called did not answer {method} in time"
            raise DeadlineExceeded("no_answer_in_time", said, origin="local", timer="ask") from None


class Locals:
    """The calls from this process that one running agent serves, by principal."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._principals: dict[str, Principal] = {}

    def principal(self, name: str) -> Principal:
        """The one object for this name. Raises UsageError for what is no principal."""
        found = self._principals.get(name)
        if found is None:
            if len(self._principals) >= PRINCIPALS_MAX:
                self._principals = {each: one for each, one in self._principals.items() if one.calls}
            found = self._principals[name] = Principal(name)
        return found

    def begin(
        self,
        principal: str,
        envelope: Envelope,
        payload: bytes,
        *,
        items: bool,
        on_ask: OnAsk | None,
        on_progress: Callable[[Any], None] | None,
    ) -> LocalCall:
        """Serve one call; it has begun, and may have ended, when this returns."""
        peer = self.principal(principal)
        call = LocalCall(peer, self._server.agent.config.message, on_ask, on_progress)
        # One object in three parts; it has the members of each that an Inbound uses.
        part = cast(Any, call)
        call.inbound = call.owner = Inbound(self._server, part, part, part, envelope)
        peer.calls.setdefault(envelope.message_id, call)
        self._server.take(call.inbound, payload, not items)
        return call

    def describe(self, principal: str) -> dict[str, Any]:
        """What this principal may call, as hermes.describe tells it to a peer."""
        from hermes_peer.agent.service import description

        caller = SimpleNamespace(peer=self.principal(principal), name=principal)
        return description(self._server.agent, cast(Any, caller))

    def cancel(self, principal: str, message_id: str) -> bool:
        """Give up a running call of this very principal; False if there is none of that id."""
        call = self.principal(principal).calls.get(message_id)
        if call is None or call.done:
            return False
        call.cancel()
        return True


def serve(
    agent: HermesAgent,
    principal: str,
    method: str,
    payload: bytes = b"{}",
    *,
    ttl: float | None = None,
    trace_id: str = "",
    message_id: str = "",
    event: bool = False,
    detach: bool = False,
    durable: bool = False,
    items: bool = False,
    on_ask: OnAsk | None = None,
    on_progress: Callable[[Any], None] | None = None,
) -> LocalCall:
    """Serve a call of this process, such as one that came by a door, as if it had come over a link.

    `principal` is the caller in policy.toml: "door:NAME". `payload` is the JSON of an object. A `message_id` of the
    caller's own is handled once, however often it comes. `items`: `feed(json)` and `feed_end()` bring items.
    `on_ask(call, method, json)` answers, now or awaited, what the handler asks back. Returns at once, also with a
    refusal: the LocalCall has the items and the answer. Raises UsageError if the agent does not run.
    """
    id, trace, span = new_ids()
    envelope = Envelope(
        "event" if event else "request",
        method,
        message_id or id,
        ttl,
        trace_id or trace,
        span,
        0,
        1,
        bool(message_id),
        detach,
        "durable" if durable else "volatile",
    )
    return agent._running().server.locals.begin(
        principal, envelope, payload, items=items, on_ask=on_ask, on_progress=on_progress
    )


def inherited() -> tuple[str, float] | None:
    """Trace id and seconds left of the request that the running handler serves; None outside of one."""
    request = CURRENT.get()
    return None if request is None else (request.trace_id, request.ttl_left)


def describe(agent: HermesAgent, principal: str) -> dict[str, Any]:
    """The methods that `principal` may call, with their schemas. Raises UsageError."""
    return agent._running().server.locals.describe(principal)


def cancel(agent: HermesAgent, principal: str, message_id: str) -> bool:
    """Give up a running call that this very principal sent; False if there is none."""
    return agent._running().server.locals.cancel(principal, message_id)


def home_of(agent: HermesAgent) -> Home:
    """The home of a running agent. Raises UsageError."""
    return agent._running().home


def state_of(agent: HermesAgent) -> str:
    """ "ready", "draining" or "stopped"."""
    life = agent._life
    return "stopped" if life is None else "draining" if life.server.draining else "ready"


def load_of(agent: HermesAgent) -> int:
    """Calls whose handlers have not ended."""
    return len(agent._running().server.running)
