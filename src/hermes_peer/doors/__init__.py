"""The plain doors: whatever speaks HTTP or WebSocket, or writes to a Unix socket, can talk to an agent (docs/doors.md).

`door(agent)` is an ASGI app; `HermesHttp` and `HermesHttpSync` call such doors; `forward` hands a request on.
Names load at first use: the doors need `pip install 'hermes-peer[http]'`, importing this does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_peer.doors.app import Door, door
    from hermes_peer.doors.client import HermesHttp, HermesHttpSync
    from hermes_peer.doors.forwarding import forward

_LATER = {
    "Door": "app",
    "HermesHttp": "client",
    "HermesHttpSync": "client",
    "door": "app",
    "forward": "forwarding",
}

__all__ = ["Door", "HermesHttp", "HermesHttpSync", "door", "forward"]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'hermes_peer.doors' has no attribute {name!r}")
    value = getattr(import_module(f"hermes_peer.doors.{module}"), name)
    globals()[name] = value
    return value
