"""The called side: from an opened stream to a handler, and from what it returns to an answer.

Knows: methods, policy, deadlines, outcomes. Refuses to know: sockets, keys, names' sources. Called by: endpoint
(`serve`), agent. A handler that ends without waiting costs no task; its answer leaves in the same turn of the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from types import CodeType
from typing import TYPE_CHECKING, Any

from hermes_peer.access.names import is_method_name
from hermes_peer.agent.calling import TTL_DEFAULT, TTL_MAX
from hermes_peer.agent.context import new_trace
from hermes_peer.agent.inbound import Inbound
from hermes_peer.agent.local import LocalCall, Locals
from hermes_peer.agent.methods import Method, Methods, unknown_method
from hermes_peer.agent.outcomes import Outcomes
from hermes_peer.core.session import Session
from hermes_peer.core.stream import Stream
from hermes_peer.errors import CallError, Code, DeadlineExceeded, PermissionDenied, ProtocolError, Unavailable
from hermes_peer.runtime.contact import Contact
from hermes_peer.runtime.deadlines import Deadlines
from hermes_peer.runtime.runner import Runner
from hermes_peer.wire.messages import Envelope, check_envelope, split_envelope

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent

log = logging.getLogger("hermes_peer.call")


ALLOWED_MAX = 10_000
DURABLE_TTL_MAX = 30 * 86_400.0


class Server:
    """One agent's called side. `running` holds every call whose handler has not ended."""

    def __init__(self, agent: HermesAgent, methods: Methods, loop: asyncio.AbstractEventLoop) -> None:
        self.agent = agent
        self.methods = methods
        self.loop = loop
        self.deadlines = Deadlines(loop)
        self.runner = Runner(loop)
        self.context = contextvars.copy_context()  # what every handler begins with
        self.running: set[Inbound] = set()
        self.outcomes = Outcomes(loop.time)
        self.locals = Locals(self)
        self._allowed: set[tuple[Any, frozenset[str], Method]] = set()  # what the matrix has said yes to
        self.draining = False
        self._told_of_threads = False
        self.served = 0

    def serve(self, contact: Contact, stream: Stream, body: bytes, fin: bool, cost: int) -> None:
        """A peer opened a stream; `body` is its first message."""
        session = contact.session
        assert session is not None
        session.consumed(stream, cost)
        if body[0] != 1:
            raise ProtocolError("a stream must begin with OPEN")
        unread = ""
        try:
            envelope, payload = split_envelope(body)
        except ProtocolError as error:  # one message that cannot be read spoils nothing but itself (HPC-036)
            envelope, payload, unread = Envelope(), b"", str(error)
        inbound = Inbound(self, contact, session, stream, envelope)
        stream.owner = inbound
        self.take(inbound, payload, fin, unread)

    def take(self, inbound: Inbound, payload: bytes, fin: bool, unread: str = "") -> None:
        """Run what was called, whichever way it came, or answer why not."""
        self.served += 1
        try:
            if unread:
                raise CallError("invalid_envelope", unread, code=Code.ERROR_INVALID_REQUEST)
            method = self._admit(inbound.contact, inbound.envelope, payload, inbound)
            if method is not None and inbound.envelope.delivery == "durable":
                self._take_durable(inbound, method, payload, fin)
            elif method is not None:
                inbound.run(method, payload, fin)
        except Exception as error:
            inbound.finished(None, error)

    def _admit(self, contact: Contact, envelope: Envelope, payload: bytes, inbound: Inbound) -> Method | None:
        """The method to run; None if an earlier outcome answers. Raises CallError."""
        problem = check_envelope(envelope)
        if problem:
            raise CallError("invalid_envelope", problem, code=Code.ERROR_INVALID_REQUEST)
        if self.draining:
            raise Unavailable("draining", "this agent is shutting down; call another instance", retryable=True)
        ttl = envelope.ttl
        if ttl is None:
            ttl = TTL_DEFAULT
        elif ttl <= 0:
            raise DeadlineExceeded("expired", "the ttl was spent before the call could run")
        inbound.ttl = ttl = ttl if ttl < TTL_MAX else TTL_MAX
        inbound.deadline = self.loop.time() + ttl
        if not envelope.trace_id:
            envelope.trace_id = new_trace()
        name = envelope.method
        method = self.methods.get(name) if name else self.methods.default
        if method is None:
            raise self._refusal(contact, name, method)
        question = (contact.peer, contact.peer.names, method)
        if question not in self._allowed:
            if not self.agent.allows(contact, method.name):
                raise self._refusal(contact, name, method)
            if len(self._allowed) > ALLOWED_MAX:
                self._allowed.clear()
            self._allowed.add(question)
        if method.min_ttl is not None and ttl < method.min_ttl and envelope.delivery == "volatile":
            raise DeadlineExceeded(
                "min_ttl", f"{name} needs {method.min_ttl:g} s, the call has {ttl:g} s left", timer="min_ttl"
            )
        if envelope.own_id and envelope.delivery == "volatile":
            principal, id = contact.peer.fingerprint, envelope.message_id
            if not self.outcomes.begin(principal, id, method.name, payload, inbound):
                return None
            inbound.entered = True
        return method

    def _take_durable(self, inbound: Inbound, method: Method, payload: bytes, fin: bool) -> None:
        """Durable work: the journal's from here on; the stream only waits for its end."""
        if not fin:
            raise CallError("items", "durable work takes no items: put them into the payload", code=2)
        ttl = inbound.envelope.ttl
        inbound.envelope.ttl = TTL_DEFAULT if ttl is None else min(ttl, DURABLE_TTL_MAX)
        self.agent._running().durable.take(
            inbound.contact, inbound.session, inbound.stream, inbound.envelope, method, payload
        )

    def _refusal(self, contact: Contact, name: str, method: Method | None) -> CallError:
        """Policy before existence: a caller learns of no method that it may not call."""
        # Asked as if it were public: of what is not, whoever may call what is hears the same as of what is not there.
        public = bool(name) and self.agent.allows(contact, name, public=True)
        if public or (name and not is_method_name(name)):
            allowed = [m.name for m in self.methods if self.agent.allows(contact, m.name)]
            error = unknown_method(name, [n for n in allowed if not n.startswith("hermes.")])
            if public and not self.agent.allows(contact, name):
                error.message += f"; {contact.name} is shown the methods marked public=True, and no others"
            return error
        if method is None and not name:
            return CallError("no_method", "the call names no method, and this agent has no default one", code=2)
        called = name[:128] or "the default method"
        return PermissionDenied(
            "policy",
            f"{contact.name} may not call {called} of {self.agent.name}; "
            "a rule in that agent's policy.toml would allow it",
        )

    async def ask(self, contact: Contact, method: str, payload: Any, ttl: float | None) -> Any:
        """A call back to whoever called."""
        local: Any = contact  # it plays the part of a contact and is none
        if isinstance(local, LocalCall):
            return await local.ask(method, payload, ttl)
        return await self.agent.call_contact(contact, method, payload, ttl=ttl, reserved=True)

    def session_ended(self, contact: Contact, session: Session) -> None:
        """Volatile handlers have nobody left to answer to, unless their caller said `detach`."""
        owners = [stream.owner for stream in session.places.streams.values() if not stream.mine]
        for owner in owners:
            if owner is not None:
                owner.abandoned()

    def recheck(self) -> None:
        """Policy or trust changed: what is no longer allowed ends now (attack 57)."""
        self._allowed.clear()
        for inbound in list(self.running):
            if inbound.method is not None and not self.agent.allows(inbound.contact, inbound.method.name):
                inbound.stop(PermissionDenied("policy", "a rule that allowed this call was taken back"))

    def threads_full(self, retryable: bool) -> Unavailable:
        """No thread became free for a plain `def` handler within its ttl. Said in the log once."""
        threads = self.agent.threads
        if not self._told_of_threads:
            self._told_of_threads = True
            log.warning(
                "all %d threads for plain def handlers are taken, and %d calls wait: let slow handlers be async def, "
                "or give them up earlier",
                threads.alive,
                threads.waiting,
            )
        said = f"all threads of {self.agent.name} are taken by other calls: this one did not begin in time"
        return Unavailable("threads_full", said, retryable=retryable)

    def whose(self, code: CodeType) -> str:
        """The method whose handler is this code; empty if it is of none."""
        for method in self.methods:
            if getattr(inspect.unwrap(method.handler), "__code__", None) is code:
                return method.name
        return ""

    async def close(self) -> None:
        """Nothing of ours runs afterwards, but for a handler that takes no notice of being cancelled."""
        self.deadlines.close()
        tasks = self.runner.close()
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        for inbound in self.running:
            log.warning("%s takes no notice of being cancelled: the agent ends without it", inbound.envelope.method)
