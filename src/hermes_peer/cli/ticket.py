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

FOR_EVER_S = 86_400.0
OPEN = ("waiting", "accepted")

Number = Annotated[str, typer.Argument(metavar="ID", help="What submit printed.", show_default=False)]
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
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Show where submitted work stands.

    Whoever of this home submitted it is asked. If that process is gone, this command takes its place for as long as it
    lasts, and goes on with the delivery. The exit code is that of the outcome, 0 while there is none.

    \b
    Examples:
      hermes-peer ticket 0192f0c1-…
      hermes-peer ticket 0192f0c1-… --wait
      hermes-peer ticket order-17 planner --json
    """
    from hermes_peer.cli import submitters
    from hermes_peer.cli.submit import dead_letter, delivered
    from hermes_peer.cli.visit import visit

    if wait and items:
        raise UsageError("--items waits by itself: give --wait or --items")

    async def work(me: HermesAgent) -> int:
        who, view = await submitters.find(me, message_id, agent)
        running = who.where is submitters.Where.RUNNING
        if items:
            if running:
                raise UsageError(
                    f"{who} runs, and its items are its own to read, each once; end it first, or ask with --wait"
                )
            async with submitters.in_place_of(me, who, long=True) as submitter:
                await _items(submitter, message_id, view, json)
            return 0
        if view["state"] in OPEN and not running:
            async with submitters.in_place_of(me, who, long=wait) as submitter:
                if await delivered(submitter, message_id, str(view["target"]), wait, json) is None:
                    return 0
                view = await submitters.own_view(submitter, message_id) or view
        elif view["state"] in OPEN and wait:
            out.note(f"{who} runs and delivers it")
            view = await me.call(who.key, "hermes.ticket", {"message_id": message_id, "wait": True}, ttl=FOR_EVER_S)
        if json:
            out.json_line(view | ({} if wait else who.as_json()))
        elif wait and view["state"] == "done":
            out.line(out.value_text(view.get("result")))
        elif not wait:
            for each in lines(who, view):
                out.line(out.shown(each))
        if view["state"] != "dead":
            return 0
        error = call_error(view.get("error") or {})
        out.note(out.shown(dead_letter(message_id)))
        return failures.told(error)

    return visit(work, home=home, json=json, streams=items)


async def _items(agent: HermesAgent, message_id: str, view: View, json: bool) -> None:
    """Every item on a line of its own, then the result, as `hermes-peer stream` shows them."""
    from hermes_peer.cli.stream import _plain
    from hermes_peer.cli.submit import dead_letter

    mine = agent.ticket(message_id)
    if view["offset"]:
        out.note(f"goes on at item {view['offset']}, where the last reader stopped (counted from 0)")
    try:
        async for item in mine.items():
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
    if view["state"] in OPEN:
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
