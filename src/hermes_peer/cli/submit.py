"""`hermes-peer submit`: durable work, handed over or left for later.

Knows: the words of the command. Refuses to know: journals, how work is delivered. Called by: app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hermes_peer.cli import options, out
from hermes_peer.cli.call import Method, Payload, Trace
from hermes_peer.errors import CallError

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.durable.ticket import Ticket

MOMENT_S = 0.3


def submit(
    agent: options.Target,
    method: Method,
    payload: Payload = None,
    ttl: Annotated[
        float | None,
        options.ttl_option("How long it is worth doing, also while nobody is there; an hour if not given."),
    ] = None,
    id: Annotated[
        str, typer.Option("--id", metavar="ID", help="Your own id: the same one again is the same work.")
    ] = "",
    key: Annotated[
        str,
        typer.Option("--key", metavar="IDEMPOTENCY_KEY", help="Work of one key is done once, whatever its id."),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    trace_id: Trace = "",
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Submit work that survives a crash of either side, and print its ticket.

    It is on this disk before the ticket is printed. Then it is handed over; if the agent is not there, it waits here,
    and the next command of this home goes on with the delivery. No process stays behind.

    \b
    Examples:
      hermes-peer submit worker report.build pages=12
      hermes-peer submit worker report.build pages=12 --wait
      hermes-peer submit worker order.place sku=A-1 --id order-17 --ttl 86400
    """
    from hermes_peer.access.names import check_method_name
    from hermes_peer.cli.payload import payload_of
    from hermes_peer.cli.submitters import hand_over
    from hermes_peer.cli.visit import visit

    check_method_name(method)
    data = payload_of(payload or [])

    async def work(me: HermesAgent) -> None:
        ticket = await me.submit(agent, method, data, ttl=ttl, message_id=id, idempotency_key=key, trace_id=trace_id)
        number = ticket.message_id
        if not json and not wait:
            out.line(number)  # now: from here on it is kept, whatever becomes of this command
        elif not json:
            out.note(f"submitted as {number}")
        why = await hand_over(me, ticket, agent)
        state = await ticket.state() if why else await settled(ticket)
        if why and not (json and not wait):
            out.note(out.shown(f"{agent} does not have it yet: {why}"))
        if state == "dead" or wait:
            if state == "accepted" and not json:
                out.note(out.shown(f"{agent} has it on its disk"))
            await result(ticket, number, json)
            return
        if json:
            out.json_line({"message_id": number, "state": state} | ({"waits": why} if why else {}))
        else:
            out.note(out.shown(_told(number, state, agent, why)))

    return visit(work, home=home, json=json)


async def settled(ticket: Ticket) -> str:
    """The state of work that was handed over, after a moment in which quick work ends."""
    import asyncio
    import contextlib

    with contextlib.suppress(CallError, TimeoutError):
        await asyncio.wait_for(ticket.result(), MOMENT_S)
    return await ticket.state()


async def result(ticket: Ticket, number: str, json: bool) -> None:
    """Wait for the outcome and print it. Raises what ended the work, after a word on where it lies now."""
    try:
        value = await ticket.result()
    except CallError:
        out.note(out.shown(dead_letter(number)))
        raise
    if json:
        out.json_line({"message_id": number, "state": "done", "result": value})
    else:
        out.line(out.value_text(value))


async def delivered(submitter: HermesAgent, number: str, target: str, wait: bool, json: bool) -> str | None:
    """Go on with a delivery in its submitter's place: for a moment, or (`wait`) until its outcome, which is printed.

    Returns None if that was printed, else why `target` does not have it yet; empty if it has it.
    """
    from hermes_peer.cli.submitters import hand_over

    ticket = submitter.ticket(number)
    why = await hand_over(submitter, ticket, target)
    if why:
        out.note(out.shown(f"{target} does not have it yet: {why}"))
    if wait:
        await result(ticket, number, json)
        return None
    if not why:
        await settled(ticket)
    return why


def dead_letter(number: str, failed: str = "failed") -> str:
    """What can be done with work that failed."""
    return f"it {failed} and is kept as a dead letter: `hermes-peer dead show {number}`, `dead replay`, `dead discard`"


def _told(number: str, state: str, agent: str, why: str) -> str:
    look = f"`hermes-peer ticket {number}"
    if state == "done":
        return f"{agent} has done it; {look}` shows the result"
    if why:
        return f"submitted, waits for {agent}; {look} --wait` delivers it and shows the result"
    return f"submitted, {agent} has it on its disk; {look} --wait` shows the result"
