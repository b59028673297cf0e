"""What we test with, and what users may test with: pairs on a virtual clock, fault proxy, contract kits.

Names load at first use. The pytest plugin (`hermes_home`, `hermes_pair`, `fault_proxy`) is in `testing.plugin`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_peer.testing.contracts import check_registry, check_transport
    from hermes_peer.testing.plugin import agent_pair
    from hermes_peer.testing.proxy import FaultProxy

_LATER = {
    "FaultProxy": "proxy",
    "agent_pair": "plugin",
    "check_registry": "contracts",
    "check_transport": "contracts",
}

__all__ = ["FaultProxy", "agent_pair", "check_registry", "check_transport"]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'hermes_peer.testing' has no attribute {name!r}")
    value = getattr(import_module(f"hermes_peer.testing.{module}"), name)
    globals()[name] = value
    return value
