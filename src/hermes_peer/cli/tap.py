"""`hermes-peer tap AGENT`: the frames of its links, opened, as lines (mission L25).

Knows: how a frame reads as a line. Refuses to know: how frames are caught. Called by: app.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_peer.cli import options, out

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent


def tap(
    agent: options.Target,
    peer: Annotated[
        str, typer.Option("--peer", metavar="NAME", help="Only the links to this agent.", show_default=False)
    ] = "",
    payload: Annotated[bool, typer.Option("--payload", help="Show payloads too; they may be confidential.")] = False,
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Show the frames of an agent's links, opened, as they pass.

    Needs the policy word "operate" over there. The line to yourself is left out. Payloads are not sent to you
    unless you ask for them.

    \b
    Examples:
      hermes-peer tap worker
      hermes-peer tap worker --peer planner --json > frames.jsonl
    """
    from hermes_peer.cli.visit import visit

    async def work(me: HermesAgent) -> None:
        opened = me.stream(agent, "hermes.tap", {"peer": peer, "payload": payload})
        async with opened as frames:
            async for frame in frames:
                if json:
                    await out.send(out.as_json(frame))
                elif isinstance(frame, dict) and "tapped" in frame:
                    links = ", ".join(map(str, frame.get("links") or [])) or "none yet"
                    out.note(out.shown(f"listening to the links of {frame['tapped']} ({links}); Ctrl-C ends it"))
                else:
                    await out.send(line_of(frame))

    return visit(work, home=home, json=json, streams=True)


def line_of(frame: Any) -> str:
    """A frame as one line: time, direction, peer, header fields, what the body says."""
    if not isinstance(frame, dict):
        return out.shown(out.as_json(frame))
    if "lost" in frame:
        return f"({frame['lost']} frames passed too fast to be shown)"
    clock = datetime.fromtimestamp(float(frame.get("at_ms") or 0) / 1000).strftime("%H:%M:%S.%f")[:-3]
    arrow = "<-" if frame.get("dir") == "in" else "->"
    flags = "|".join(map(str, frame.get("flags") or [])) or "-"
    head = (
        f"{clock} {arrow} {frame.get('peer')} {frame.get('type')} stream={frame.get('stream')} "
        f"seq={frame.get('sequence')} flags={flags} length={frame.get('length')}"
    )
    said = frame.get("body")
    rest = "".join(f" {name}={_word(value)}" for name, value in said.items()) if isinstance(said, dict) else ""
    text = f" payload={out.as_json(frame['payload'])}" if "payload" in frame else ""
    return out.shown(head + rest + text)


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else out.as_json(value)
