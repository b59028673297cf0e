"""HermesAgent: the face of the SDK.

Knows: what an agent offers and how it calls others. Refuses to know: frames, sessions, sockets.
Called by: users; everything on the floors above uses these names and no others.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_peer.agent import fanout
from hermes_peer.agent.asking import Asking
from hermes_peer.agent.calling import Outgoing, make_envelope
from hermes_peer.agent.methods import Method, Methods, collect
from hermes_peer.agent.reach import reach
from hermes_peer.agent.streams import Stream, StreamCall
from hermes_peer.agent.tasks import TaskEnvelope, TaskHandle, task_method
from hermes_peer.core.config import Config
from hermes_peer.errors import SessionLost, Unavailable, UsageError
from hermes_peer.runtime.contact import Contact
from hermes_peer.runtime.threads import Threads
from hermes_peer.wire import jsons

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life
    from hermes_peer.registry.record import Record

Handler = TypeVar("Handler", bound=Callable[..., Any])
RETRY_S = (0.0, 1.0, 2.0, 4.0)
LATER = "durable work (submit, ticket) comes with a later release; use call() or stream()"
_EMPTY = b"{}"


class HermesAgent:
    """An agent: methods that others call, and calls to others (sdk, "An agent and a caller").

    `agent_id` is the stable name. `home` is the folder with keys, trust and policy (default: HERMES_PEER_HOME, else
    the platform's data folder). `listen` is an address or several, e.g. "hermes://0.0.0.0:7891"; without it a Unix
    socket of this user; `False` for none. `registry_url` is a folder that agents of several homes share.
    `keep_links` names agents to stay connected to. `encrypt=False` asks for unsealed links, which only two ends on
    one host grant each other. Raises UsageError for a name outside the grammar.
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
    ) -> None:
        from hermes_peer.access.names import check_agent_name

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
        self.methods = Methods()
        self.periodic: list[tuple[float, Callable[[], Any]]] = []
        self.threads = Threads(f"{self.name}-handler")
        self._watchers: list[Callable[[str, str, str, float], Any]] = []
        self._lifespan: Callable[[HermesAgent], Any] | None = None
        self._asking = Asking()
        self._fanout = fanout.Guard()
        self._life: Life | None = None
        self._stopped: asyncio.Event | None = None
        from hermes_peer.agent.service import own_methods

        for method in own_methods(self):
            self.methods.add(method, own=True)

    # ------------------------------------------------------------------ what it offers
    def method(self, name: str, **options: Any) -> Callable[[Handler], Handler]:
        """Register a handler: `@agent.method("text.shout")`. Options: min_ttl, public, default. Raises UsageError."""
        return self._register(lambda handler: Method(name, handler, **options))

    def event(self, name: str, **options: Any) -> Callable[[Handler], Handler]:
        """Register a handler of an event that others `emit`."""
        return self._register(lambda handler: Method(name, handler, kind="event", **options))

    def task(self, *args: Any, **options: Any) -> Any:
        """`@agent.task("report")` registers a worker; `agent.task("worker", "report", TaskEnvelope(...))` starts one.

        The started task is a TaskHandle: iterate ProgressEvents, `await result()`. `on_request_info=` (a function or
        coroutine of one RequestInfo) answers the worker's questions; `ttl` defaults to the envelope's timeout.
        """
        if len(args) == 1:
            return self._register(lambda handler: task_method(args[0], handler, **options))
        return self._start_task(*args, **options)

    def include(self, obj: Any) -> None:
        """Register everything that `@method(...)` marked in an object, a module or a function. Raises UsageError."""
        for method in collect(obj):
            self.add_method(method)

    def add_method(self, method: Method | str, handler: Callable[..., Any] | None = None, **options: Any) -> None:
        """Register at run time; peers and the registry hear of it without a restart (mission I15)."""
        if not isinstance(method, Method):
            if handler is None:
                raise UsageError("add_method takes a name and a handler")
            method = Method(method, handler, **options)
        self.methods.add(method)
        if self._life is not None:
            self._life.readdress()

    def remove_method(self, name: str) -> None:
        """Take a method away at run time; calls that run go on. Raises UsageError."""
        self.methods.remove(name)
        if self._life is not None:
            self._life.readdress()

    def lifespan(self, function: Callable[[HermesAgent], Any]) -> Callable[[HermesAgent], Any]:
        """Register an async generator function of the agent: runs to its `yield` at start, the rest at the end."""
        self._lifespan = function
        return function

    def on_link(self, function: Callable[[str, str, str, float], Any]) -> Callable[[str, str, str, float], Any]:
        """Hear of lines: `function(peer, "lost" | "back", reason, seconds_without)`. Calls do not need it."""
        self._watchers.append(function)
        return function

    def link_noticed(self, contact: Contact, what: str, text: str, seconds: float) -> None:
        for function in self._watchers:
            function(contact.name, what, text, seconds)

    def every(self, seconds: float) -> Callable[[Handler], Handler]:
        """Run a function every so many seconds while the agent runs: `@agent.every(60)`."""

        if not (isinstance(seconds, int | float) and 0 < seconds < float("inf")):
            raise UsageError(f"every() takes a number of seconds above 0, not {seconds!r}")

        def register(function: Handler) -> Handler:
            self.periodic.append((seconds, function))
            if self._life is not None:
                self._life.spawn(self._life._every(seconds, function))
            return function

        return register

    def _register(self, make: Callable[[Any], Method]) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.add_method(make(handler))
            return handler

        return register

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
        data = jsons.encode(payload) if payload is not None else _EMPTY
        deadlines = life.server.deadlines
        begun = now = life.loop.time()
        until = begun + envelope.ttl  # type: ignore[operator]
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
                attempt = envelope.attempt
                pause = RETRY_S[min(attempt, len(RETRY_S)) - 1]
                if isinstance(lost, Unavailable):
                    # It refused because it drains: another instance may take it, at once.
                    may, pause = lost.reason == "draining" and life.directory.other(target, contact), 0.0
                else:
                    may = lost.ran == "no" or retry
                late = life.loop.time() + pause >= until
                if items is not None or not may or late or attempt > len(RETRY_S) or self._life is not life:
                    raise
                await asyncio.sleep(pause)
                now = life.loop.time()
                envelope.attempt = attempt + 1
                envelope.ttl = until - now

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
        data = jsons.encode(payload) if payload is not None else _EMPTY

        async def open() -> StreamCall:
            life = self._running()
            contact = await reach(life, target, life.loop.time() + envelope.ttl)  # type: ignore[operator]
            self._fanout.check(method, data, contact, life.loop.time())
            assert contact.session is not None
            call = StreamCall(contact, contact.session, envelope, life.server.deadlines, on_progress=on_progress)
            call.begin(data, items)
            return call

        return Stream(open, envelope.message_id, detach)

    async def emit(self, target: str, event: str, payload: Any = None, *, ttl: float | None = None) -> None:
        """Tell another agent of an event; returns when its handler has ended. Raises what `call` raises."""
        life = self._running()
        envelope = make_envelope(event, ttl, type="event")
        data = jsons.encode(payload) if payload is not None else _EMPTY
        contact = await reach(life, target, life.loop.time() + envelope.ttl)  # type: ignore[operator]
        self._fanout.check(event, data, contact, life.loop.time())
        assert contact.session is not None
        outgoing = Outgoing(contact, contact.session, envelope, life.server.deadlines)
        outgoing.begin(data)
        await outgoing.wait()

    async def call_contact(
        self, contact: Contact, method: str, payload: Any, *, ttl: float | None = None, reserved: bool = False
    ) -> Any:
        """Call over a given contact: an ask back, or the product's own methods. Raises what `call` raises."""
        life = self._running()
        envelope = make_envelope(method, ttl)
        data = jsons.encode(payload) if payload is not None else _EMPTY
        session = contact.session
        if session is None:
            session = await asyncio.wait_for(contact.ready(), envelope.ttl)
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

    def submit(self, *args: Any, **options: Any) -> Any:
        """Durable work. Raises UsageError for now."""
        raise UsageError(LATER)

    def ticket(self, message_id: str) -> Any:
        """The ticket of durable work. Raises UsageError for now."""
        raise UsageError(LATER)

    # ------------------------------------------------------------------ life
    def allows(self, contact: Contact, method: str) -> bool:
        """The permission matrix's word on a call from `contact`."""
        return self._running().directory.allows(contact, method)

    def status(self) -> dict[str, Any]:
        """What `hermes-peer inspect` shows: identity, addresses, links, work in hand, sizes of all that is kept."""
        from hermes_peer.agent.service import status

        return status(self, self._running())

    @property
    def running(self) -> bool:
        return self._life is not None

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
