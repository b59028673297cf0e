"""Work that begins while its acceptance is on the way to the disk: a quick handler's outcome shares that commit.

Knows: which work may, what becomes of a run that is not taken. Refuses to know: how handlers run, who asks. Called by:
inbox. No answer is told before the commit: a crash leaves a submission that is sent again, or that nobody was told of.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_peer.agent.durable.acceptance import Acceptance
from hermes_peer.agent.durable.work import Work
from hermes_peer.agent.methods import Method, Shape
from hermes_peer.errors import Unavailable
from hermes_peer.journal.values import Kind, Taken, Verdict
from hermes_peer.wire.messages import Envelope

if TYPE_CHECKING:
    from hermes_peer.agent.durable.inbox import Inbox, Reader

RETRY_AFTER_S = 5.0  # what whoever is refused is asked to wait


class Early:
    """`works` have begun and are not taken yet: nobody finds them, but a policy that changes ends them, too."""

    def __init__(self, inbox: Inbox) -> None:
        self.works: set[Work] = set()
        self._inbox = inbox
        self._full_until = 0.0  # the journal has refused work: none begins early

    def may(self, principal: bytes, method: Method, envelope: Envelope) -> bool:
        """Only what `may_begin_early`, and what the journal will take as far as can be told without asking it."""
        inbox = self._inbox
        return (
            may_begin_early(method, envelope)
            and (principal, envelope.message_id) not in inbox.works
            and inbox.time() >= self._full_until
            and not inbox.journal.gauges().stopped
        )

    async def take(self, row: Taken, envelope: Envelope, method: Method, deadline: float, reader: Reader) -> Verdict:
        """The handler takes its first step; if that is its last, one commit has acceptance and outcome. If the work is
        not taken, its run has ended before this does. `row` is of work whose handler begins at once."""
        inbox = self._inbox
        work = Work(inbox, row, envelope, deadline)
        work.acceptance = acceptance = Acceptance(inbox.journal, row, inbox.loop)
        self.works.add(work)
        work.start(method)
        taken = False
        try:
            await asyncio.sleep(0)
            verdict = (await acceptance.handed_in())[0]
            assert isinstance(verdict, Verdict)
            taken = verdict.kind is Kind.NEW
        finally:
            self.works.discard(work)
            acceptance.decided(taken)
            if not taken and not inbox.closing:
                await work.dropped()
        if taken:
            inbox.taken(work, True, reader)
        return verdict

    def no_room(self, reason: str, why: str, begun: bool) -> Unavailable:
        """A refusal; `begun`: the handler has begun nevertheless, so that no other agent's should."""
        self._full_until = self._inbox.time() + RETRY_AFTER_S
        details = {"begun": True} if begun else None
        return Unavailable(reason, why, retryable=True, retry_after=RETRY_AFTER_S, details=details)


def may_begin_early(method: Method, envelope: Envelope) -> bool:
    """Whether it may be run twice, and its id is new by its submitter's word."""
    return (
        method.contract == "idempotent"
        and method.shape is Shape.CALL
        and not (envelope.again or envelope.own_id or envelope.idempotency_key)
        and envelope.attempt == 1
        and not envelope.round
    )
