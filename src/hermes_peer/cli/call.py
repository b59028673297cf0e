"""`hermes-peer call`: one call, one answer.

Knows: the words of the command. Refuses to know: how a call travels. Called by: app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_peer.cli import options, out

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent

Method = Annotated[str, typer.Argument(metavar="METHOD", help="Such as text.shout.", show_default=False)]
Payload = Annotated[
    list[str] | None,
    typer.Argument(metavar="PAYLOAD", help="KEY=VALUE …, or one JSON object, or '-' for stdin.", show_default=False),
]
Trace = Annotated[str, typer.Option("--trace-id", metavar="ID", help="Follow the call under this id.")]


def call(
    agent: options.Target,
    method: Method,
    payload: Payload = None,
    ttl: options.Ttl = None,
    trace_id: Trace = "",
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Call a method of an agent and print its result.

    A value is JSON if it parses as JSON, else text: n=3 is a number, n='"3"' and name=Ann are texts.

    \b
    Examples:
      hermes-peer call worker text.shout text=hi
      hermes-peer call worker text.shout '{"text": "hi"}'
      echo '{"text": "hi"}' | hermes-peer call worker text.shout -
      hermes-peer call worker report.build pages=12 --ttl 300 --json
    """
    from hermes_peer.access.names import check_method_name
    from hermes_peer.cli.payload import payload_of
    from hermes_peer.cli.visit import visit

    check_method_name(method)
    data = payload_of(payload or [])

    async def work(me: HermesAgent) -> None:
        result = await me.call(agent, method, data, ttl=ttl, trace_id=trace_id, on_progress=progress)
        if json:
            out.json_line({"result": result})
        else:
            out.line(out.value_text(result))

    return visit(work, home=home, json=json)


def progress(event: Any) -> None:
    """How far it is, while it lasts."""
    tokens = f", {event.tokens_used} tokens" if getattr(event, "tokens_used", 0) else ""
    out.note(out.shown(f"{event.state}{tokens}"))
