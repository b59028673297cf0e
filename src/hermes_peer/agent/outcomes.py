"""Outcomes of calls whose id the application chose: such a call is handled once, however often it arrives.

Knows: ids per principal, what became of them, for how long. Refuses to know: streams' bytes, methods.
Called by: serving. Ids that the library makes need no entry: within a session every frame is counted, and a call
is sent again in another session only if it provably did not run (spec: messages, section 5).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_peer.errors import Unavailable

if TYPE_CHECKING:
    from hermes_peer.agent.serving import Inbound

KEEP_S = 600.0
ANSWER_MAX = 64 * 1024
PEER_MAX = 16 * 1024 * 1024
TOO_LARGE = "the outcome of this id was too large to be kept"


class _Entry:
    __slots__ = ("answer", "attached", "until")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.attached: list[Inbound] = []
        self.until = 0.0


class Outcomes:
    """Bounded by 16 MiB a principal: when full, new work with an own id is refused; nothing is forgotten early."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._kept: dict[bytes, OrderedDict[str, _Entry]] = {}
        self._bytes: dict[bytes, int] = {}

    def begin(self, principal: bytes, id: str, inbound: Inbound) -> bool:
        """True if the call is new and should run; else `inbound` has its answer, or will have it. Raises CallError."""
        kept = self._kept.setdefault(principal, OrderedDict())
        self._expire(principal, kept)
        entry = kept.get(id)
        if entry is not None:
            if entry.answer is None:
                entry.attached.append(inbound)
            else:
                inbound.answer_stored(entry.answer)
            return False
        if self._bytes.get(principal, 0) >= PEER_MAX:
            raise Unavailable(
                "outcomes_full", "too many outcomes are kept for this caller; try later", retryable=True, retry_after=1
            )
        kept[id] = _Entry()
        self._bytes[principal] = self._bytes.get(principal, 0) + len(id) + 128
        return True

    def end(self, principal: bytes, id: str, answer: bytes) -> None:
        """The outcome: kept, and given to whoever asked again meanwhile."""
        entry = self._kept.get(principal, {}).get(id)
        if entry is None:
            return
        entry.answer = answer if len(answer) <= ANSWER_MAX else _too_large()
        entry.until = self._time() + KEEP_S
        self._bytes[principal] += len(entry.answer)
        attached, entry.attached = entry.attached, []
        for inbound in attached:
            inbound.answer_stored(answer)

    def size(self) -> int:
        """Bytes kept (mission M24)."""
        return sum(self._bytes.values())

    def _expire(self, principal: bytes, kept: OrderedDict[str, _Entry]) -> None:
        now = self._time()
        while kept:
            id, entry = next(iter(kept.items()))
            if entry.answer is None or entry.until > now:
                return
            del kept[id]
            self._bytes[principal] -= len(id) + 128 + len(entry.answer)


def _too_large() -> bytes:
    from hermes_peer.errors import Code, OutcomeUnknown, error_body
    from hermes_peer.wire import jsons, messages

    error = OutcomeUnknown("outcome_unknown", TOO_LARGE, code=Code.ERROR_UNKNOWN)
    return messages.ERROR_HEAD + jsons.encode(error_body(error))
