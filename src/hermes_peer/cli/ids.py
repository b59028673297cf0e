"""`hermes-peer id`: the stable id of a service on a host (mission I8).

Knows: the formula. Refuses to know: agents. Called by: app.
"""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_peer.cli import options, out


def stable_agent_id(service: str, env: str, host: str) -> str:
    """The first 16 bytes of SHA-256 of "service-env-host", written as a UUID of version 4 (mission I8)."""
    import hashlib
    import uuid

    digest = bytearray(hashlib.sha256(f"{service}-{env}-{host}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(digest)))


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
