"""The options that many commands share.

Knows: their names and help. Refuses to know: what commands do with them. Called by: the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path | None,
    typer.Option("--home", metavar="FOLDER", help="The home to use, instead of $HERMES_PEER_HOME.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Machine output on stdout, and nothing else there.")]


def ttl_option(text: str) -> object:
    """`--ttl` with its own words."""
    return typer.Option("--ttl", metavar="SECONDS", help=text, show_default=False, callback=_positive)


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter("seconds must be a number above 0")
    return value


def not_empty(value: str | None) -> str | None:
    """An ID of nothing is a shell variable that was not set."""
    if value == "":
        raise typer.BadParameter("it is empty")
    return value


Ttl = Annotated[float | None, ttl_option("How long to wait at most; 30 if not given.")]
StreamTtl = Annotated[float | None, ttl_option("How long the stream may last at most; a day if not given.")]
ShortTtl = Annotated[float, ttl_option("How long to wait for each answer; 2 if not given.")]
Target = Annotated[
    str, typer.Argument(metavar="AGENT", help="A name, a fingerprint, or an address.", show_default=False)
]
