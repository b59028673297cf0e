"""runtime/pump: one transport and one link, and the turns of the loop between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_peer.core.config import Config
from hermes_peer.runtime import endpoint as endpoints
from tests.agent.rig import QUICK, two
from tests.loops import both_loops, until


@both_loops
async def test_tokens_of_one_turn_share_a_write(home: Path, loop_kind: str) -> None:
    async with two(home) as (served, me):
        await me.call("worker", "echo", {})
        pump = next(iter(served._life.endpoint.pumps.values()))
        writes: list[int] = []
        write = pump.pipe.write

        def counted(data: bytes) -> None:
            writes.append(len(data))
            write(data)

        pump.pipe.write = counted

        async def burst() -> object:
            for i in range(100):
                yield i

        served.add_method("burst", burst)
        assert [i async for i in me.stream("worker", "burst")] == list(range(100))
        assert len(writes) <= 5


async def test_a_pump_whose_transport_is_gone_writes_nothing_and_has_no_timer(home: Path) -> None:
    async with two(home, config=QUICK) as (_, me):
        await me.call("worker", "echo", {})
        pump = next(iter(me._life.endpoint.pumps.values()))  # type: ignore[union-attr]
        pump.abort()
        await until(lambda: pump.link is None)
        assert pump._timer is None and pump._ack_timer is None
        pump.flush()
        pump.schedule()
        pump.received(b"late")
        pump.lost()
        assert pump not in pump.endpoint.open_pipes
        assert await me.call("worker", "echo", {"a": 1}) == {"a": 1}


async def test_small_answers_are_confirmed_though_nothing_else_is_sent(home: Path) -> None:
    async with two(home) as (served, me):
        await me.call("worker", "echo", {})
        session = next(c.session for c in served._life.endpoint.contacts.values())
        await until(lambda: not session.sender.replay.chunks, 1)


async def test_room_for_a_waiting_stream_is_told_with_the_write(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no ACK and no tick to come along, only the write itself can wake the generator."""
    monkeypatch.setattr(endpoints, "TICK_S", 3600.0)
    still = {"ack_s": 3600.0, "ack_frames": 10**9, "ack_bytes": 10**12, "idle_s": 3600.0, "busy_s": 3600.0}
    slow = Config(spare=0, rest_s=1e6, **still)
    async with two(home, config=slow) as (_, me):
        assert sum([1 async for _ in me.stream("worker", "tokens", {"n": 4000})]) == 4000
