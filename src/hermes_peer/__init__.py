"""Hermes Peer: AI agents talk to each other directly (see README.md).

The public face. Names load at first use, so that the import stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hermes_peer.errors import (
    CallError,
    Cancelled,
    Code,
    DeadlineExceeded,
    HermesError,
    JournalError,
    LinkError,
    MethodNotFound,
    OutcomeUnknown,
    PermissionDenied,
    RateLimited,
    SessionLost,
    Unavailable,
    UsageError,
)

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.methods import method
    from hermes_peer.agent.request import Request
    from hermes_peer.agent.streams import Stream
    from hermes_peer.agent.tasks import ProgressEvent, RequestInfo, ResultMessage, TaskEnvelope
    from hermes_peer.agent.values import Final

_LATER = {
    "HermesAgent": "agent.agent",
    "method": "agent.methods",
    "Request": "agent.request",
    "Stream": "agent.streams",
    "Final": "agent.values",
    "TaskEnvelope": "agent.tasks",
    "ProgressEvent": "agent.tasks",
    "RequestInfo": "agent.tasks",
    "ResultMessage": "agent.tasks",
}

__all__ = [
    "CallError",
    "Cancelled",
    "Code",
    "DeadlineExceeded",
    "Final",
    "HermesAgent",
    "HermesError",
    "JournalError",
    "LinkError",
    "MethodNotFound",
    "OutcomeUnknown",
    "PermissionDenied",
    "ProgressEvent",
    "RateLimited",
    "Request",
    "RequestInfo",
    "ResultMessage",
    "SessionLost",
    "Stream",
    "TaskEnvelope",
    "Unavailable",
    "UsageError",
    "method",
]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'hermes_peer' has no attribute {name!r}")
    value = getattr(import_module(f"hermes_peer.{module}"), name)
    globals()[name] = value
    return value
