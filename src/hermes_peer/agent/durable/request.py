"""The Request of durable work: it has an id and items that outlive the process, and no line to its submitter.

Knows: one Work. Refuses to know: links. Called by: handlers, through the same names as any Request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.request import Request
from hermes_peer.errors import UsageError

if TYPE_CHECKING:
    from hermes_peer.agent.durable.transaction import WorkTransaction
    from hermes_peer.agent.durable.work import Work


class WorkRequest(Request):
    """`message_id` is the key for downstream systems; `emitted` is where an idempotent generator goes on."""

    __slots__ = ("_work",)

    def __init__(self, work: Work) -> None:
        self._work = work
        self._of(work.envelope, work.payload)
        self.attempt = work.envelope.attempt + max(0, work.attempts - 1)  # tries of the sender, runs of ours

    @property
    def emitted(self) -> int:
        return self._work.begin_at()

    @emitted.setter
    def emitted(self, value: int) -> None:
        pass  # the log knows better

    @property
    def caller(self) -> str:
        return self._work.inbox.name_of(self._work.principal)

    @property
    def principal(self) -> bytes:
        return self._work.principal

    @property
    def ttl_left(self) -> float:
        return max(0.0, self._work.deadline - self._work.inbox.time())

    @property
    def items(self) -> AsyncIterator[Any]:
        raise UsageError("durable work has no items from its caller: put them into the payload")

    async def ask(self, method: str, payload: Any = None, *, ttl: float | None = None) -> Any:
        """Ask the submitter, if a line to it can be had. Raises what `call` raises."""
        if not self.caller_fingerprint:
            raise UsageError(f"{self.caller} came by a door and cannot be asked once it has left its work here")
        return await self._work.inbox.agent.call(self.caller_fingerprint, method, payload, ttl=ttl)

    async def progress(self, state: str, *, tokens_used: int = 0, partial: Any = None) -> None:
        """Progress of durable work is one of its items: whoever reads the ticket's items sees it, whenever that is."""
        from hermes_peer.agent.tasks import ProgressEvent, progress_item

        await self._work.emit(progress_item(ProgressEvent(state, tokens_used, partial)), progress=True)

    def call_sync(self, target: str, method: str, payload: Any = None, **options: Any) -> Any:
        return self._work.inbox.call_sync(target, method, payload, **options)

    def transaction(self) -> WorkTransaction:
        from hermes_peer.agent.durable.transaction import WorkTransaction

        return WorkTransaction(self._work)
