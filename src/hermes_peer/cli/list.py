"""`hermes-peer list`: the agents of this home, and how they are (mission L21).

Knows: columns. Refuses to know: how an agent is asked. Called by: app.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_peer.cli import options, out
from hermes_peer.wire.address import Address

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.cli.survey import Row

HEAD = ("AGENT", "INSTANCE", "LINK", "RTT", "LOAD", "SEALED", "ADDRESS")
LINK = HEAD.index("LINK")
WATCH_S = 2.0
_GREEN, _RED = "32", "31"


def list_(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every 2 s, until Ctrl-C.")] = False,
    ttl: options.ShortTtl = 2.0,
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Show the agents of this home, and how they are.

    Every agent is asked now. LINK says "connected" only of one that answered; LOAD counts its running calls.
    With --json there is one JSON object a line and agent.
    """
    from hermes_peer.cli.survey import ask_all, known
    from hermes_peer.cli.visit import visit

    async def once(me: HermesAgent) -> None:
        found, refused = known(me)
        if not json:
            if not found:
                out.note("no agent is running in this home; start one with: hermes-peer run FILE")
            widths = out.columns(HEAD, [_cells(row) for row, _ in found])
            widths[LINK] = max(widths[LINK], len("unreachable"))
            widths[LINK + 1] = max(widths[LINK + 1], len("10000.0 ms"))
            if found and out.fits(widths):
                await out.send(out.row_text(HEAD, HEAD, widths))
        async for row in ask_all(me, found, ttl):
            if json:
                await out.send(out.as_json(row.as_json()))
                continue
            await out.send(_painted(out.shown_lines(out.row_text(HEAD, _cells(row), widths)), row))
            if row.problem:
                await out.send(f"  {out.shown(row.problem)}")
        for why in refused[:5]:
            out.note(out.shown(why))
        if len(refused) > 5:
            out.note(f"{len(refused) - 5} more records were left out")

    async def again(me: HermesAgent) -> None:
        if out.on_terminal() and not json and out.moves():
            await _live(me, ttl)
        while True:
            await once(me)
            if not json:
                await out.send("")
            await asyncio.sleep(WATCH_S)

    return visit(again if watch else once, home=home, json=json, streams=True)


async def _live(me: HermesAgent, ttl: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from hermes_peer.cli.survey import ask_all, known

    with Live(console=Console(no_color=not out.colourful()), auto_refresh=False, screen=True) as live:
        while True:
            found, _ = known(me)
            rows = [row async for row in ask_all(me, found, ttl)]
            lines = out.table(HEAD, [_cells(row) for row in rows]) if rows else "no agent is running in this home"
            problems = [f"{row.agent}: {row.problem}" for row in rows if row.problem]
            text = "\n".join([out.shown_lines(lines), "", *map(out.shown, problems), time.strftime("%H:%M:%S")])
            live.update(Text(text), refresh=True)
            await asyncio.sleep(WATCH_S)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.agent,
        row.instance[:8] or "-",
        row.link,
        "-" if row.rtt_ms is None else f"{row.rtt_ms:.1f} ms",
        "-" if row.running is None else f"{row.running}{'' if row.accepting is not False else ' (draining)'}",
        {True: "yes", False: "no", None: "-"}[row.sealed],
        _place(row.address),
    )


def _place(address: str) -> str:
    return str(Address.parse(address).endpoint) if address else "-"


def _painted(line: str, row: Row) -> str:
    return line.replace(row.link, out.colour(row.link, _GREEN if row.link == "connected" else _RED), 1)
