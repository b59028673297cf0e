"""What the commands write: lines, tables, JSON, notes.

Knows: terminals, pipes whose reader is slow or gone, colours, characters that must not reach a terminal.
Refuses to know: agents. Called by: every command.

Lines are written to the descriptor itself, so that each arrives at once and nothing is left for Python's exit.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable, Sequence
from typing import Any

STDOUT = 1
GONE = 141  # what a shell shows for a program whose reader went away
CHUNK = 4096  # a pipe that can be written takes this much without blocking (POSIX: PIPE_BUF)
LONGEST = 2000


class Gone(Exception):
    """Nobody reads stdout any more: the reader had enough, and we are done."""


def line(text: str = "") -> None:
    """One line on stdout, now. Raises Gone."""
    data = text.encode("utf-8", "backslashreplace") + b"\n"
    while data:
        data = data[_write(data) :]


def json_line(value: Any) -> None:
    """One line of JSON on stdout."""
    line(as_json(value))


def note(text: str) -> None:
    """One line on stderr: notes and errors; never fails."""
    try:
        sys.stderr.write(f"hermes-peer: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON as UTF-8 text, with everything escaped that a terminal could take for an order (attack: escape codes)."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def value_text(value: Any) -> str:
    """A value for a person: text as it is while it fits on one line, everything else as JSON."""
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    if isinstance(value, str) and value.isprintable():
        return value
    text = as_json(value)
    return text if len(text) <= width() or not isinstance(value, dict | list) else as_json(value, indent=2)


def shown(text: str) -> str:
    """Text of others within a sentence: one line, no control characters, not endless."""
    text = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def shown_lines(text: str) -> str:
    """`shown`, where the line breaks are ours."""
    return "\n".join(map(shown, text.split("\n")))


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"


# ---------------------------------------------------------------- the terminal
def on_terminal() -> bool:
    return os.isatty(STDOUT)


def colourful() -> bool:
    """Colours: on a terminal that can show them, unless the user said no (no-color.org)."""
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def moves() -> bool:
    """Whether the terminal can be drawn over."""
    return os.environ.get("TERM", "dumb") != "dumb"


def colour(text: str, code: str) -> str:
    """`code` is an SGR number: "32" green, "31" red, "1" bold, "2" faint."""
    return f"\x1b[{code}m{text}\x1b[0m" if colourful() else text


def width() -> int:
    """Columns; without a terminal lines are as long as they need to be."""
    if not on_terminal():
        return 1 << 20
    import shutil

    return max(10, shutil.get_terminal_size().columns)


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[int]:
    """How wide each column must be for all of `rows`."""
    widths = [len(each) for each in head]
    for row in rows:
        widths = [max(had, len(cell)) for had, cell in zip(widths, row, strict=True)]
    return widths


def fits(widths: Sequence[int]) -> bool:
    """Whether a table of these columns is no wider than the terminal."""
    return sum(widths) + 2 * (len(widths) - 1) <= width()


def row_text(head: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> str:
    """A row of a table; where the table is wider than the terminal, a block of `NAME value` lines."""
    if fits(widths):
        return "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)).rstrip()
    return "\n".join(f"{name.lower()} {cell}".rstrip() for name, cell in zip(head, cells, strict=True)) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A whole table as text."""
    widths = columns(head, rows)
    lines = [row_text(head, row, widths) for row in rows]
    if fits(widths):
        lines.insert(0, row_text(head, head, widths))
    return "\n".join(lines)


# ---------------------------------------------------------------- a reader that is slow, or gone
def _write(data: bytes) -> int:
    try:
        return os.write(STDOUT, data)
    except BrokenPipeError:
        raise Gone from None


async def send(text: str) -> None:
    """`line` for streams: a slow reader does not stop the event loop, so that heartbeats go on. Raises Gone."""
    data = text.encode("utf-8", "backslashreplace") + b"\n"
    while data:
        if not _takes():
            await _until_writable()
        data = data[_write(data[:CHUNK]) :]


def _takes() -> bool:
    poll = select.poll()
    poll.register(STDOUT, select.POLLOUT)
    return bool(poll.poll(0))


async def _until_writable() -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(STDOUT, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(STDOUT)


async def until_gone() -> None:
    """Returns once nobody reads stdout any more, also while nothing is written."""
    import asyncio

    poll = select.poll()
    poll.register(STDOUT, 0)  # errors and hang-ups are always told
    while not any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0)):
        await asyncio.sleep(0.2)
