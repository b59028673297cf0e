"""`hermes-peer ticket ID`: where submitted work stands, its result, its items.

Knows: the words of the command, how a ticket reads. Refuses to know: who submitted it and how it is asked.
Called by: app.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_peer.cli import failures, options, out
from hermes_peer.errors import CallError, UsageError, call_error

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.cli.submitters import Submitter, View

Number = Annotated[
    str,
    typer.Argument(metavar="ID", help="What submit printed.", show_default=False, callback=options.not_empty),
]
Whose = Annotated[
    str,
    typer.Argument(
        metavar="AGENT", help="Who submitted it; all of this home are asked if not given.", show_default=False
    ),
]


def ticket(
    message_id: Number,
    agent: Whose = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    items: Annotated[
        bool, typer.Option("--items", help="Print the items as they come, from where the last reader stopped.")
    ] = False,
    from_: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="N",
            min=0,
            help="With --items: from item N on, counted from 0, also what was read before.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Show where submitted work stands.

    Whoever of this home submitted it is asked. If that process is gone, this command takes its place for as long as it
    lasts, and goes on with the delivery. The exit code is that of the outcome, 0 while there is none.

    With --items, what was printed counts as read, also if it still lay in a pipe. The worker keeps items until they
    are read to their end.

    \b
    Examples:
      hermes-peer ticket 0192f0c1-…
      hermes-peer ticket 0192f0c1-… --wait
      hermes-peer ticket order-17 planner --json
      hermes-peer ticket order-17 --items --from 0
    """
    from hermes_peer.cli import submitters
    from hermes_peer.cli.submit import dead_letter
    from hermes_peer.cli.visit import visit
    from hermes_peer.cli.waiting import OPEN, carried, ended

    if wait and items:
        raise UsageError("--items waits by itself: give --wait or --items")
    if from_ is not None and not items:
        raise UsageError("--from says where --items begins: give both")

    async def work(me: HermesAgent) -> int:
        who, view = await submitters.find(me, message_id, agent)
        running = who.where is submitters.Where.RUNNING
        if items:
            if running:
                raise UsageError(
                    f"{who} runs, and its items are its own to read, each once; end it first, or ask with --wait"
                )
            async with submitters.in_place_of(me, who, long=True) as submitter:
                await _items(submitter, message_id, view, from_, json)
            return 0
        if wait:
            who, view = await ended(me, who, view, agent)
        elif view["state"] in OPEN and not running:
            async with submitters.in_place_of(me, who, long=False) as submitter:
                view, _ = await carried(submitter, view, wait=False)
        if json:
            out.json_line(view | ({} if wait else who.as_json()))
        elif not wait:
            for each in lines(who, view):
                out.line(out.shown(each))
        elif "error" not in view:
            out.line(out.value_text(view.get("result")))
        if "error" not in view:
            return 0
        if view["state"] == "dead":
            out.note(out.shown(dead_letter(message_id)))
        return failures.told(call_error(view["error"]))

    return visit(work, home=home, json=json, streams=items)


async def _items(agent: HermesAgent, message_id: str, view: View, begin: int | None, json: bool) -> None:
    """Every item on a line of its own, then the result, as `hermes-peer stream` shows them."""
    from hermes_peer.cli.stream import _plain
    from hermes_peer.cli.submit import dead_letter

    mine = agent.ticket(message_id)
    if view["offset"] and begin is None:
        out.note(f"goes on at item {view['offset']}, where the last reader stopped (counted from 0)")
    try:
        async for item in mine.items(begin):
            await out.send(out.as_json({"item": _plain(item)}) if json else out.value_text(item))
        value = await mine.result()
    except CallError:
        if await mine.state() == "dead":
            out.note(out.shown(dead_letter(message_id)))
        raise
    if json:
        out.json_line({"result": value})
    elif value is not None:
        out.note(f"result: {out.shown(out.as_json(value))}")


def lines(who: Submitter, view: View) -> list[str]:
    """A ticket for a person."""
    said = [
        str(view["message_id"]),
        f"  work       {view['method']} of {view['target']}",
        f"  state      {state_of(view)}",
        f"  submitted  {clock(view['created_ms'])} by {who}",
    ]
    if view.get("requeued_ms"):
        said.append(f"  replayed   {clock(view['requeued_ms'])} by {view.get('requeued_by')}")
    if "result" not in view and "error" not in view:
        said.append(f"  until      {clock(view['expires_ms'])}")
    if "result" in view:
        said.append(f"  result     {out.as_json(view['result'])}")
    return said


def state_of(view: View) -> str:
    """The state, and what it means."""
    attempts = view["attempts"]
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts" if attempts else "not sent yet"
    meaning = {
        "waiting": f"waiting for {view['target']} ({tries})",
        "accepted": f"accepted: {view['target']} has it on its disk ({tries})",
    }
    return meaning.get(view["state"], f"{view['state']} ({tries})")


def clock(ms: Any) -> str:
    """A time of day, with the date."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(ms) / 1000))
