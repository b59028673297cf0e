"""How submitted work goes on to its end, in this process or in another that may end first.

Knows: that whoever delivers it may change meanwhile. Refuses to know: how an outcome is shown. Called by: ticket, dead.

The end of a process is not the end of the work that it submitted. One that is gone gets a moment to come back, as its
supervisor may start it again; then this command takes its place.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_peer.access.slot import SlotTaken
from hermes_peer.cli import failures, out
from hermes_peer.cli.submit import settled
from hermes_peer.cli.submitters import Submitter, View, Where, find, hand_over, in_place_of, own_view
from hermes_peer.cli.visit import IN_USE
from hermes_peer.errors import CallError, LinkError, SessionLost, Unavailable, error_body

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent

OPEN = ("waiting", "accepted")
FOR_EVER_S = 86_400.0
BACK_S = 5.0  # for a process that is gone to be there again
LOOK_S = 0.2
_ENDING = ("shutdown", "draining", "journal")  # what an agent answers that ends


async def ended(me: HermesAgent, who: Submitter, view: View, agent: str) -> tuple[Submitter, View]:
    """Wait until the work has ended, a day at most. Returns who has its outcome, and the outcome.

    `who`, `view`: as `find` gave them. Raises HermesError if nobody can be asked any more; DeadlineExceeded.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + FOR_EVER_S
    told = ""
    while view["state"] in OPEN:
        try:
            if who.where is Where.RUNNING:
                if told != who.key:
                    out.note(f"{who} runs and delivers it")
                told = who.key
                asked = {"message_id": view["message_id"], "wait": True}
                view = await me.call(who.key, "hermes.ticket", asked, ttl=max(1.0, until - loop.time()))
            else:
                async with in_place_of(me, who, long=True) as submitter:
                    view, _ = await carried(submitter, view, wait=True)
        except (SessionLost, LinkError, Unavailable, SlotTaken) as error:
            if isinstance(error, Unavailable) and error.reason not in _ENDING:
                raise
            why = failures.sentence(error).rstrip(".")
            if not isinstance(error, SlotTaken):
                why = f"{who} ended or cannot be asked now ({why})"
            out.note(out.shown(f"{why}; the work goes on, and is waited for"))
            told = ""
            who, view = await _found_again(me, str(view["message_id"]), agent, until)
    return who, view


async def carried(submitter: HermesAgent, view: View, *, wait: bool) -> tuple[View, str]:
    """Go on with a delivery in its submitter's place: for a moment, or (`wait`) until its end.

    Returns where it stands, and why the target does not have it yet; empty if it has it.
    """
    number, target = str(view["message_id"]), str(view["target"])
    ticket = submitter.ticket(number)
    why = await hand_over(submitter, ticket, target)
    if why:
        out.note(out.shown(f"{target} does not have it yet: {why}"))
    if not wait:
        if not why:
            await settled(ticket)
        return await own_view(submitter, number) or view, why
    # What is told is perhaps not on the disk yet, so the view alone would not do.
    try:
        more = {"state": "done", "result": await ticket.result()}
    except CallError as error:
        more = {"state": await ticket.state(), "error": error_body(error)}
        if more["state"] in OPEN:
            more["state"] = "done"
    return (await own_view(submitter, number) or view) | more, ""


async def _found_again(me: HermesAgent, message_id: str, agent: str, until: float) -> tuple[Submitter, View]:
    """Who has it after an end: whoever runs, else whoever rests after a moment. Raises what `find` raises.

    Another command that delivers it meanwhile is waited for, for as long as that takes.
    """
    loop = asyncio.get_running_loop()
    back = loop.time() + BACK_S
    while True:
        try:
            who, view = await find(me, message_id, agent)
            if who.where is Where.RUNNING or view["state"] not in OPEN or loop.time() >= back:
                return who, view
        except LinkError as error:
            if loop.time() >= (until if error.reason == IN_USE else back):
                raise
        await asyncio.sleep(LOOK_S)
