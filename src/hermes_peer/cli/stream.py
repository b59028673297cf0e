"""`hermes-peer stream`: items as they come, one a line.

Knows: the words of the command. Refuses to know: how a stream travels. Called by: app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_peer.cli import options, out
from hermes_peer.cli.call import Method, Payload, Trace, progress

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent


def stream(
    agent: options.Target,
    method: Method,
    payload: Payload = None,
    ttl: options.StreamTtl = None,
    trace_id: Trace = "",
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Call a method that yields, and print each item as it comes.

    What the method returns at its end goes to stderr. With --json every line is {"item": …} and the last one
    {"result": …}. Ctrl-C, or a reader such as head that has enough, cancels the method.

    \b
    Examples:
      hermes-peer stream worker text.words text='a b c'
      hermes-peer stream worker text.words text='a b c' | head -1
    """
    from hermes_peer.access.names import check_method_name
    from hermes_peer.cli.payload import payload_of
    from hermes_peer.cli.visit import visit

    check_method_name(method)
    data = payload_of(payload or [])

    async def work(me: HermesAgent) -> None:
        opened = me.stream(agent, method, data, ttl=ttl, trace_id=trace_id, on_progress=progress)
        async with opened as items:
            async for item in items:
                await out.send(out.as_json({"item": _plain(item)}) if json else out.value_text(item))
            result = await items.result()
        if json:
            out.json_line({"result": result})
        elif result is not None:
            out.note(f"result: {out.shown(out.as_json(result))}")

    return visit(work, home=home, json=json, streams=True)


def _plain(item: Any) -> Any:
    if isinstance(item, bytes):  # an item of plain bytes has no JSON form of its own
        import base64

        return {"base64": base64.b64encode(item).decode("ascii")}
    return item
