"""`hermes-peer ping`: how far away an agent is (mission M18).

Knows: the words of the command. Refuses to know: how a ping travels. Called by: app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hermes_peer.cli import options, out
from hermes_peer.errors import DeadlineExceeded

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent


def ping(
    agent: Annotated[
        str, typer.Argument(metavar="ADDRESS|AGENT", help="An address, a name, or a fingerprint.", show_default=False)
    ],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many pings.")] = 4,
    interval: Annotated[float, typer.Option("-i", "--interval", min=0.0, help="Seconds between two pings.")] = 0.5,
    ttl: options.ShortTtl = 2.0,
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Measure the way to an agent.

    Its line answers; no method is called, so only trust is needed.

    \b
    Examples:
      hermes-peer ping worker
      hermes-peer ping hermes://192.0.2.7:7891 -n 10
    """
    import asyncio

    from hermes_peer.cli.visit import contact_of, visit

    async def work(me: HermesAgent) -> int:
        loop = asyncio.get_running_loop()
        start = loop.time()
        contact = await contact_of(me, agent, ttl)
        connect_ms = (loop.time() - start) * 1000
        where = out.shown(f"{contact.name} ({contact.peer.fingerprint.hex()[:16]}) at {contact.address}")
        if not json:
            out.line(f"{where}: connected in {connect_ms:.1f} ms")
        times: list[float] = []
        for number in range(1, count + 1):
            if number > 1:
                await asyncio.sleep(interval)
            rtt_ms: float | None = None
            try:
                rtt_ms = await contact.ping(ttl) * 1000
                times.append(rtt_ms)
            except DeadlineExceeded:
                pass
            if json:
                out.json_line({"ping": number, "rtt_ms": None if rtt_ms is None else round(rtt_ms, 3)})
            elif rtt_ms is None:
                out.line(f"ping {number}: no answer within {ttl:g} s")
            else:
                out.line(f"ping {number}: {rtt_ms:.2f} ms")
        lost = count - len(times)
        low, mean, high = (min(times), sum(times) / len(times), max(times)) if times else (0.0, 0.0, 0.0)
        if json:
            out.json_line(
                {
                    "agent": contact.name,
                    "fingerprint": contact.peer.fingerprint.hex(),
                    "connect_ms": round(connect_ms, 3),
                    "sent": count,
                    "answered": len(times),
                    "min_ms": round(low, 3),
                    "mean_ms": round(mean, 3),
                    "max_ms": round(high, 3),
                }
            )
        elif times:
            out.line(f"{len(times)} of {count} answered; fastest {low:.2f}, mean {mean:.2f}, slowest {high:.2f} ms")
        else:
            out.line(f"none of {lost} answered")
        return 0 if times else 3

    return visit(work, home=home, json=json, streams=True)
