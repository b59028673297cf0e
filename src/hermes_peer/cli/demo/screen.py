"""What the demo shows: the stream, the breaks, the kills, the recoveries; plain lines where there is no terminal.

Knows: rich, and events as dicts. Refuses to know: agents, faults. Called by: the demo's command.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

TAIL = 8


class Screen:
    """`show(event)` for each event of the planner, of the proxy, and of the second act."""

    def __init__(self, total: int) -> None:
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal and self.console.width >= 40
        self._begin = time.monotonic()
        self._total = total
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._breaks: list[list[str]] = []
        self._deaths: dict[str, list[str]] = {}
        self._summary = ""
        self._progress = Progress(
            TextColumn("findings"), BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.fields[line]}")
        )
        self._bar = self._progress.add_task("findings", total=total, line="connected")
        self._second: Any = None  # the second act's bar, once it has begun
        self._view = Live(console=self.console, get_renderable=self._render, refresh_per_second=12)

    def __enter__(self) -> Screen:
        if self.live:
            self._view.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self._view.stop()

    def show(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        at = f"{time.monotonic() - self._begin:5.1f} s"
        if kind == "finding":
            self._progress.update(self._bar, completed=event["items"])
            self._tail.append(f"{event['file']}: {event['text']}"[:200])
            if not self.live and event["items"] % max(1, self._total // 10) == 0:
                self._line(f"{at}  {event['items']} findings, newest: {event['file']}: {event['text'][:60]}")
            return
        if kind == "token":
            self._summary += event["text"]
            return
        if kind == "fault":
            self._breaks.append([at, event["name"], "…"])
            self._progress.update(self._bar, line="[yellow]disturbed")
            self._line(f"{at}  the line is {event['name']}")
        elif kind == "lost":
            self._progress.update(self._bar, line="[red]reconnecting")
            self._line(f"{at}  planner: line lost ({event['reason']})")
        elif kind == "back":
            if self._breaks:
                self._breaks[-1][2] = f"{event['ms']:.0f} ms"
            self._progress.update(self._bar, line="[green]connected")
            self._line(f"{at}  planner: back after {event['ms']:.0f} ms, nothing lost")
        elif kind == "asked":
            self._tail.append(f"the worker asks back: {event['question']} → {event['answer']}")
            self._line(f"{at}  the worker asks back: {event['question']} The planner says: {event['answer']}")
        elif kind == "plan":
            self._line(
                f"{at}  plan: {event['steps']} steps over {event['files']} files, {self._total} findings to come"
            )
        else:
            self._show_second(kind, event, at)

    def _show_second(self, kind: str, event: dict[str, Any], at: str) -> None:
        """The second act, in which processes die."""
        if kind == "second act":
            self._total = event["items"]
            self._progress.update(self._bar, line="[green]all here")
            self._second = self._progress.add_task("findings", total=self._total, line="worker and planner run")
            self._line(f"{at}  second act: a report of {self._total} findings as one piece of durable work")
        elif kind == "kept":
            if self._second is not None:
                self._progress.update(self._second, completed=event["items"])
            self._tail.append(f"{event['file']}: {event['text']}"[:200])
            if event["items"] % max(1, self._total // 5) == 0:
                self._line(f"{at}  {event['items']} findings of the report, newest: {event['file']}")
        elif kind == "killed":
            self._deaths[event["who"]] = [at, f"{event['who']} killed (SIGKILL)", "…"]
            self._mark(f"[red]{event['who']} is dead")
            self._line(f"{at}  the {event['who']} is killed (SIGKILL) and started again")
        elif kind == "goes on":
            self._mark(f"[yellow]{event['who']} goes on")
            self._line(f"{at}  {event['who']}: is back and goes on behind finding {event['at']}")
        elif kind == "recovered":
            self._deaths[event["who"]][2] = f"{event['ms']:.0f} ms"
            self._mark("[green]worker and planner run")
            self._line(f"{at}  {event['who']}: the next finding came {event['ms']:.0f} ms after the kill")

    def _mark(self, text: str) -> None:
        if self._second is not None:
            self._progress.update(self._second, line=text)

    def _line(self, text: str) -> None:
        if not self.live:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _render(self) -> Group:
        breaks = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        breaks.add_column("at")
        breaks.add_column("what happened")
        breaks.add_column("back after", justify="right")
        for row in (*self._breaks, *self._deaths.values()):
            breaks.add_row(row[0], Text(row[1]), Text(row[2], style="green" if "ms" in row[2] else "yellow"))
        tail = Text("\n".join(self._tail), no_wrap=True, overflow="ellipsis")
        parts: list[Any] = [self._progress, Panel(tail, title="stream", height=TAIL + 2), breaks]
        if self._summary:
            parts.append(Panel(Text(self._summary), title="summary by the model"))
        return Group(*parts)
