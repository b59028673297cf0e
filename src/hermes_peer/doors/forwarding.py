"""Handing a request on, to another door or to a peer: the trace stays, a second of ttl goes, ids are replaced.

Knows: what a hop may change (spec: invoke, section 6). Refuses to know: how the next hop is reached.
Called by: handlers that route.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from hermes_peer import DeadlineExceeded, HermesAgent, Request
from hermes_peer.wire.invoke import HOP_S

if TYPE_CHECKING:
    from hermes_peer.doors.client import HermesHttp


async def forward(
    request: Request, via: HermesHttp | HermesAgent, target: str = "", *, tool: str = "", payload: Any = None
) -> Any:
    """The result of the running `request`, worked out elsewhere: `via` a HermesHttp, or the agent itself and `target`.

    `tool` and `payload` default to those of the request. The id is made from the caller's and his name, so that what he
    sends twice is handled once there, too. Raises DeadlineExceeded where less than a second would be left, so that a
    circle of agents ends, and what `call` raises.
    """
    ttl = request.ttl_left - HOP_S
    if ttl <= 0:
        raise DeadlineExceeded(
            "ttl",
            f"{request.ttl_left:.3g} s are left, and one more hop costs {HOP_S} s: send it with a higher ttl",
            details={"ttl_left": round(request.ttl_left, 3), "hop_s": HOP_S},
            origin="local",
            trace_id=request.trace_id,
        )
    name, body = tool or request.method, request.payload if payload is None else payload
    id = hashlib.blake2b(f"{request.caller}\n{request.message_id}".encode(), digest_size=16).hexdigest()
    if isinstance(via, HermesAgent):
        return await via.call(target, name, body, ttl=ttl, trace_id=request.trace_id, message_id=id)
    return await via.call(name, body, ttl=ttl, trace_id=request.trace_id, task_id=id)
