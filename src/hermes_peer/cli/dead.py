"""`hermes-peer dead`: work that failed for good, and what to do with it.

Knows: the words of the commands. Refuses to know: who has dead letters and how they are asked. Called by: app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_peer.cli import failures, options, out
from hermes_peer.cli.ticket import Number, Whose, clock, lines
from hermes_peer.errors import HermesError, UsageError, call_error

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.cli.submitters import Submitter, View
    from hermes_peer.journal.values import Sent

app = typer.Typer(help="Work that failed for good: list, show, replay, discard.", rich_markup_mode=None)
SHOWS = "shows the result"
HEAD = ("ID", "BY", "FOR", "METHOD", "SUBMITTED", "WHY")
Agent = Annotated[
    str, typer.Argument(metavar="AGENT", help="Only what this agent submitted; all of this home if not given.")
]


@app.command("list")
def list_(
    agent: Agent = "",
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Show the dead letters of the agents of this home, oldest first.

    A letter is dead when its work failed in a way that trying again does not mend, five times in one that it might, or
    when its ttl was spent. With --json there is one JSON object a line and letter.
    """
    from hermes_peer.cli.submitters import submitters, unasked
    from hermes_peer.cli.visit import visit

    async def work(me: HermesAgent) -> int:
        found: list[tuple[Submitter, View]] = []
        problem: HermesError | None = None
        for who in submitters(me, agent):
            try:
                found += [(who, view) for view in await _letters(me, who)]
            except HermesError as error:
                problem = error
                out.note(out.shown(unasked(me, who, error)))
        found.sort(key=lambda each: each[1]["created_ms"])
        if json:
            for who, view in found:
                out.json_line(view | who.as_json())
        elif found:
            rows = [_cells(who, view) for who, view in found]
            for each in out.table(HEAD, rows).splitlines():
                out.line(out.shown(each))
        elif problem is None:
            out.note("there are no dead letters")
        return failures.exit_code(problem) if problem is not None else 0

    return visit(work, home=home, json=json)


@app.command("show")
def show(message_id: Number, agent: Whose = "", json: options.Json = False, home: options.Home = None) -> int:
    """Show one dead letter: its work, its payload, and why it failed."""
    from hermes_peer.cli.visit import visit

    async def work(me: HermesAgent) -> None:
        who, view = await _letter(me, message_id, agent)
        view = await _with_payload(me, who, view)
        if json:
            out.json_line(view | who.as_json())
            return
        error = call_error(view.get("error") or {})
        more = [
            f"  why        {failures.sentence(error)}",
            f"  code       {int(error.code)} {error.code.name}, reason {error.reason}",
            *([f"  details    {out.as_json(error.details)}"] if error.details is not None else []),
            f"  payload    {view.get('payload', '')}",
        ]
        for each in (*lines(who, view), *more):
            out.line(out.shown(each))

    return visit(work, home=home, json=json)


@app.command("replay")
def replay(
    message_id: Number,
    agent: Whose = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Send a dead letter once more, under the same id, with its whole ttl.

    Look first at why it failed: `dead show`. What the agent has done already it does not do again.
    """
    from hermes_peer.cli import submitters
    from hermes_peer.cli.visit import visit
    from hermes_peer.cli.waiting import carried, ended

    async def work(me: HermesAgent) -> int:
        who, view = await _letter(me, message_id, agent)
        target = str(view["target"])
        if who.where is submitters.Where.RUNNING:
            view = await me.call(who.key, "hermes.dead", {"action": "replay", "message_id": message_id})
            if wait:  # whatever becomes of the process: the letter is not sent twice
                _, view = await ended(me, who, view, agent)
            return _ended(message_id, view, wait, json, f"{who} runs and sends it to {target}")
        async with submitters.in_place_of(me, who, long=wait) as submitter:
            await (await submitters.outbox_of(submitter)).letters.replay(message_id, me.name)
            view, why = await carried(submitter, view, wait=wait)
        told = f"it waits for {target}" if why else f"{target} has it on its disk"
        return _ended(message_id, view, wait, json, told, "delivers it and shows the result" if why else SHOWS)

    return visit(work, home=home, json=json)


@app.command("discard")
def discard(message_id: Number, agent: Whose = "", json: options.Json = False, home: options.Home = None) -> int:
    """Forget a dead letter for good."""
    from hermes_peer.cli import submitters
    from hermes_peer.cli.visit import visit

    async def work(me: HermesAgent) -> None:
        who, _ = await _letter(me, message_id, agent)
        if who.where is submitters.Where.RUNNING:
            await me.call(who.key, "hermes.dead", {"action": "discard", "message_id": message_id})
        else:
            async with submitters.in_place_of(me, who, long=False) as submitter:
                await (await submitters.outbox_of(submitter)).letters.discard(message_id)
        if json:
            out.json_line({"message_id": message_id, "discarded": True} | who.as_json())
        else:
            out.line(f"{out.shown(message_id)} is forgotten")

    return visit(work, home=home, json=json)


def _ended(message_id: str, view: View, wait: bool, json: bool, told: str, shows: str = SHOWS) -> int:
    """What became of a replayed letter so far."""
    from hermes_peer.cli.submit import dead_letter

    if "error" in view:
        error = call_error(view["error"])
        if json:
            out.json_line({"message_id": message_id, "error": failures.as_json(error)})
        if view["state"] == "dead":
            out.note(out.shown(dead_letter(message_id, "failed again")))
        return failures.told(error)
    if json:
        out.json_line(view)
    elif wait:
        out.line(out.value_text(view.get("result")))
    else:
        out.line(f"{out.shown(message_id)} is sent once more")
        done = view["state"] == "done"
        look = f"`hermes-peer ticket {message_id}"
        out.note(out.shown(f"it is done; {look}` shows the result" if done else f"{told}; {look} --wait` {shows}"))
    return 0


async def _letters(me: HermesAgent, who: Submitter) -> list[View]:
    """The dead letters of one submitter. Raises HermesError."""
    from hermes_peer.agent.durable.letters import PAGE
    from hermes_peer.agent.durable.methods import brief
    from hermes_peer.cli import submitters

    if who.where is submitters.Where.HERE:
        letters = (await submitters.outbox_of(me)).letters
        rows: list[Sent] = []
        while more := await letters.page(rows[-1].seq if rows else 0):
            rows += more
        return [brief(row) for row in rows]
    if who.where is submitters.Where.RUNNING:
        views: list[View] = []
        while True:
            behind = {"action": "list", "after": views[-1]["seq"] if views else 0}
            views += (page := await me.call(who.key, "hermes.dead", behind, ttl=submitters.ASK_S))
            if len(page) < PAGE:
                return views
    from hermes_peer.agent.durable.store import FILE
    from hermes_peer.journal.peek import peek
    from hermes_peer.journal.values import SentState

    return [brief(row) for row in peek(who.folder / FILE, state=SentState.DEAD)]


async def _letter(me: HermesAgent, message_id: str, agent: str) -> tuple[Submitter, View]:
    """One dead letter. Raises UsageError if its work is not dead, and what `find` raises."""
    from hermes_peer.cli.submitters import find

    who, view = await find(me, message_id, agent)
    if view["state"] != "dead":
        raise UsageError(
            f"{out.shown(message_id)} is no dead letter, its work is {view['state']}; "
            f"see `hermes-peer ticket {out.shown(message_id)}`"
        )
    return who, view


async def _with_payload(me: HermesAgent, who: Submitter, view: View) -> View:
    from hermes_peer.cli import submitters

    id = str(view["message_id"])
    if who.where is submitters.Where.RUNNING:
        seen: View = await me.call(who.key, "hermes.dead", {"action": "show", "message_id": id})
        return seen
    if who.where is submitters.Where.HERE:
        row = await (await submitters.outbox_of(me)).row(id)
    else:
        from hermes_peer.agent.durable.store import FILE
        from hermes_peer.journal.peek import peek

        row = next(iter(peek(who.folder / FILE, message_id=id)), None)
    return view | ({"payload": row.payload.decode("utf-8", "replace")} if row is not None else {})


def _cells(who: Submitter, view: dict[str, Any]) -> tuple[str, ...]:
    error = call_error(view.get("error") or {})
    return (
        str(view["message_id"]),
        str(who),
        str(view["target"]),
        str(view["method"]),
        clock(view["created_ms"]),
        failures.sentence(error),
    )
