"""`hermes-peer token`: who may use the plain doors of this home from elsewhere.

Knows: the words of the commands. Refuses to know: how tokens are kept. Called by: app.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hermes_peer.cli import options, out
from hermes_peer.cli.trust import _open

app = typer.Typer(help="Who may use the plain doors: add, list, revoke.", rich_markup_mode=None)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="What policy.toml calls its bearer: door:NAME.", show_default=False)
]


@app.command("add")
def add(name: Name, json: options.Json = False, home: options.Home = None) -> int:
    """Make a token, and show it this once.

    Whoever sends it (Authorization: Bearer TOKEN) is door:NAME in policy.toml. Doors that are open know it at once.

    \b
    Examples:
      hermes-peer token add dashboard
      TOKEN=$(hermes-peer token add dashboard)
    """
    from hermes_peer.access.tokens import add_token

    token = add_token(_open(home), name, time.time())
    if json:
        out.json_line({"name": name, "principal": f"door:{name}", "token": token})
        return 0
    out.line(token)
    out.note(f'keep it: it is shown this once. A rule with caller = "door:{name}" in policy.toml says what it may call')
    return 0


@app.command("list")
def list_(json: options.Json = False, home: options.Home = None) -> int:
    """Show the names that have a token. The tokens themselves are nowhere."""
    from hermes_peer.access.tokens import tokens

    found = tokens(_open(home))
    for each in found if json else ():
        out.json_line({"name": each.name, "principal": f"door:{each.name}", "made": each.made})
    if json:
        return 0
    if not found:
        out.note("no token was made yet; hermes-peer token add NAME makes one")
        return 0
    for line in out.table(("NAME", "CALLER", "MADE"), [(e.name, f"door:{e.name}", e.made) for e in found]).splitlines():
        out.line(out.shown(line))
    return 0


@app.command("revoke")
def revoke(name: Name, home: options.Home = None) -> int:
    """Take a token away. The next request with it is refused, open WebSockets end within seconds."""
    from hermes_peer.access.tokens import revoke_token

    if not revoke_token(_open(home), name):
        out.note(f"there is no token named {out.shown(name)}; nothing was changed")
        return 1
    out.line(f"{name} has no token any more")
    return 0
