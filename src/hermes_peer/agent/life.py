"""What exists while an agent runs: its slot, endpoint, served calls, announcements, timers.

Knows: the order in which these begin and end. Refuses to know: what methods do, how calls are made.
Called by: HermesAgent, once per run. Closing is legal from any task, in any order, twice.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import os
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_peer import __version__
from hermes_peer.access.home import Home
from hermes_peer.access.slot import Slot
from hermes_peer.agent.directory import Directory
from hermes_peer.agent.durable.store import Durable
from hermes_peer.agent.lifespan import Lifespan
from hermes_peer.agent.methods import Shape, shape_of
from hermes_peer.agent.serving import Server
from hermes_peer.core.config import Config, caps_of
from hermes_peer.core.node import Node
from hermes_peer.core.session import Session
from hermes_peer.core.states import Reason
from hermes_peer.crypto.handshake import Offer
from hermes_peer.crypto.kem import MlKem768
from hermes_peer.errors import LinkError, UsageError
from hermes_peer.registry.folder import FolderRegistry
from hermes_peer.registry.presence import Presence
from hermes_peer.registry.record import LEASE, Record
from hermes_peer.runtime.contact import Contact
from hermes_peer.runtime.endpoint import Endpoint
from hermes_peer.wire.address import Address

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent

log = logging.getLogger("hermes_peer.agent")
RELOAD_S = 0.5
DOORS = {"http": "hermes_peer.doors.server", "socket": "hermes_peer.doors.unix"}  # what is asked for, and who opens it
CANCEL_S = 0.25  # what a cancelled handler has for its `finally`
KEEP_S = 2.0  # between two looks at a link of keep_links
REFUSED_S = 120.0  # the same after a refusal that is not going to change by itself


class Life:
    """One run of one agent in one event loop."""

    def __init__(self, agent: HermesAgent, home: Home, slot: Slot, config: Config) -> None:
        self.agent = agent
        self.home = home
        self.slot = slot
        self.loop = asyncio.get_running_loop()
        self.instance = os.urandom(8).hex()
        self.started = time.time()
        self.addresses: list[Address] = []
        registry = FolderRegistry(agent.registry_path or home.registry_dir)
        self.directory = Directory(home, slot.identity.fingerprint, agent.name, registry)
        self.server = Server(agent, agent.methods, self.loop)
        self.server.draining = not agent.takes_work  # then nothing that is sent to it is refused for good
        caps = caps_of(
            config,
            agent.name,
            self.instance,
            tags=tuple(agent.capabilities),
            seal="required" if agent.encrypt else "none",
            product=f"hermes-peer/{__version__}",
        )
        node = Node(
            slot.identity,
            caps,
            config,
            self.directory.judge,
            entropy=os.urandom,
            kem=MlKem768(),
            offer=Offer(suites=agent.suites),
            realm=home.realm,
            boot_id=_boot_id(),
            wall_ms=lambda: time.time_ns() // 1_000_000,
        )
        self.endpoint = Endpoint(
            node,
            serve=self.server.serve,
            ended=self._session_ended,
            changed=self._link_changed,
            redial_limit=agent.redial_limit,
            whose=self.server.whose,
        )
        self.directory.endpoint = self.endpoint
        self.endpoint.noticed = agent.link_noticed
        self.endpoint.queued_ms = lambda: agent.threads.queue_ms
        self.durable = Durable(self)
        self.doors: list[Any] = []
        self._presence: Presence | None = None
        self._announce_timer: asyncio.TimerHandle | None = None
        self._reload_timer: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._lifespan = Lifespan(agent._lifespan, agent) if agent._lifespan is not None else None
        self._beginning: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._over = False

    async def begin(self, listen: Sequence[Address]) -> None:
        """The user's own beginning, then listen, announce, watch the trust list.

        Raises LinkError for an address that cannot be had, UsageError if it is closed meanwhile, and what the
        lifespan raises.
        """
        self._beginning = self.loop.create_task(self._begin(listen))
        try:
            await self._beginning
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise UsageError(f"the agent {self.agent.name} was closed while it began") from None

    async def _begin(self, listen: Sequence[Address]) -> None:
        import msgspec

        if self._lifespan is not None:
            await self._lifespan.begin()
        await self.durable.begin()
        for address in listen:
            taken = await self.endpoint.listen(address)
            self.addresses.append(taken.with_fingerprint(self.slot.fingerprint))
        node = self.endpoint.node
        node.caps = msgspec.structs.replace(
            node.caps, addr=tuple(str(a) for a in self.addresses if a.host not in ("0.0.0.0", "::"))
        )
        if self.addresses:
            self._presence = Presence(
                FolderRegistry(self.agent.registry_path or self.home.registry_dir), self.slot.identity, self._record
            )
            self._announce()
        for asked, module in DOORS.items():
            if wanted := getattr(self.agent, asked):
                self.doors.append(await import_module(module).start(self.agent, wanted))
        self._reload_timer = self.loop.call_later(RELOAD_S, self._reload)
        for target in self.agent.keep_links:
            self.spawn(self._keep(target))
        for period, function in self.agent.periodic:
            self.spawn(self._every(period, function))

    async def close(self, grace: float) -> None:
        """Refuse new work, give what runs `grace` seconds, end the rest.

        It is done by a task of its own, so that whoever calls may be cancelled, or be one of those that it ends.
        """
        if self._closing is None:
            self._closing = self.endpoint.context.copy().run(self.loop.create_task, self._close(grace))
        await asyncio.shield(self._closing)

    async def _close(self, grace: float) -> None:
        try:
            self.server.draining = True
            if self._beginning is not None and not self._beginning.done():
                self._beginning.cancel()
                await asyncio.wait([self._beginning])
            if self._reload_timer is not None:
                self._reload_timer.cancel()
            if self._announce_timer is not None:
                self._announce_timer.cancel()
            if self._presence is not None:
                self._presence.withdraw()
            self.endpoint.announce_drain()
            await self._emptied(grace)
            await self.durable.drain()
            for inbound in list(self.server.running):
                inbound.stop(_shutting_down())
            await self._emptied(CANCEL_S)  # their last words
            for door in self.doors:
                await door.close()
            if self._lifespan is not None:
                try:
                    await self._lifespan.end()
                except Exception:
                    log.exception("the lifespan of %s failed at its end", self.agent.name)
            await self._end_background()
            await self.endpoint.close()
            await self.server.close()
            await self.durable.close()
        finally:
            self.agent.threads.shutdown()
            self.slot.release()
            self.agent._ended(self)

    async def _emptied(self, seconds: float) -> None:
        until = self.loop.time() + seconds
        while (self.server.running or self.durable.running) and self.loop.time() < until:
            await asyncio.sleep(0.005)

    async def _end_background(self) -> None:
        """Whatever one of these begins in its last moment is cancelled at birth."""
        self._over = True
        for task in self._background:
            task.cancel()
        until = self.loop.time() + CANCEL_S
        while self._background and (left := until - self.loop.time()) > 0:
            await asyncio.wait(self._background, timeout=left)
        for task in self._background:
            name = getattr(task.get_coro(), "__qualname__", task)
            log.warning("%s takes no notice of being cancelled: the agent ends without it", name)

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """A task that lives no longer than this run. Deliveries of durable work go on while handlers have their last
        moment: one of them may wait for an answer."""
        task: asyncio.Task[Any] = self.endpoint.context.copy().run(self.loop.create_task, coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        if self._over:
            task.cancel()
        return task

    @property
    def running(self) -> bool:
        """False once it is closing."""
        return self._closing is None

    def readdress(self) -> None:
        """Methods or tags changed: tell the registry at once (mission I15)."""
        if self._presence is not None and self._closing is None:
            self._announce()

    # ------------------------------------------------------------------ inside
    def _link_changed(self, contact: Contact) -> None:
        self.directory.changed(contact)
        if contact.pump is not None:
            self.durable.linked(contact)

    def _session_ended(self, contact: Contact, session: Session, reason: Reason, text: str) -> None:
        self.server.session_ended(contact, session)
        waiting = [stream.owner for stream in session.places.streams.values()]
        waiting += [stream.owner for stream in session.sender.unsent()]
        for owner in waiting:
            lost = getattr(owner, "lost", None)
            if lost is not None:
                lost(f"the session with {contact.name} ended: {text or reason.name.lower()}")
        self.directory.changed(contact)

    def _record(self) -> Record:
        agent = self.agent
        return Record(
            agent_id=agent.name,
            instance_id=self.instance,
            key="",
            addresses=[str(a) for a in self.addresses],
            capabilities=list(agent.capabilities),
            seq=0,
            issued_ms=0,
            lease_s=LEASE,
            load=len(self.server.running),
            methods=[m.name for m in agent.methods if m.public],
        )

    def _announce(self) -> None:
        assert self._presence is not None
        if self._announce_timer is not None:
            self._announce_timer.cancel()
        before = self._presence.problem
        delay = self._presence.renew(time.time())
        if self._presence.problem != before:
            log.warning("%s", self._presence.problem or "the registry has us listed again")
        self._announce_timer = self.loop.call_later(delay, self._announce)

    def _reload(self) -> None:
        self._reload_timer = self.loop.call_later(RELOAD_S, self._reload)
        trust, policy = self.directory.changes()
        for contact in list(self.endpoint.contacts.values()):  # always: a pin may also end by its date
            caps = contact.peer.caps
            if caps is None or contact.session is None:
                continue
            verdict = self.directory.judge(contact.peer.fingerprint, caps)
            if verdict.reason is not Reason.NONE:
                log.warning("%s is no longer trusted: its session ends", contact.name)
                self.endpoint.end_session(contact, Reason.UNTRUSTED, verdict.text)
        if trust or policy:
            self.server.recheck()
            self.durable.recheck()

    async def _keep(self, target: str) -> None:
        """Hold a link to `target`, so that it can call us though we do not listen; for as long as we run."""
        while self.running:
            pause = KEEP_S
            try:
                contact = self.directory.find(target, self.loop.time())[0]
                contact.keep = True  # from here on it redials by itself, unless it is refused for good
                await contact.ready()
            except LinkError as error:
                log.info("no link to %s yet: %s", target, error)
                if error.refused:  # a clone of us is there, or we are not wanted: no use in knocking (HPC-045)
                    pause = REFUSED_S
            except Exception:
                log.exception("the link to %s cannot be kept", target)
                pause = REFUSED_S
            await asyncio.sleep(pause)

    async def _every(self, period: float, function: Any) -> None:
        while True:
            await asyncio.sleep(period)
            if not self.running:
                return
            try:
                if shape_of(function) is Shape.THREAD:  # it may block
                    result = await self.loop.run_in_executor(self.agent.threads, function)
                else:
                    result = function()
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("a periodic function of %s failed", self.agent.name)


def open_slot(agent: HermesAgent) -> tuple[Home, Slot]:
    """The home and the lowest free slot of this agent's name. Raises UsageError."""
    home = Home.open(agent.home)
    return home, home.slot(agent.name, secret_key_path=agent.secret_key_path, number=agent.slot)


def config_of(agent: HermesAgent) -> Config:
    """The agent's limits; one that nobody can dial keeps its links."""
    return dataclasses.replace(agent.config, keep=agent.config.keep or bool(agent.keep_links) or agent.listen is False)


def listen_addresses(agent: HermesAgent, slot: Slot) -> list[Address]:
    """Where to listen: what was asked for, else the Unix socket of the slot. Raises UsageError."""
    if agent.listen is False:
        return []
    wanted = agent.listen
    if wanted is None or wanted is True:
        return [Address.unix(str(slot.socket_path))]
    texts = [wanted] if isinstance(wanted, str) else list(wanted)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"listen= takes addresses such as 'hermes://0.0.0.0:7891', not {text!r}")
    addresses = [Address.parse(text) for text in texts]
    if addresses and all(address.scheme == "memory" for address in addresses):
        return addresses  # a test without sockets
    return [Address.unix(str(slot.socket_path)), *addresses]


def _boot_id() -> bytes:
    """What only this running machine knows; two processes that have it are on one host (mission M10). Empty where the
    system has no such thing: a host name is no secret, and TCP links stay sealed there."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return b""


def _shutting_down() -> Any:
    from hermes_peer.errors import Unavailable

    return Unavailable("shutdown", "this agent was shut down while the call ran", retryable=True)
