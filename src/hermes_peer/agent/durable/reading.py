"""Reading the items of taken work: from the log, then from memory as they come, then how it ended.

Knows: the log's pieces, gaps, works in hand. Refuses to know: who asks (only the submitter's own key finds anything).
Called by: inbox, for hermes.resume.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hermes_peer.agent.durable.retry import item_value, read_end
from hermes_peer.agent.values import Final
from hermes_peer.errors import CallError, Code, OutcomeUnknown, Unavailable
from hermes_peer.journal.values import TakenState

if TYPE_CHECKING:
    from hermes_peer.agent.durable.inbox import Inbox

PIECE = 500  # items read from the log at a time


async def read(inbox: Inbox, principal: bytes, id: str, offset: int) -> AsyncIterator[Any]:
    """The items from `offset` on, the later ones as they come, then Final(result).

    Raises CallError: "unknown" (no such work of this submitter), "gap" (details: first, next), or the work's own.
    """
    at = offset
    while True:
        work = inbox.works.get((principal, id))
        changed = work.changed if work is not None else None
        if work is not None and work.tail and work.tail[0][0] <= at < work.logged:
            for index, data in list(work.tail):
                if index == at:
                    at += 1
                    yield item_value(data)
            continue
        piece = await inbox.journal.items(principal, id, at, PIECE)
        if piece is None:
            raise CallError("unknown", f"no work {id} of yours is kept here", code=2, details={"offset": at})
        if piece.first > at and at < piece.next_item:
            raise _gap(at, piece.first, piece.next_item)
        for data in piece.items:
            at += 1
            yield item_value(data)
        if piece.items:
            continue
        if work is not None and work.outcome is None:
            assert changed is not None
            if work.logged <= at:  # also where a second run has not come as far yet as the first had
                await changed.wait()
            continue
        row = await inbox.journal.taken(principal, id)
        if row is None:
            raise CallError("unknown", f"no work {id} of yours is kept here", code=2, details={"offset": at})
        if row.state is not TakenState.DONE:
            if inbox.works.get((principal, id)) is None:
                raise Unavailable("restarting", "the work waits for its agent", retryable=True, retry_after=1)
            await asyncio.sleep(0)
            continue
        if row.next_item > at:
            continue
        if row.next_item < at:
            raise _gap(at, row.next_item, row.next_item)
        if row.outcome is None:
            raise OutcomeUnknown("outcome_unknown", f"no outcome of {id} is kept here")
        end = read_end(row.outcome)
        if end.error is not None:
            raise end.error
        yield Final(end.value)
        return


def _gap(at: int, first: int, following: int) -> CallError:
    what = f"items {at} to {first - 1} are no longer kept" if first > at else f"there are only {following} items"
    return CallError("gap", what, code=Code.ERROR_INVALID_REQUEST, details={"first": first, "next": following})
