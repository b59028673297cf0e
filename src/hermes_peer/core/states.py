"""Every state and every transition, as tables.

Knows: (state, input) -> next state. Refuses to know: which side we are, what a transition does.
Called by: link, session, stream. A missing row is a protocol error if received, misuse if commanded.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto


class Half(IntEnum):
    """One direction of a stream. Integers, because the tables are looked up for every message."""

    OPEN = auto()
    ENDED = auto()
    ABORTED = auto()


class HalfInput(IntEnum):
    DATA = auto()
    END = auto()
    RESET = auto()


HALF: dict[tuple[Half, HalfInput], Half] = {
    (Half.OPEN, HalfInput.DATA): Half.OPEN,
    (Half.OPEN, HalfInput.END): Half.ENDED,
    (Half.OPEN, HalfInput.RESET): Half.ABORTED,
    (Half.ENDED, HalfInput.RESET): Half.ABORTED,
}

# What still arrives after our own reset is absorbed: counted, credited, dropped.
RECEIVING_HALF: dict[tuple[Half, HalfInput], Half] = HALF | {
    (Half.ABORTED, HalfInput.DATA): Half.ABORTED,
    (Half.ABORTED, HalfInput.END): Half.ABORTED,
    (Half.ABORTED, HalfInput.RESET): Half.ABORTED,
}


class SessionState(Enum):
    """DETACHED: no link. RESUMING: our LINK is out, theirs is not here. LIVE: data flows. ENDED: for good."""

    DETACHED = auto()
    RESUMING = auto()
    LIVE = auto()
    ENDED = auto()


class SessionInput(Enum):
    ATTACH = auto()
    PEER_LINK = auto()
    DETACH = auto()
    END = auto()


SESSION: dict[tuple[SessionState, SessionInput], SessionState] = {
    (SessionState.DETACHED, SessionInput.ATTACH): SessionState.RESUMING,
    (SessionState.DETACHED, SessionInput.DETACH): SessionState.DETACHED,
    (SessionState.DETACHED, SessionInput.END): SessionState.ENDED,
    (SessionState.RESUMING, SessionInput.ATTACH): SessionState.RESUMING,
    (SessionState.RESUMING, SessionInput.PEER_LINK): SessionState.LIVE,
    (SessionState.RESUMING, SessionInput.DETACH): SessionState.DETACHED,
    (SessionState.RESUMING, SessionInput.END): SessionState.ENDED,
    (SessionState.LIVE, SessionInput.ATTACH): SessionState.RESUMING,
    (SessionState.LIVE, SessionInput.DETACH): SessionState.DETACHED,
    (SessionState.LIVE, SessionInput.END): SessionState.ENDED,
}


class LinkState(Enum):
    """The one linear path of a link. CLOSING: our last bytes are being written. CLOSED: nothing more either way."""

    HELLO = auto()  # acceptor waits for HELLO; dialler has sent it and waits for WELCOME or REFUSE
    READY = auto()  # acceptor waits for READY
    LINK = auto()  # keys stand; the other side's LINK has not opened yet
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class LinkInput(Enum):
    HELLO = auto()
    WELCOME = auto()
    READY = auto()
    LINK = auto()
    CLOSE = auto()
    EOF = auto()


_ALIVE = (LinkState.HELLO, LinkState.READY, LinkState.LINK, LinkState.OPEN)

LINK: dict[tuple[LinkState, LinkInput], LinkState] = {
    (LinkState.HELLO, LinkInput.HELLO): LinkState.READY,
    (LinkState.HELLO, LinkInput.WELCOME): LinkState.LINK,
    (LinkState.READY, LinkInput.READY): LinkState.LINK,
    (LinkState.LINK, LinkInput.LINK): LinkState.OPEN,
    (LinkState.CLOSING, LinkInput.CLOSE): LinkState.CLOSING,
    (LinkState.CLOSED, LinkInput.CLOSE): LinkState.CLOSED,
    (LinkState.CLOSING, LinkInput.EOF): LinkState.CLOSED,
    (LinkState.CLOSED, LinkInput.EOF): LinkState.CLOSED,
    **{(state, LinkInput.CLOSE): LinkState.CLOSING for state in _ALIVE},
    **{(state, LinkInput.EOF): LinkState.CLOSED for state in _ALIVE},
}


class Reason(IntEnum):
    """Why a link ends: the code of CLOSE and REFUSE, and the word that users see."""

    NONE = 0
    PROTOCOL = 1  # a rule of the wire was broken
    VERSION = 2  # no common version
    SUITE = 3  # no common suite
    BUSY = 4
    DRAINING = 5
    UNTRUSTED = 6  # the key is proven, and not wanted
    NAME = 7  # the name it gives itself is not granted
    SELF = 8  # both ends are the same key
    DUPLICATE = 9  # another link of the same pair stays
    REPLACED = 10  # a newer link or instance took the place
    CLONED = 11  # two instances keep taking the place from each other
    IDLE = 12
    SHUTDOWN = 13
    UNACCEPTABLE = 14  # capabilities that cannot be reconciled
    TIMEOUT = 15  # handshake or heartbeat
    ABUSE = 16  # too many frames that move nothing
    LOST = 17  # the transport ended
    PROOF = 18  # the handshake failed; the other side is told nothing
    EXPIRED = 20  # nobody came back within the resume window


def reason_of(code: int) -> Reason:
    """The reason that a received code stands for; NONE for one that we do not know."""
    return Reason(code) if code in Reason._value2member_map_ else Reason.NONE


# The only reasons that may be given in clear, by one who has not proved itself.
CLEAR = frozenset({Reason.VERSION, Reason.SUITE, Reason.BUSY, Reason.DRAINING})

# A dialler that gets one of these does not dial again by itself.
FINAL = frozenset(
    {
        Reason.PROTOCOL,
        Reason.VERSION,
        Reason.SUITE,
        Reason.UNTRUSTED,
        Reason.NAME,
        Reason.SELF,
        Reason.CLONED,
        Reason.UNACCEPTABLE,
        Reason.ABUSE,
    }
)
