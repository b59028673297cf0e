"""`hermes-peer list`: the agents of this home, and how they are (mission L21).

Knows: columns. Refuses to know: how an agent is asked. Called by: app.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_peer.cli import options, out
from hermes_peer.wire.address import Address

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.cli.survey import Row

HEAD = ("AGENT", "INSTANCE", "LINK", "RTT", "LOAD", "SEALED", "ADDRESS")
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
    import asyncio

    from hermes_peer.cli.survey import ask_all, known
    from hermes_peer.cli.visit import visit

    async def once(me: HermesAgent) -> None:
        found, refused = known(me)
        layout = Layout([row for row, _ in found])
        if not found and not json:
            out.note("no agent is running in this home; start one with: hermes-peer run FILE")
        elif layout.head and not json:
            await out.send(layout.head)
        async for row in ask_all(me, found, ttl):
            await out.send(out.as_json(row.as_json()) if json else layout.text(row))
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
    import asyncio

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from hermes_peer.cli.survey import ask_all, known

    with Live(console=Console(), auto_refresh=False, screen=True) as live:
        while True:
            found, _ = known(me)
            layout = Layout([row for row, _ in found])
            rows = [layout.text(row) async for row in ask_all(me, found, ttl)]
            lines = [layout.head, *rows] if rows else ["no agent is running in this home"]
            live.update(Text.from_ansi("\n".join([*lines, "", time.strftime("%H:%M:%S")])), refresh=True)
            await asyncio.sleep(WATCH_S)


class Layout:
    """One line for each agent if the terminal is wide enough, else the address below, else a block of lines."""

    def __init__(self, rows: list[Row]) -> None:
        self._widths = out.columns(HEAD, [_cells(row) for row in rows])
        for name, longest in (("LINK", "unreachable"), ("RTT", "1000.0 ms")):
            at = HEAD.index(name)
            self._widths[at] = max(self._widths[at], len(longest))
        self._whole = out.fits(self._widths)
        self._beside = len(HEAD) if self._whole else len(HEAD) - 1
        table = out.fits(self._widths[: self._beside])
        self.head = self._line(HEAD) if table and rows else ""

    def text(self, row: Row) -> str:
        """An agent's lines; the last one says what is wrong with it."""
        cells = _cells(row)
        lines = _painted(out.shown_lines(self._line(cells)), row).rstrip("\n").split("\n")
        if not self._whole:
            lines.append(out.shown(f"  at {cells[-1]}"))
        if row.problem:
            lines.append(f"  {out.shown(row.problem)}")
        return "\n".join(lines)

    def _line(self, cells: tuple[str, ...]) -> str:
        return out.row_text(HEAD[: self._beside], cells[: self._beside], self._widths[: self._beside])


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
