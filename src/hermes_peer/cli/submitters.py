"""Who of this home submitted a piece of durable work, and through whom it can be reached.

Knows: slots, their journals, which of them a process holds. Refuses to know: how anything is shown.
Called by: submit, ticket, dead, waiting.

A running submitter is asked over a line. Where the process is gone its journal is read, and the slot is opened only to
do something: then the delivery goes on here.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_peer.access.slot import guest, guest_in, holder_of
from hermes_peer.cli import failures, out
from hermes_peer.cli.visit import IN_USE, PATIENCE_S
from hermes_peer.errors import CallError, HermesError, LinkError, PermissionDenied, UsageError

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.durable.outbox import Outbox
    from hermes_peer.agent.durable.ticket import Ticket

View = dict[str, Any]
ASK_S = 5.0  # for the answer of a running submitter
HAND_OVER_S = 5.0  # for reaching the other agent and its word that it has the work


class Where(Enum):
    """HERE: the slot that this command holds. RUNNING: another process. RESTING: no process."""

    HERE = 1
    RUNNING = 2
    RESTING = 3


@dataclass(frozen=True, slots=True)
class Submitter:
    """One instance that may have submitted work. `key` is what it is called by; `guest`: the process of another
    command that is in its place.
    """

    name: str
    number: int
    key: str
    where: Where
    folder: Path = Path()
    guest: int = 0

    def __str__(self) -> str:
        return f"{self.name}/{self.number}" if self.number else self.name

    def as_json(self) -> View:
        return {"agent": self.name, "slot": self.number or None}


def submitters(me: HermesAgent, agent: str = "") -> list[Submitter]:
    """The instances of this home that have a journal, those first that need no line; only `agent`'s if it is given.

    An agent that is none of this home is the only one then, and is asked.
    """
    from hermes_peer.agent.durable.store import FILE

    life = me._running()
    slots = [each for each in life.home.slots() if not agent or each[0] == agent]
    if agent and not slots:
        return [Submitter(agent, 0, agent, Where.RUNNING)]
    found = []
    for name, number, key, held in slots:
        folder = life.home.agents_dir / name / str(number)
        own = (name, number) == (life.slot.name, life.slot.number)
        if (folder / FILE).exists():
            where = Where.HERE if own else Where.RUNNING if held else Where.RESTING
            by = guest_in(folder) if where is Where.RUNNING else 0
            found.append(Submitter(name, number, key, where, folder, by))
    return sorted(found, key=lambda each: (each.where is Where.RUNNING, each.where is Where.RESTING))


async def outbox_of(agent: HermesAgent) -> Outbox:
    """The submitting half of an agent that runs in this process. Raises JournalError."""
    return (await agent._running().durable.open())[1]


async def own_view(agent: HermesAgent, message_id: str) -> View | None:
    """Where work stands that `agent`, which runs in this process, submitted; None if it knows of none."""
    from hermes_peer.agent.durable.methods import shown

    outbox = await outbox_of(agent)
    row = await outbox.row(message_id)
    return None if row is None else shown(row, outbox)


async def ticket_at(me: HermesAgent, who: Submitter, message_id: str) -> View | None:
    """Where a piece of work stands, as `who` knows it; None if it knows of none. Raises HermesError."""
    from hermes_peer.agent.durable.methods import shown
    from hermes_peer.agent.durable.store import FILE

    if who.where is Where.HERE:
        return await own_view(me, message_id)
    if who.where is Where.RESTING:
        from hermes_peer.journal.peek import peek

        rows = peek(who.folder / FILE, message_id=message_id)
        return shown(rows[0]) if rows else None
    if who.guest:
        raise LinkError(_in_use(who, who.guest), reason=IN_USE)
    try:
        view: View = await me.call(who.key, "hermes.ticket", {"message_id": message_id}, ttl=ASK_S)
    except CallError as error:
        if error.reason == "unknown_ticket":
            return None
        raise
    return view


async def find(me: HermesAgent, message_id: str, agent: str = "") -> tuple[Submitter, View]:
    """Who submitted it, and where it stands. Raises UsageError if nobody did, LinkError if one could not be asked
    (reason "in_use" if the only cause is other commands).

    Another command that has the slot at this moment gets a while to end.
    """
    import asyncio

    until = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        found, silent = await _asked(me, message_id, agent)
        if found is not None:
            return found
        in_use = all(who.guest or who.name == me.name for who in silent)
        if not silent or not in_use or until < asyncio.get_running_loop().time():
            break
        await asyncio.sleep(0.1)
    id = out.shown(message_id[:128])
    if silent:
        raise LinkError(
            f"who submitted {id} could not be found out: {'; '.join(silent.values())}",
            reason=IN_USE if in_use else "silent",
        )
    of = f"{out.shown(agent)} did not submit" if agent else "no agent of this home submitted"
    raise UsageError(f"{of} {id}, or it was long ago; the id is what `hermes-peer submit` printed")


async def _asked(
    me: HermesAgent, message_id: str, agent: str
) -> tuple[tuple[Submitter, View] | None, dict[Submitter, str]]:
    """One round: who submitted it and how it stands, or who could not be asked, and why."""
    silent: dict[Submitter, str] = {}
    for who in submitters(me, agent):
        try:
            view = await ticket_at(me, who, message_id)
        except HermesError as error:
            if agent and isinstance(error, PermissionDenied):
                raise
            silent[who] = unasked(me, who, error)
            continue
        if view is not None:
            return (who, view), silent
    return None, silent


def unasked(me: HermesAgent, who: Submitter, error: HermesError) -> str:
    """Why one that may know could not be asked."""
    if who.guest or (who.name == me.name and who.where is not Where.HERE):
        return _in_use(who, who.guest or holder_of(who.folder))
    if isinstance(error, LinkError) and who.number and error.reason in ("address", "dial"):
        return f"{who} runs in another process and listens nowhere, so it cannot be asked; end it first"
    return f"{who} could not be asked ({failures.sentence(error)})"


def _in_use(who: Submitter, process: int) -> str:
    return f"{who} is in use by another command of yours (process {process}); wait for its end, or end it"


@contextlib.asynccontextmanager
async def in_place_of(me: HermesAgent, who: Submitter, *, long: bool) -> AsyncIterator[HermesAgent]:
    """The agent that submitted it, in this process: it goes on with the delivery of all that it submitted.

    `long`: for longer than a moment. An agent of that name that starts meanwhile waits a moment for its slot. Raises
    SlotTaken if another process holds the slot, UsageError if its key lies elsewhere.
    """
    if who.where is Where.HERE:
        yield me
        return
    from hermes_peer.agent.agent import HermesAgent

    if not (who.folder / "key.pem").exists():
        raise UsageError(f"{who} has its key elsewhere (secret_key_path=): start {who.name}, it goes on by itself")
    warning = f"; do not start {who.name} before this ends" if long and who.name != me.name else ""
    agent = HermesAgent(who.name, home=me.home, listen=False, redial_limit=1, slot=who.number)
    agent.takes_work = False
    # No agent shares the name of the commands: they may take any slot, and none of them waits for another.
    with guest(who.folder) if who.name != me.name else contextlib.nullcontext():
        out.note(f"{who} does not run, so this command goes on with its deliveries{warning}")
        async with agent:
            yield agent


async def hand_over(agent: HermesAgent, ticket: Ticket, target: str) -> str:
    """Give the delivery a moment. Returns why the other agent does not have it yet; empty if it has it."""
    import asyncio

    from hermes_peer.agent.reach import reach

    life = agent._running()
    try:
        async with asyncio.timeout(HAND_OVER_S):
            reaching = asyncio.ensure_future(reach(life, target, life.loop.time() + HAND_OVER_S))
            accepted = asyncio.ensure_future(ticket.accepted())
            try:
                await asyncio.wait((reaching, accepted), return_when=asyncio.FIRST_COMPLETED)
                if not accepted.done():
                    await reaching
                await accepted
            finally:
                for task in (reaching, accepted):
                    task.cancel()
                await asyncio.gather(reaching, accepted, return_exceptions=True)
    except HermesError as error:
        return failures.sentence(error)
    except TimeoutError:
        return f"{target} did not say within {HAND_OVER_S:g} s that it has it"
    return ""
