"""Fixtures of this folder."""

from tests.testing.proxy_wires import over_wires

__all__ = ["over_wires"]
