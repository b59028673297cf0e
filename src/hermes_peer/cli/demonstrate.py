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
    """Watch two agents work over a line that keeps breaking.

    A planner has a worker audit real files. The line between them is cut again and again; nothing may be lost or
    doubled. The last line on stdout is JSON.
    """
    from hermes_peer.cli.demo.command import demo as show

    return show(folders or [], model)
