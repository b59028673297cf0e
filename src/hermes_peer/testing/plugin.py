"""The pytest plugin: a home of its own for each test, two agents without a socket, a line that fails on order.

Knows: pytest's fixtures. Refuses to know: event loops (the plugin of your choice runs the coroutines).
Called by: pytest, through the entry point `pytest11`. Nothing of ours loads before a fixture is asked for.

    async def test_shout(hermes_pair):
        async with hermes_pair() as (worker, me):
            worker.add_method("shout", shout)
            assert await me.call("worker", "shout", {"text": "hi"}) == "HI"
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.testing.proxy import FaultProxy

Pair = Callable[..., contextlib.AbstractAsyncContextManager[tuple["HermesAgent", "HermesAgent"]]]


@contextlib.asynccontextmanager
async def agent_pair(
    home: str | Path, first: str = "worker", second: str = "planner", **options: Any
) -> AsyncIterator[tuple[HermesAgent, HermesAgent]]:
    """Two agents of one home that run and reach each other in memory. `options` are those of HermesAgent."""
    from hermes_peer.agent.agent import HermesAgent

    options.setdefault("drain_s", 0.05)
    one, two = (
        HermesAgent(name, home=home, **{"listen": f"hermes+memory://{name}", **options}) for name in (first, second)
    )
    async with one, two:
        yield one, two


@pytest.fixture
def hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new home, which is also that of every agent and command of this test (HERMES_PEER_HOME)."""
    home = tmp_path / "hermes-home"
    monkeypatch.setenv("HERMES_PEER_HOME", str(home))
    return home


@pytest.fixture
def hermes_pair(hermes_home: Path) -> Pair:
    """`async with hermes_pair() as (worker, planner)`: two running agents and no socket; see `agent_pair`."""

    def pair(
        first: str = "worker", second: str = "planner", **options: Any
    ) -> contextlib.AbstractAsyncContextManager[tuple[HermesAgent, HermesAgent]]:
        return agent_pair(hermes_home, first, second, **options)

    return pair


@pytest.fixture
def fault_proxy() -> Callable[..., FaultProxy]:
    """`async with fault_proxy(agent.addresses[1]) as proxy`: a relay to that address, or to (host, port) or a path."""

    def make(target: Any, **options: Any) -> FaultProxy:
        from hermes_peer.testing.proxy import FaultProxy
        from hermes_peer.wire.address import Address

        if isinstance(target, str) and "://" in target:
            address = Address.parse(target)
            target = address.path if address.scheme == "unix" else (address.host, address.port)
        return FaultProxy(target, **options)

    return make
