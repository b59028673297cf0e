"""What the core tells the layer above.

Knows: the kinds and the shape of an event. Refuses to know: who listens. Called by: everything in core.
"""

from __future__ import annotations

from enum import IntEnum


class Event(IntEnum):
    """First member of every session event `(Event, stream, body, fin, cost)`; unused members are None, False, 0.

    Plain tuples, because one is made for every message and token.
    """

    MESSAGE = 0  # a whole message (bytes); give `cost` back through `consumed` once it is read
    RESET = 1  # aborted, by the peer or for breaking a limit (body: an error object); if nobody owns it, release it
    WRITABLE = 2  # the queue of a stream with `notify` is empty
    WARM = 3  # the peer's handler is alive though silent
    LIVE = 4  # a link carries the session
    DETACHED = 5
    ENDED = 6  # body: Reason, fin: text
