"""Outcomes of calls whose id the application chose: such a call is handled once, however often it arrives.

Knows: ids per principal, what became of them, for how long. Refuses to know: streams' bytes, methods.
Called by: serving. Ids that the library makes need no entry: within a session every frame is counted, and a call
is sent again in another session only if it provably did not run (spec: messages, section 5).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from hermes_peer.errors import CallError, Code, Unavailable

if TYPE_CHECKING:
    from hermes_peer.agent.inbound import Inbound

KEEP_S = 600.0
SWEEP_S = 0.5  # between two looks for room where there was none
ANSWER_MAX = 64 * 1024
PEER_MAX = 16 * 1024 * 1024
ENTRY = 256  # bytes that an entry costs besides its id and its answer
TOO_LARGE = "the outcome of this id was too large to be kept"


class Entry:
    """One id: what was asked, whether it has ended, who else waits for it."""

    __slots__ = ("answer", "attached", "digest", "due", "until")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.answer: bytes | None = None
        self.attached: list[Inbound] = []
        self.due = 0.0  # the call's deadline: until then it is never forgotten
        self.until = 0.0


class Outcomes:
    """Bounded by 16 MiB a principal: when full, what has outlived its call's ttl goes; nothing goes before that, and
    new work with an own id is refused.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._swept: dict[bytes, float] = {}  # when room was last made, and none was found
        self._kept: dict[bytes, OrderedDict[str, Entry]] = {}
        self._bytes: dict[bytes, int] = {}
        self._next: dict[bytes, list[tuple[float, str]]] = {}  # heaps of (until, id); an id may be gone already

    def begin(self, principal: bytes, id: str, method: str, payload: bytes, inbound: Inbound) -> bool:
        """True if the call is new and should run; else `inbound` has its answer, or will have it.

        Raises CallError: "conflict" if the id stands for another method or payload, "outcomes_full".
        """
        kept = self._kept.setdefault(principal, OrderedDict())
        self._expire(principal, kept)
        digest = blake2b(b"%d:%b%b" % (len(method), method.encode(), payload), digest_size=16).digest()
        entry = kept.get(id)
        if entry is not None:
            if entry.digest != digest:
                raise CallError(
                    "conflict",
                    f"the message id {id} was used for another method or payload; take a new id",
                    code=Code.ERROR_INVALID_REQUEST,
                )
            if entry.answer is None:
                entry.attached.append(inbound)
            else:
                inbound.answer_stored(entry.answer)
            return False
        if self._bytes.get(principal, 0) >= PEER_MAX and not self._make_room(principal, kept):
            raise Unavailable(
                "outcomes_full", "too many outcomes are kept for this caller; try later", retryable=True, retry_after=1
            )
        kept[id] = Entry(digest)
        self._bytes[principal] = self._bytes.get(principal, 0) + len(id) + ENTRY
        return True

    def end(self, principal: bytes, id: str, answer: bytes, until: float = 0.0) -> None:
        """The outcome: kept (till `until`, the call's deadline, at least), and given to whoever asked meanwhile."""
        kept = self._kept.get(principal)
        entry = kept.get(id) if kept is not None else None
        if kept is None or entry is None or entry.answer is not None:
            return
        entry.answer = answer if len(answer) <= ANSWER_MAX else _too_large()
        entry.due = until
        entry.until = max(self._time() + KEEP_S, until)
        kept.move_to_end(id)
        heappush(self._next.setdefault(principal, []), (entry.until, id))
        self._bytes[principal] += len(entry.answer)
        attached, entry.attached = entry.attached, []
        for inbound in attached:
            inbound.answer_stored(answer)

    def detach(self, principal: bytes, id: str, inbound: Inbound) -> None:
        """One that waits for the outcome of another gave up."""
        entry = self._kept.get(principal, OrderedDict()).get(id)
        if entry is not None and inbound in entry.attached:
            entry.attached.remove(inbound)

    def size(self) -> int:
        """Bytes kept (mission M24)."""
        return sum(self._bytes.values())

    def _make_room(self, principal: bytes, kept: OrderedDict[str, Entry]) -> bool:
        """Forget what nobody may still wait for, oldest first, down to three quarters. False if nothing could go."""
        now = self._time()
        if now < self._swept.get(principal, 0.0) + SWEEP_S:
            return False
        over, room = [], self._bytes[principal] - PEER_MAX * 3 // 4
        for id, entry in kept.items():
            if entry.answer is not None and entry.due <= now:
                over.append(id)
                room -= len(id) + ENTRY + len(entry.answer)
                if room <= 0:
                    break
        self._forget(principal, kept, over)
        heap = self._next.get(principal, [])
        if len(heap) > 2 * len(kept):
            heap[:] = [(entry.until, id) for id, entry in kept.items() if entry.answer is not None]
            heapify(heap)
        if self._bytes[principal] < PEER_MAX:
            return True
        self._swept[principal] = now
        return False

    def _expire(self, principal: bytes, kept: OrderedDict[str, Entry]) -> None:
        now, heap = self._time(), self._next.get(principal)
        while heap and heap[0][0] <= now:
            until, id = heappop(heap)
            entry = kept.get(id)
            if entry is not None and entry.answer is not None and entry.until == until:  # else: room was made of it
                self._forget(principal, kept, [id])

    def _forget(self, principal: bytes, kept: OrderedDict[str, Entry], ids: list[str]) -> None:
        for id in ids:
            entry = kept.pop(id)
            self._bytes[principal] -= len(id) + ENTRY + len(entry.answer or b"")


def _too_large() -> bytes:
    from hermes_peer.errors import OutcomeUnknown, error_body
    from hermes_peer.wire import jsons, messages

    error = OutcomeUnknown("outcome_unknown", TOO_LARGE, code=Code.ERROR_UNKNOWN)
    return messages.ERROR_HEAD + jsons.encode(error_body(error))
