"""`hermes-peer id`: the stable id of a service on a host (mission I8).

Knows: the formula. Refuses to know: agents. Called by: app.
"""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_peer.cli import options, out


def id_(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="Such as db-query.", show_default=False)],
    env: Annotated[str, typer.Argument(metavar="ENV", help="Such as prod, staging, dev.")] = "prod",
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="This host's name if not given.", show_default=False)
    ] = "",
    json: options.Json = False,
) -> int:
    """Print the stable id of a service on a host.

    It is the same after every restart, and another one in another environment.

    \b
    Example:
      hermes-peer id db-query prod db-node-01
    """
    from hermes_peer.wire.invoke import stable_agent_id

    if not host:
        import socket

        host = socket.gethostname()
    found = stable_agent_id(service, env, host)
    if json:
        out.json_line({"id": found, "service": service, "env": env, "host": host})
        return 0
    out.line(found)
    out.note(out.shown(f"from SHA-256 of {f'{service}-{env}-{host}'!r}, shaped as a UUID of version 4"))
    return 0
