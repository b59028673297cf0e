"""What a call inherits: who is asking, since when, under which trace.

Knows: the request that the running handler serves, and how ids are made. Refuses to know: links, methods.
Called by: both sides of a call. Ids are a random prefix of the process and a counter: a UUID costs more than a call.
"""

from __future__ import annotations

import itertools
import os
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_peer.agent.request import Request

CURRENT: ContextVar[Request | None] = ContextVar("hermes_peer_request", default=None)

_prefix = os.urandom(8).hex()
_count = itertools.count(int.from_bytes(os.urandom(4), "big"))


def _renew() -> None:
    global _prefix
    _prefix = os.urandom(8).hex()


os.register_at_fork(after_in_child=_renew)


def new_id() -> str:
    """A message id that no other call of this process has: 16 hex digits of the process, then a counter."""
    return f"{_prefix}-{next(_count):x}"


def new_trace() -> str:
    """32 hex digits, as a W3C trace id."""
    return _prefix + new_span()


def new_span() -> str:
    """16 hex digits."""
    return f"{next(_count) & 0xFFFFFFFFFFFFFFFF:016x}"


def new_ids() -> tuple[str, str, str]:
    """Message id, trace id and span id of a call that inherits nothing, all from one count."""
    span = f"{next(_count) & 0xFFFFFFFFFFFFFFFF:016x}"
    return f"{_prefix}-{span}", _prefix + span, span


def parent_of(trace_id: str) -> str:
    """The span under which a call in this trace stands: the handler's that makes it, if it serves that trace
    (mission L19)."""
    request = CURRENT.get()
    return request.span_id if request is not None and request.trace_id == trace_id else ""


def current_trace() -> str:
    """The trace id of the request that the running handler serves; empty outside of one."""
    request = CURRENT.get()
    return request.trace_id if request is not None else ""
