"""`hermes-peer demo`: the words of the command.

Knows: its options. Refuses to know: what the demonstration does (demo.command). Called by: app.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="What to audit; this project if not given.", show_default=False),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A language model for the summary.", show_default=False)
    ] = None,
) -> int:
    """Watch two agents work while the line breaks, and while they are killed.

    A planner has a worker audit real files. First the line between them is cut again and again; then, in the middle
    of a report that is durable work, the worker is killed and started again, and the planner too. Nothing may be lost
    or doubled. The last line on stdout is JSON.
    """
    from hermes_peer.cli.demo.command import demo as show

    return show(folders or [], model)
