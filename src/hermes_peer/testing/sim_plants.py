"""Known bugs, to be planted in the core: each one must be found, or the simulator is blind.

Knows: one line of the core per bug. Refuses to know: how it is found.
Called by: the simulator's command line and its test.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hermes_peer.core import heartbeat, link, node, peer, places, receiver, replay, resume, sender, session
from hermes_peer.crypto import seal
from hermes_peer.errors import UsageError

Edit = tuple[type, str, str, str]  # class, method, what stands there, what the bug makes of it

# The first three are the ones that must never be lost; the others keep the invariants honest.
PLANTS: dict[str, list[Edit]] = {
    "replay mark off by one": [
        (replay.Replay, "rewind", "self._from(again[0], mark)", "self._from(again[0], mark + 1)")
    ],
    "credit returned twice": [
        (receiver.Receiver, "consumed", "cost = unread", "pass"),
    ],
    "missing fence": [(node.Node, "_fence", "old, peer.link = peer.link, None", "old = None")],
    "acknowledged one too far": [(replay.Replay, "ack", "chunks[0][0] <= mark", "chunks[0][0] <= mark + 1")],
    "no duplicate check": [
        (
            receiver.Receiver,
            "receive",
            "budget.charge(budget.NOTHING, now)\n            continue",
            "budget",
        )
    ],
    "batch lost with its link": [
        (session.Session, "attach", "self.sender.keep_batch()", "self.sender._batch.clear()"),
        (session.Session, "detach", "self.sender.keep_batch()", "self.sender._batch.clear()"),
    ],
    "limits not told again": [(receiver.Receiver, "tell_all", "self.credits = {0: None}", "return")],
    "wrong parity": [(places.Places, "__init__", "1 if originator else 2", "1")],
    "place free at the reset": [(places.Places, "forget_if_done", "not stream.released or ", "")],
    "permit kept by a reset": [(receiver.Receiver, "abort", "self._end_long(stream)", "pass")],
    "spare kept": [
        (places.Places, "forget_if_done", "self.spare += stream.inbound.size - self._config.window", "pass")
    ],
    "always said not to have run": [(session.Session, "fate", 'else "unknown"', 'else "no"')],
    "sent again to the wrong link": [
        (session.Session, "peer_link", "self.sender.again = again", "self.sender.again.extend(again)"),
        (session.Session, "detach", "self.sender.again.clear()", "pass"),
    ],
    "nothing sent again": [(replay.Replay, "rewind", "return again", "return deque()")],
    "no permit asked for": [(receiver.Receiver, "_collect", "self.permits.ask(stream.id, window)", "False")],
    "session credit forgotten": [(receiver.Receiver, "_consume", "self.credits[0] = None", "pass")],
    "stream credit forgotten": [(receiver.Receiver, "consumed", "self.credits[stream.id] = stream", "pass")],
    "freed place not noticed": [(places.Places, "forget_if_done", "self.freed = True", "pass")],
    "limit of streams not noticed": [(places.Places, "raise_limit", "self.freed = True", "pass")],
    "limit of streams not told": [(places.Places, "forget_if_done", "self.tell = True", "pass")],
    "never dead": [
        (heartbeat.Heartbeat, "dead_at", "dead = self.last_in", "return float('inf')\n    dead = self.last_in")
    ],
    "pong not heard": [(heartbeat.Heartbeat, "pong", "self.waiting = None", "pass")],
    "idle ends the session": [(link.Link, "tick", '"idle", frames.CloseMode.DRAIN', '"idle"')],
    "counter not raised": [(seal.Sealer, "seal", "self.records = counter + 1", "pass")],
    "crossing ends the session": [(link.Link, "refuse", "reason is Reason.DUPLICATE", "False")],
    "both accept in a crossing": [(node.Node, "_contended", "if crossing and", "if False and")],
    "reset not sent": [(session.Session, "reset", "if stream.id:", "if False:")],
    "reset keeps its place in line": [
        (
            sender.Sender,
            "_number",
            "self.replay.next = sequence + 1",
            "self.replay.next = sequence + (0 if flags & 4 else 1)",
        )
    ],
    "ack not sent": [(receiver.Receiver, "_plan_ack", "config = self._config", "return")],
    "credit without limit": [(sender.Sender, "send", "and sent <= stream.limit", "")],
    "tomb with a wrong mark": [(resume.ResumeIndex, "bury", "session.receiver.next", "session.receiver.next - 1")],
    "old psk offered": [(peer.Peer, "confirm", "self.dial_psk = psk", "self.dial_psk = self.dial_psk or psk")],
    "fragments mixed up": [
        (receiver.Receiver, "_data", "stream.partial, stream.partial_cost = None, 0", "stream.partial_cost = 0")
    ],
    "the last stream said wrong": [
        (places.Places, "last_accepted", "return self._high", "return max(0, self._high - 2)")
    ],
}


@contextmanager
def plant(name: str) -> Iterator[None]:
    """The core with this bug in it; with an empty name the core as it is."""
    kept: list[tuple[type, str, Any]] = []
    try:
        for place, what, good, bad in PLANTS[name] if name else []:
            kept.append((place, what, place.__dict__[what]))
            setattr(place, what, _edited(place, what, good, bad))
        yield
    finally:
        for place, what, original in reversed(kept):
            setattr(place, what, original)


def _edited(place: type, what: str, good: str, bad: str) -> Any:
    """The method of `place`, compiled again with one line changed. UsageError if that line is not there."""
    text = _TEXTS[place, what]
    if good not in text:
        raise UsageError(f"{place.__name__}.{what} has no {good!r}: the planted bug must follow the core")
    scope: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + text.replace(good, bad), vars(sys.modules[place.__module__]), scope)
    return scope[what]


def _text(place: type, what: str) -> str:
    original = place.__dict__[what]
    function: Any = original.fget if isinstance(original, property) else original
    return textwrap.dedent(inspect.getsource(function))


# Read now: somebody may edit the files while we run.
_TEXTS = {(place, what): _text(place, what) for edits in PLANTS.values() for place, what, _, _ in edits}
