"""The Request: what a handler may know of the call that it serves, and ask of its caller.

Knows: one call, seen from the called side. Refuses to know: links, how the answer travels. Called by: handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hermes_peer.errors import CallError, Code, UsageError
from hermes_peer.wire import jsons

if TYPE_CHECKING:
    from hermes_peer.agent.inbound import Inbound
    from hermes_peer.wire.messages import Envelope


class Request:
    """`message_id`, `trace_id`, `span_id`, `attempt`, `method`, `caller`, `payload`, `ttl_left`, `items`, `ask`,
    `progress`.

    Source: sdk, section "An agent and a caller"; mission L18, L19, M8.
    """

    __slots__ = (
        "_inbound",
        "_payload",
        "_value",
        "attempt",
        "emitted",
        "message_id",
        "method",
        "span_id",
        "task_id",
        "trace_id",
    )

    def __init__(self, inbound: Inbound, payload: bytes) -> None:
        self._inbound = inbound
        self._of(inbound.envelope, payload)

    def _of(self, envelope: Envelope, payload: bytes) -> None:
        self._payload = payload
        self._value: Any = _UNREAD
        self.message_id = envelope.message_id
        self.trace_id = envelope.trace_id
        self.span_id = envelope.span_id
        self.attempt = envelope.attempt
        self.method = envelope.method
        self.task_id = ""  # of the TaskEnvelope, in a task's handler
        self.emitted = 0  # stream items sent so far

    @property
    def payload(self) -> Any:
        """The payload as plain JSON values. Raises CallError (invalid_payload) if it is not an object."""
        if self._value is _UNREAD:
            try:
                self._value = jsons.decode(self._payload)
            except ValueError as error:
                raise _invalid(str(error)) from None
            if not isinstance(self._value, dict):
                raise _invalid("the payload must be a JSON object")
        return self._value

    @property
    def caller(self) -> str:
        """The granted name of the caller, proven by its key; its fingerprint if it has no name here."""
        return self._inbound.contact.name

    @property
    def caller_fingerprint(self) -> str:
        """64 hex digits; empty for whoever came by a door."""
        key = self.principal
        return key.hex() if len(key) == 32 else ""

    @property
    def principal(self) -> bytes:
        """What is kept of the caller is kept under this key: a fingerprint, or what stands for a door's caller."""
        return self._inbound.contact.peer.fingerprint

    @property
    def ttl_left(self) -> float:
        """Seconds until the caller no longer waits; nested calls get no more than this."""
        return max(0.0, self._inbound.deadline - self._inbound.server.loop.time())

    @property
    def items(self) -> AsyncIterator[Any]:
        """What the caller sends while the call runs (`items=`), each once and in order."""
        return self._inbound.items()

    async def ask(self, method: str, payload: Any = None, *, ttl: float | None = None) -> Any:
        """Ask the caller back on the same connection. It is a call: the caller's matrix decides. Raises CallError."""
        inbound = self._inbound
        return await inbound.server.ask(inbound.contact, method, payload, ttl)

    async def info(self, name: str, question: str = "", choices: list[Any] | None = None) -> Any:
        """Ask the planner for a parameter (mission L18); its `on_request_info` answers."""
        from hermes_peer.agent.tasks import REQUEST_INFO, info_for

        return await self.ask(REQUEST_INFO, info_for(self, name, question, choices))

    async def progress(self, state: str, *, tokens_used: int = 0, partial: Any = None) -> None:
        """Tell the caller how far this is; it hears it through `on_progress=`, or as a task's ProgressEvent."""
        await self._inbound.progress(state, tokens_used, partial)

    def call_sync(self, target: str, method: str, payload: Any = None, **options: Any) -> Any:
        """`agent.call` for a plain `def` handler, which runs in a thread. Raises UsageError on the event loop."""
        server = self._inbound.server
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is server.loop:
            raise UsageError("call_sync would block the event loop: use `await agent.call(...)` in an async handler")
        call = server.agent.call(target, method, payload, **options)
        return asyncio.run_coroutine_threadsafe(call, server.loop).result()

    def transaction(self) -> Any:
        """The journal's transaction, for durable work of a method with contract="transactional". Raises UsageError."""
        raise UsageError("only durable work has a transaction: let the caller use submit() rather than call()")

    def __repr__(self) -> str:
        return f"<request {self.method} {self.message_id} of {self.caller}>"


_UNREAD = object()


def _invalid(text: str) -> CallError:
    return CallError("invalid_payload", text, code=Code.ERROR_INVALID_REQUEST)
