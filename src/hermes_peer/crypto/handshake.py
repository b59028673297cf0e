"""The face of `hermes-link/1`: what a link needs to dial and to be dialled (spec: handshake).

Knows: which names are for others. Refuses to know: anything else.
Called by: core.link, core.session, testing.
"""

from hermes_peer.crypto.acceptor import Acceptor, FindPsk, Resumable
from hermes_peer.crypto.dialler import Dialler
from hermes_peer.crypto.messages import Offer
from hermes_peer.crypto.outcome import HandshakeError, Outcome, Refuse
from hermes_peer.crypto.schedule import ZERO, host_tag, resume_id
from hermes_peer.crypto.side import Entropy

__all__ = [
    "ZERO",
    "Acceptor",
    "Dialler",
    "Entropy",
    "FindPsk",
    "HandshakeError",
    "Offer",
    "Outcome",
    "Refuse",
    "Resumable",
    "host_tag",
    "resume_id",
]
