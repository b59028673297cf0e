"""What we test with, and what users may test with: pairs on a virtual clock, fault proxy, contract kits."""

from hermes_peer.testing.proxy import FaultProxy

__all__ = ["FaultProxy"]
