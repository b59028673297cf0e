"""`hermes-peer submit`: durable work, handed over or left for later.

Knows: the words of the command. Refuses to know: journals, how work is delivered. Called by: app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hermes_peer.cli import failures, options, out
from hermes_peer.cli.call import Method, Payload, Trace
from hermes_peer.errors import CallError, HermesError

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
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Your own id: the same one again is the same work.",
            show_default=False,
            callback=options.not_empty,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="IDEMPOTENCY_KEY",
            help="Work of one key is done once, whatever its id.",
            show_default=False,
            callback=options.not_empty,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    trace_id: Trace = "",
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Submit work that survives a crash of either side, and print its ticket.

    It is on this disk before the ticket is printed. Then it is handed over; if the agent is not there, it waits here,
    and the next command of this home goes on with the delivery. No process stays behind. A command that names an id or
    a key again waits a moment for one that still uses the place from which it was first submitted.

    \b
    Examples:
      hermes-peer submit worker report.build pages=12
      hermes-peer submit worker report.build pages=12 --wait
      hermes-peer submit worker order.place sku=A-1 --id order-17 --ttl 86400
    """
    import asyncio

    from hermes_peer.access.names import check_method_name
    from hermes_peer.agent.calling import check_call
    from hermes_peer.cli.claims import names_of
    from hermes_peer.cli.payload import payload_of
    from hermes_peer.cli.visit import visit

    own_id, own_key = id or "", key or ""
    check_method_name(method)
    check_call(ttl, trace_id, own_id, own_key)
    data = payload_of(payload or [])

    async def work(me: HermesAgent) -> int:
        ticket = await me.submit(
            agent, method, data, ttl=ttl, message_id=own_id, idempotency_key=own_key, trace_id=trace_id
        )
        number = ticket.message_id
        # Now: from here on it is kept, whatever becomes of this command.
        if json or wait:
            out.note(f"submitted as {number}")
        else:
            out.line(number)
        try:
            return await _followed(me, ticket, agent, wait, json)
        except asyncio.CancelledError:
            out.note(f"it is kept and goes on; `hermes-peer ticket {number} --wait` shows the result")
            raise

    return visit(work, home=home, json=json, names=names_of(own_id, own_key))


async def _followed(me: HermesAgent, ticket: Ticket, agent: str, wait: bool, json: bool) -> int:
    """What becomes of it: for a moment, or (`wait`) until its end. Returns the exit code."""
    from hermes_peer.cli.submitters import hand_over

    number = ticket.message_id
    why = await hand_over(me, ticket, agent)
    state = await ticket.state() if why else await settled(ticket)
    if why and not (json and not wait):
        out.note(out.shown(f"{agent} does not have it yet: {why}"))
    if state == "dead" or wait:
        if state == "accepted" and not json:
            out.note(out.shown(f"{agent} has it on its disk"))
        return await _outcome(ticket, json)
    if json:
        out.json_line({"message_id": number, "state": state} | ({"waits": why} if why else {}))
    else:
        out.note(out.shown(_told(number, state, agent, why)))
    return 0


async def settled(ticket: Ticket) -> str:
    """The state of work that was handed over, after a moment in which quick work ends."""
    import asyncio
    import contextlib

    with contextlib.suppress(CallError, TimeoutError):
        await asyncio.wait_for(ticket.result(), MOMENT_S)
    return await ticket.state()


async def _outcome(ticket: Ticket, json: bool) -> int:
    """Wait for the outcome and print it, or what ended the work; returns the exit code."""
    number = ticket.message_id
    try:
        value = await ticket.result()
    except HermesError as error:
        if json:
            out.json_line({"message_id": number, "error": failures.as_json(error)})
        if isinstance(error, CallError) and await ticket.state() == "dead":
            out.note(out.shown(dead_letter(number)))
        return failures.told(error)
    if json:
        out.json_line({"message_id": number, "state": "done", "result": value})
    else:
        out.line(out.value_text(value))
    return 0


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
