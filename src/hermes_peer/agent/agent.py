"""HermesAgent: the face of the SDK.

Knows: what an agent offers and how it calls others. Refuses to know: frames, sessions, sockets.
Called by: users; everything on the floors above uses these names and no others.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_peer.agent import fanout
from hermes_peer.agent.again import Again
from hermes_peer.agent.asking import Asking
from hermes_peer.agent.calling import Outgoing, check_items, encode_payload, make_envelope
from hermes_peer.agent.local import serve
from hermes_peer.agent.offer import Offer
from hermes_peer.agent.reach import reach
from hermes_peer.agent.streams import Stream, StreamCall
from hermes_peer.agent.tasks import TaskEnvelope, TaskHandle
from hermes_peer.core.config import Config
from hermes_peer.errors import DeadlineExceeded, HermesError, SessionLost, Unavailable, UsageError
from hermes_peer.runtime.contact import Contact
from hermes_peer.runtime.threads import Threads
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.durable.ticket import Ticket
    from hermes_peer.agent.life import Life
    from hermes_peer.registry.record import Record


class HermesAgent(Offer):
    """An agent: methods that others call, and calls to others (sdk, "An agent and a caller").

    `agent_id` is the stable name. `home` is the folder with keys, trust and policy (default: HERMES_PEER_HOME, else
    the platform's data folder). `listen` is an address or several, e.g. "hermes://0.0.0.0:7891"; without it a Unix
    socket of this user; `False` for none. `registry_url` is a folder that agents of several homes share.
    `keep_links` names agents to stay connected to. `encrypt=False` asks for unsealed links, which only two ends on
    one host grant each other. `http` opens the plain door, "127.0.0.1:8080" or a mapping (docs/doors.md), `socket` the
    same on a Unix socket: a path. Raises UsageError for a name outside the grammar.
    """

    def __init__(
        self,
        agent_id: str,
        *,
        home: str | Path | None = None,
        listen: str | Sequence[str] | bool | None = None,
        registry_url: str | None = None,
        secret_key_path: str | Path | None = None,
        keep_links: Iterable[str] = (),
        capabilities: Iterable[str] = (),
        encrypt: bool = True,
        suites: tuple[int, ...] = (1,),
        config: Config | None = None,
        redial_limit: int | None = None,
        drain_s: float = 0.5,
        slot: int | None = None,
        http: str | Mapping[str, Any] | None = None,
        socket: str | Path | Mapping[str, Any] | None = None,
    ) -> None:
        from hermes_peer.access.names import check_agent_name

        super().__init__()
        self.name = check_agent_name(agent_id)
        self.home = home
        self.listen = listen
        self.registry_path = _registry_path(registry_url)
        self.secret_key_path = secret_key_path
        self.keep_links = tuple(keep_links)
        self.capabilities = tuple(capabilities)
        self.encrypt = encrypt
        self.suites = suites
        self.config = config or Config()
        self.redial_limit = redial_limit
        self.drain_s = drain_s
        self.http = http
        self.socket = socket
        self.slot = slot  # which of the name's slots, for whoever needs that key and journal; None: the lowest free
        self.takes_work = True  # False, before it runs: it only goes on with what was submitted in its slot
        self.threads = Threads(f"{self.name}-handler")
        self._asking = Asking()
        self._fanout = fanout.Guard()
        self._life: Life | None = None
        self._stopped: asyncio.Event | None = None
        from hermes_peer.agent.service import own_methods

        for method in own_methods(self):
            self.methods.add(method, own=True)

    # ------------------------------------------------------------------ calling others
    async def call(
        self,
        target: str = "",
        method: str = "",
        payload: Any = None,
        *,
        ttl: float | None = None,
        trace_id: str = "",
        message_id: str = "",
        items: AsyncIterable[Any] | None = None,
        on_progress: Callable[[Any], None] | None = None,
        target_agent_id: str = "",
        retry: bool = False,
    ) -> Any:
        """Call a method of another agent and wait for its result, `ttl` seconds at the most (default 30).

        `target` is a name, a fingerprint or an address; `payload` a JSON object. A cut line is not noticed. If the
        other process is gone, the call is made again only if it provably did not run, or if `retry` says that running
        it twice does no harm. Raises CallError and its kinds, LinkError, SessionLost, UsageError.
        """
        target = target or target_agent_id
        life = self._life
        if life is None:
            raise UsageError("the agent is not running: use `async with agent:` first")
        envelope = make_envelope(method, ttl, trace_id=trace_id, message_id=message_id)
        if items is not None:
            check_items(items)
        return await self._call(life, target, envelope, encode_payload(payload), items, on_progress, retry)

    async def _call(
        self,
        life: Life,
        target: str,
        envelope: Envelope,
        data: bytes,
        items: AsyncIterable[Any] | None = None,
        on_progress: Callable[[Any], None] | None = None,
        retry: bool = False,
    ) -> Any:
        deadlines, method = life.server.deadlines, envelope.method
        begun = now = life.loop.time()
        until = begun + envelope.ttl  # type: ignore[operator]
        again: Again | None = None
        while True:
            contact = life.directory.route(target, now)
            if contact is None:
                contact = await reach(life, target, until)
                # Looking up and dialling took of the caller's time: the other side gets what is left.
                envelope.ttl = max(0.001, until - life.loop.time())
            self._fanout.check(method, data, contact, begun)
            assert contact.session is not None
            outgoing = Outgoing(contact, contact.session, envelope, deadlines, on_progress=on_progress)
            outgoing.begin(data, items)
            try:
                return await outgoing.future
            except asyncio.CancelledError:
                outgoing.left()
                raise
            except (SessionLost, Unavailable) as lost:
                if again is None:
                    again = Again(life, target, envelope, until, retry)
                if items is not None or not await again.wait(lost, contact):
                    raise
                now = life.loop.time()

    def stream(
        self,
        target: str = "",
        method: str = "",
        payload: Any = None,
        *,
        ttl: float | None = None,
        trace_id: str = "",
        message_id: str = "",
        items: AsyncIterable[Any] | None = None,
        on_progress: Callable[[Any], None] | None = None,
        target_agent_id: str = "",
        detach: bool = False,
    ) -> Stream:
        """Call a method whose handler yields: `async with agent.stream(...) as items: async for item in items: ...`.

        Leaving early cancels the handler (unless `detach`); a lost line never does. The default ttl is 24 hours:
        a stream lives by its heartbeat. Raises, from the iteration, what `call` raises.
        """
        target = target or target_agent_id
        envelope = make_envelope(
            method, 86_400.0 if ttl is None else ttl, trace_id=trace_id, message_id=message_id, detach=detach
        )
        data = encode_payload(payload)
        check_items(items)
        again: Again | None = None

        async def open(failed: StreamCall | None = None, error: HermesError | None = None) -> StreamCall:
            nonlocal again
            life = self._running()
            if again is None:
                again = Again(life, target, envelope, life.loop.time() + envelope.ttl)  # type: ignore[operator]
            if failed is not None and error is not None and not await again.wait(error, failed.contact):
                raise error
            contact = await reach(life, target, again.until)
            self._fanout.check(method, data, contact, life.loop.time())
            assert contact.session is not None
            call = StreamCall(contact, contact.session, envelope, life.server.deadlines, on_progress=on_progress)
            call.begin(data, items)
            return call

        return Stream(open, envelope.message_id, detach, again=items is None)

    async def emit(
        self, target: str, event: str, payload: Any = None, *, ttl: float | None = None, durable: bool = False
    ) -> None:
        """Tell another agent of an event; returns when its handler has ended, or, if `durable`, once it is on the
        other side's disk. Raises what `call` or `submit` raises."""
        life = self._running()
        if durable:
            _, outbox = await life.durable.open()
            row = await outbox.submit(target, event, payload, ttl=ttl, type="event")
            ticket = self.ticket(row.message_id)
            await ticket.accepted()
            if await ticket.state() == "dead":
                await ticket.result()
            return
        envelope = make_envelope(event, ttl, type="event")
        await self._call(life, target, envelope, encode_payload(payload))

    async def call_contact(
        self, contact: Contact, method: str, payload: Any, *, ttl: float | None = None, reserved: bool = False
    ) -> Any:
        """Call over a given contact: an ask back, or the product's own methods. Raises what `call` raises."""
        life = self._running()
        envelope = make_envelope(method, ttl)
        data = encode_payload(payload)
        session = contact.session
        if session is None:
            clock = asyncio.timeout(envelope.ttl)
            try:
                async with clock:
                    session = await contact.ready()
            except TimeoutError:
                said = f"no link to {contact.name} within {envelope.ttl:.3g} s"
                raise DeadlineExceeded("connect", said, origin="local", timer="connect") from None
        outgoing = Outgoing(contact, session, envelope, life.server.deadlines, reserved=reserved)
        outgoing.begin(data)
        return await outgoing.wait()

    def _start_task(
        self,
        target: str,
        name: str,
        envelope: TaskEnvelope,
        *,
        ttl: float | None = None,
        on_request_info: Callable[[Any], Any] | None = None,
    ) -> TaskHandle:
        envelope = self._asking.named(self, envelope)
        stream = self.stream(target, name, envelope, ttl=envelope.timeout + 5 if ttl is None else ttl)
        return TaskHandle(stream, self._asking.expect(envelope.task_id, on_request_info))

    async def find(self, *, capability: str | None = None) -> list[Record]:
        """The living agents that this home may know, all or those with a capability, least loaded first (M5)."""
        directory = self._running().directory
        return directory.all() if capability is None else directory.view.capability(capability, time.time())

    async def submit(
        self,
        target: str = "",
        method: str = "",
        payload: Any = None,
        *,
        ttl: float | None = None,
        message_id: str = "",
        trace_id: str = "",
        idempotency_key: str = "",
        target_agent_id: str = "",
    ) -> Ticket:
        """Durable work: on this disk when it returns, answered over lost lines and `kill -9` (mission L11).

        `ttl` (default an hour) counts while nobody can be reached, too. The same `message_id` or `idempotency_key`
        attaches to the work that is there. Raises UsageError (the id was used for other work), JournalError (it was not
        stored; the error says so if the work had left by then).
        """
        _, outbox = await self._running().durable.open()
        row = await outbox.submit(
            target or target_agent_id,
            method,
            payload,
            ttl=ttl,
            message_id=message_id,
            trace_id=trace_id,
            idempotency_key=idempotency_key,
        )
        return self.ticket(row.message_id)

    def ticket(self, message_id: str) -> Ticket:
        """The ticket of work that this agent submitted, in this process or an earlier one."""
        from hermes_peer.agent.durable.ticket import Ticket

        return Ticket(self, message_id)

    def _changed(self) -> None:
        if self._life is not None:
            self._life.readdress()

    def _another_period(self, seconds: float, function: Callable[[], Any]) -> None:
        if self._life is not None:
            self._life.spawn(self._life._every(seconds, function))

    # ------------------------------------------------------------------ life
    serve = serve

    def allows(self, contact: Contact, method: str, public: bool | None = None) -> bool:
        """The permission matrix's word on a call from `contact`; `public`: as if the method were marked so, or not."""
        if public is None:
            found = self.methods.get(method)
            public = found is not None and found.public
        return self._running().directory.allows(contact, method, public)

    def status(self) -> dict[str, Any]:
        """What `hermes-peer inspect` shows: identity, addresses, links, work in hand, sizes of all that is kept."""
        from hermes_peer.agent.service import status

        return status(self, self._running())

    @property
    def running(self) -> bool:
        return self._life is not None

    @property
    def doors(self) -> list[str]:
        """Where its plain doors are: URLs and paths; while it runs."""
        return [door.address for door in self._running().doors]

    @property
    def addresses(self) -> list[str]:
        """Where this agent listens, with its fingerprint; while it runs."""
        return [str(address) for address in self._running().addresses]

    @property
    def fingerprint(self) -> str:
        """64 hex digits; while it runs."""
        return self._running().slot.fingerprint

    def _running(self) -> Life:
        if self._life is None:
            raise UsageError("the agent is not running: use `async with agent:` or `agent.start()`")
        return self._life

    async def __aenter__(self) -> HermesAgent:
        from hermes_peer.agent.life import Life, config_of, listen_addresses, open_slot

        if self._life is not None:
            raise UsageError(f"the agent {self.name} runs already")
        home, slot = open_slot(self)
        try:
            life = Life(self, home, slot, config_of(self))
            self._stopped = asyncio.Event()
            self._life = life
            await life.begin(listen_addresses(self, slot))
        except BaseException:
            if self._life is not None:
                await self._life.close(0)
            slot.release()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop: new work is refused, running handlers get `drain_s`. Legal from any task, in any order, twice."""
        life = self._life
        if life is None:
            return
        await life.close(self.drain_s)

    def _ended(self, life: Life) -> None:
        if self._life is life:
            self._life = None
            if self._stopped is not None:
                self._stopped.set()

    async def run(self) -> None:
        """Run until `aclose()` or cancellation."""
        async with self:
            assert self._stopped is not None
            await self._stopped.wait()

    def start(self) -> None:
        """Run until Ctrl-C or SIGTERM; blocks. In a file given to `hermes-peer run` it returns at once."""
        from hermes_peer.agent import process

        process.start(self)


def _registry_path(url: str | None) -> Path | None:
    if url is None:
        return None
    if "://" in url and not url.startswith("file://"):
        raise UsageError(f"registry_url={url!r}: this release takes a folder such as file:///srv/hermes-registry")
    return Path(os.path.expanduser(url.removeprefix("file://")))
