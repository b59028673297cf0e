"""hermes.* methods of durable work: what a submitter may ask of the receiver, and an operator of either.

Knows: requests and answers. Refuses to know: who may operate; the policy decides before. Called by: service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

from hermes_peer.agent.context import CURRENT
from hermes_peer.agent.durable.rows import consumed, outcome_of
from hermes_peer.agent.methods import Method
from hermes_peer.errors import CallError, Code, JournalError, Unavailable, UsageError, error_body
from hermes_peer.journal.values import Sent, SentState

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.durable.inbox import Inbox
    from hermes_peer.agent.durable.outbox import Outbox

BRIEF = 1000  # characters of an error's message in a list


def durable_methods(agent: HermesAgent) -> list[Method]:
    """settle, resume, cancel (for the submitting key only); ticket, dead (for operators of this agent)."""

    def principal() -> bytes:
        request = CURRENT.get()
        assert request is not None
        return request.principal

    async def halves() -> tuple[Inbox, Outbox]:
        try:
            return await agent._running().durable.open()
        except JournalError as error:
            raise _unavailable(error) from None

    async def settle(ids: list[str]) -> int:
        """The caller has the outcomes of these works of his: they may be forgotten."""
        inbox, _ = await halves()
        try:
            return await inbox.settle(principal(), ids)
        except JournalError as error:
            raise _unavailable(error) from None

    async def resume(message_id: str, offset: int = 0) -> AsyncIterator[Any]:
        """Stream items of the caller's own work from an offset on, then its result."""
        inbox, _ = await halves()
        try:
            async for item in inbox.resume(principal(), message_id, max(0, offset)):
                yield item
        except JournalError as error:
            raise _unavailable(error) from None

    async def cancel(message_id: str) -> bool:
        """Give the caller's own work up."""
        inbox, _ = await halves()
        return await inbox.cancel(principal(), message_id)

    async def ticket(message_id: str, wait: bool = False) -> dict[str, Any]:
        """Where work that this agent submitted stands; with `wait`, once it has ended."""
        _, outbox = await halves()
        row = await outbox.row(message_id)
        if wait and row is not None:
            try:
                await agent.ticket(message_id).result()
            except CallError:
                pass  # the state below says what it was
            except JournalError as error:
                raise _unavailable(error) from None
            row = await outbox.row(message_id)
        if row is None:
            raise CallError("unknown_ticket", f"this agent never submitted {message_id}", code=2)
        return shown(row, outbox)

    async def dead(action: Literal["list", "show", "replay", "discard"], message_id: str = "", after: int = 0) -> Any:
        """The dead letters of this agent; a list has at most 500, behind the one whose `seq` is `after`."""
        _, outbox = await halves()
        request = CURRENT.get()
        assert request is not None
        try:
            if action == "list":
                return [brief(row) for row in await outbox.letters.page(after)]
            if action == "replay":
                return shown(await outbox.letters.replay(message_id, request.caller))
            if action == "discard":
                await outbox.letters.discard(message_id)
                return {"message_id": message_id, "discarded": True}
        except UsageError as error:
            raise CallError("no_dead_letter", str(error), code=Code.ERROR_INVALID_REQUEST) from None
        row = await outbox.row(message_id)
        if row is None:
            raise CallError("no_dead_letter", f"this agent knows of no {message_id}", code=2)
        return shown(row) | {"payload": row.payload.decode("utf-8", "replace")[:10_000]}

    return [
        Method("hermes.settle", settle),
        Method("hermes.resume", resume),
        Method("hermes.cancel", cancel),
        Method("hermes.ticket", ticket),
        Method("hermes.dead", dead),
    ]


def _unavailable(error: JournalError) -> Unavailable:
    return Unavailable("journal", str(error), retryable=True)


def brief(row: Sent) -> dict[str, Any]:
    """A dead letter as one of many: without its error's details, which may be long."""
    seen = shown(row) | {"seq": row.seq}
    error = seen["error"] = dict(seen["error"])
    error.pop("details", None)
    error["message"] = error["message"][:BRIEF]
    return seen


def shown(row: Sent, outbox: Outbox | None = None) -> dict[str, Any]:
    """A submitted work as people and programs see it; `outbox`: of the agent that delivers it, if it runs here.

    All of it is of one moment: a state that was read later than the row could be "done" without a result.
    """
    seen: dict[str, Any] = {
        "message_id": row.message_id,
        "state": outbox.state(row) if outbox is not None else row.state.name.lower(),
        "target": row.target,
        "method": row.method,
        "attempts": row.attempts,
        "created_ms": row.created_ms,
        "expires_ms": row.expires_ms,
        "offset": consumed(row),
    }
    if row.requeued_ms:
        seen |= {"requeued_ms": row.requeued_ms, "requeued_by": row.requeued_by}
    if row.state in (SentState.DONE, SentState.DEAD):
        try:
            seen["result"] = outcome_of(row)
        except CallError as error:
            seen["error"] = error_body(error)
    return seen
