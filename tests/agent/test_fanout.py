"""agent/fanout: calling everybody in a loop is refused (mission M15)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_peer import UsageError
from hermes_peer.agent import fanout
from hermes_peer.agent.fanout import Guard
from tests.agent.rig import planner, worker


def to(n: int) -> Any:
    return instance(n, f"w{n}")


def instance(n: int, name: str) -> Any:
    return SimpleNamespace(peer=SimpleNamespace(fingerprint=b"%032d" % n, names=frozenset({name})))


def test_the_eighth_is_refused_and_the_first_seven_go_on() -> None:
    guard = Guard()
    for n in range(7):
        guard.check("m", b"{}", to(n), 1.0)
    with pytest.raises(UsageError, match="event bus"):
        guard.check("m", b"{}", to(7), 1.0)
    for n in range(7):
        guard.check("m", b"{}", to(n), 1.0)
    guard.check("m", b'{"other":1}', to(7), 1.0)
    guard.check("n", b"{}", to(7), 1.0)


def test_instances_of_one_name_are_one_agent() -> None:
    guard = Guard()
    for n in range(30):
        guard.check("m", b"{}", instance(n, "worker"), 1.0)
    for n in range(6):
        guard.check("m", b"{}", to(n), 1.0)
    with pytest.raises(UsageError, match="event bus"):
        guard.check("m", b"{}", to(6), 1.0)


def test_a_first_agent_that_was_called_before_counts() -> None:
    guard = Guard()
    for n in range(50):
        guard.check("warm", b"%d" % n, to(0), 0.0)
    for n in range(7):
        guard.check("m", b"{}", to(n), 20.0)
    with pytest.raises(UsageError):
        guard.check("m", b"{}", to(7), 20.0)


def test_ten_seconds_later_it_is_another_matter() -> None:
    guard = Guard()
    for n in range(30):
        guard.check("m", b"{}", to(n), n * 1.5)  # never more than seven within ten seconds
    for n in range(6):
        guard.check("m", b"{}", to(100 + n), 60.0)
    guard.check("m", b"{}", to(106), 69.9)
    with pytest.raises(UsageError):
        guard.check("m", b"{}", to(107), 69.95)
    guard.check("m", b"{}", to(107), 70.5)


def test_the_products_own_methods_are_exempt() -> None:
    guard = Guard()
    for n in range(50):
        guard.check("hermes.status", b"{}", to(n), 0.0)


def test_memory_and_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "KEPT", 100)
    guard = Guard()
    for n in range(10_000):
        guard.check("m", b"%d" % n, to(n % 3), 1.0)
    assert len(guard._new) <= 100 and len(guard._old) <= 100


async def test_eight_agents(home: Path) -> None:
    agents = [worker(home, name=f"w{n}", listen=f"hermes+memory://w{n}") for n in range(8)]
    async with planner(home, listen=False) as me:
        for agent in agents:
            await agent.__aenter__()
        await me.call("w0", "echo", {"warm": 1})
        for n in range(7):
            await me.call(f"w{n}", "echo", {"all": 1})
        for refused in (me.call("w7", "echo", {"all": 1}), anext(me.stream("w7", "echo", {"all": 1}))):
            with pytest.raises(UsageError, match="event bus"):
                await refused
        with pytest.raises(UsageError, match="event bus"):
            await me.emit("w7", "echo", {"all": 1})
        for n in range(8):
            await me.call(f"w{n}", "hermes.ping")
        for agent in agents:
            await agent.aclose()
