"""`hermes-peer ttl`: how long a call should be given (mission I9).

Knows: the formula. Refuses to know: calls. Called by: app.
"""

from __future__ import annotations

import math
from typing import Annotated

import typer

from hermes_peer.cli import options, out
from hermes_peer.errors import UsageError

RESERVE = 1.5
LONGEST_S = 86_400


def ttl_seconds(hop_ms: float, chain: int, task_s: float) -> float:
    """hop x 2 + chain x task x 1.5, in seconds, not rounded (mission I9). Raises UsageError."""
    if not (0 <= hop_ms < math.inf and 0 < task_s < math.inf and chain >= 1):
        raise UsageError("--hop-ms must be 0 or more, --chain 1 or more, --task-s above 0")
    return hop_ms / 1000 * 2 + chain * task_s * RESERVE


def ttl(
    hop_ms: Annotated[float, typer.Option("--hop-ms", help="The slowest way to another agent (P99), in ms.")],
    chain: Annotated[int, typer.Option("--chain", help="How many agents work one after the other at most.")],
    task_s: Annotated[float, typer.Option("--task-s", help="How long one of them works (mean of P95), in s.")],
    json: options.Json = False,
) -> int:
    """Work out the ttl that a call should get.

    \b
    Example:
      hermes-peer ttl --hop-ms 300 --chain 5 --task-s 8
    """
    exact = round(ttl_seconds(hop_ms, chain, task_s), 6)
    seconds = max(1, math.ceil(exact))
    last = max(1, seconds - (chain - 1))
    if json:
        out.json_line({"ttl": seconds, "exact": exact, "left_for_the_last": last})
    else:
        out.line(str(seconds))
        agents = "1 agent" if chain == 1 else f"{chain} agents"
        out.note(
            f"2 x {hop_ms:g} ms on the way + {agents} x {task_s:g} s x {RESERVE:g} in reserve = {exact:g} s, "
            f"rounded up to {seconds} s"
        )
        if chain > 1:
            out.note(f"a hop that forwards takes 1 s of it: the last of {chain} has {last} s left")
    if seconds > LONGEST_S:
        out.note(f"an agent grants no call more than {LONGEST_S} s: split the task")
    return 0
