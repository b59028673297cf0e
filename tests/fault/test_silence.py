"""Lines that are silent without being closed: black holes, stopped processes, slow thinkers, heartbeats that differ.

Knows: what `status` may say while nothing moves. Refuses to know: how heartbeats are counted.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, Literal

import pytest

from hermes_peer.core.config import Config
from hermes_peer.core.states import Reason
from hermes_peer.runtime.backoff import SPREAD_S
from hermes_peer.testing import FaultProxy
from hermes_peer.wire.address import Address

from .rig import (
    FULL,
    Pair,
    clean,
    clean_each,
    link_of,
    make_caller,
    pair,
    settled,
    show,
    timed,
    until,
    worker_process,
)

Way = Literal["both", "up", "down"]
WAYS: list[Way] = ["both", "up", "down"]
SLOW = Config(idle_s=4.0, busy_s=2.0)


def listen_in(two: Pair) -> list[tuple[str, str]]:
    """What both sides are told of their lines, as it happens: ("caller lost", reason)."""
    news: list[tuple[str, str]] = []
    for agent in (two.a, two.b):
        agent.on_link(lambda peer, what, reason, s, name=agent.name: news.append((f"{name} {what}", reason)))
    return news


@pytest.mark.case("HPC-001")
@pytest.mark.attack(17)
def test_hpc_001_a_black_hole_in_any_direction_is_noticed_and_left(tmp_path: Path) -> None:
    async def scenario(way: Way) -> None:
        async with pair(tmp_path / way) as two:
            news = listen_in(two)
            items = []
            async with two.a.stream(two.to, "demo.tokens", {"n": 150, "every": 0.02}) as tokens:
                async for item in tokens:
                    items.append(item)
                    if item == 40:
                        assert two.state() == "connected"
                        two.p.refuse()
                        two.p.links[0].blackhole(way)
                        await until(lambda: "caller lost" in dict(news), "the caller notices")
                        for _ in range(20):  # while there is no way through nobody says "connected"
                            assert two.state() == "reconnecting"
                            await asyncio.sleep(0.005)
                        two.p.accept()  # the old pair stays in its hole
            assert items == list(range(1, 151))
            assert await tokens.result() == {"n": 150}
            assert two.offered.ran["tokens"] == 1
            assert "worker lost" in dict(news) or two.back.session.links == 2  # by its clock, or told by the new link
            assert two.contact.session.links == 2
            assert two.state() == "connected"

    clean_each(scenario, WAYS)


@pytest.mark.case("HPC-001")
def test_hpc_001_both_clocks_find_it_out_without_the_other(tmp_path: Path) -> None:
    """Nobody may dial: each side has only its own clock. One-way loss is found by both, too."""

    async def scenario(way: Way) -> None:
        async with pair(tmp_path / way) as two:
            news = listen_in(two)
            call = asyncio.ensure_future(two.a.call(two.to, "demo.held", {}))
            await until(lambda: two.offered.ran["held"], "the handler runs")
            two.p.refuse()
            with timed(f"black hole {way}, found out by both"):
                two.p.blackhole(way)
                await until(lambda: {"caller lost", "worker lost"} <= set(dict(news)), "both notice", 8)
            assert two.state() == "reconnecting"
            assert link_of(two.b, "caller")["state"] == "reconnecting"
            two.offered.release.set()  # the answer is made while there is no line
            await until(lambda: two.offered.ended["held"], "the handler ends")
            two.p.heal()
            two.p.accept()
            assert await call == {"held": True}
            assert two.offered.ran["held"] == 1

    clean_each(scenario, WAYS)


@pytest.mark.case("HPC-001")
def test_hpc_001_a_stopped_worker_ends_its_stream_whole_when_it_goes_on(tmp_path: Path) -> None:
    """kill -STOP in the middle of a stream, for longer than any heartbeat waits, then -CONT: 20 s with
    HERMES_FAULT_FULL=1."""
    stopped_s = 20.0 if FULL else 1.8

    async def scenario() -> None:
        async with worker_process(tmp_path, tmp_path / "home") as (worker, there), make_caller(tmp_path / "home") as a:
            news: list[str] = []
            a.on_link(lambda peer, what, reason, seconds: news.append(what))
            items = []
            async with a.stream(str(there), "demo.tokens", {"n": 300, "every": 0.005}) as tokens:
                async for item in tokens:
                    items.append(item)
                    if item == 40:
                        worker.kill(signal.SIGSTOP)
                        asyncio.get_running_loop().call_later(stopped_s, os.kill, worker.pid, signal.SIGCONT)
                        await until(lambda: "lost" in news, "the line is declared dead", 10)
                        assert link_of(a, "worker")["state"] == "reconnecting"
            assert items == list(range(1, 301))
            assert await tokens.result() == {"n": 300}
            line = link_of(a, "worker")
            show(f"stopped for {stopped_s:g} s: without a line for {line['recovery_ms']} ms")
            assert line["links"] >= 2  # the line was declared dead and made again
            worker.tell("counts")
            assert (await worker.said())["ran"] == {"tokens": 1}
            await settled(a)

    clean(scenario, limit=90)


@pytest.mark.attack(17)
def test_a_stalled_line_that_wakes_in_time_is_not_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, a={"config": SLOW}, b={"config": SLOW}) as two:
            two_calls = [await two.a.call(two.to, "demo.echo", {"n": 1})]
            two.p.stall(0.8)
            two_calls.append(await two.a.call(two.to, "demo.echo", {"n": 2}))
            assert two_calls == [{"n": 1}, {"n": 2}]
            assert (two.contact.breaks, two.p.connections) == (0, 1)

    clean(scenario)


@pytest.mark.attack(17)
def test_peers_that_never_say_a_word_are_dropped_by_the_handshake_clock(tmp_path: Path) -> None:
    """Half-open sockets cost a place until the handshake time is up, and no longer."""

    async def scenario() -> None:
        quick = Config(handshake_s=0.4, half_open_address=16)
        async with pair(tmp_path, b={"config": quick}) as two:
            there = Address.parse(two.to)
            wires = [await asyncio.open_connection(there.host, there.port) for _ in range(10)]
            half_open = two.b._running().endpoint.node.half_open
            await until(lambda: len(half_open) == 10, "ten that say nothing")
            assert await two.a.call(two.to, "demo.echo", {"in": "time"}) == {"in": "time"}
            await until(lambda: not half_open, "they are dropped")
            for reader, writer in wires:
                assert await reader.read() == b""  # silence, not a word of explanation
                writer.close()

    clean(scenario)


@pytest.mark.case("HPC-026")
def test_hpc_026_both_sides_settle_on_one_heartbeat(tmp_path: Path) -> None:
    """A would like to hear more often than B bears; then B expects signs of life that A never gives."""

    async def scenario(mine: float) -> None:
        theirs, agreed = 0.5, max(mine, 0.5)
        ours, others = Config(idle_s=mine, busy_s=mine), Config(idle_s=theirs, busy_s=theirs)
        async with pair(tmp_path / str(mine), a={"config": ours}, b={"config": others}) as two:
            # A silent handler, for many of the periods that either side would have liked.
            assert await two.a.call(two.to, "demo.sleep", {"s": 2.2}) == {"slept": 2.2}
            assert link_of(two.a, "worker")["heartbeat_s"] == link_of(two.b, "caller")["heartbeat_s"] == agreed
            assert (two.p.connections, two.contact.breaks, two.back.breaks) == (1, 0, 0)
            pings = two.contact.pump.link.heartbeat.n + two.back.pump.link.heartbeat.n
            assert pings <= 2 * (2.2 / (0.8 * agreed) + 2)

    clean_each(scenario, [0.05, 30.0])


@pytest.mark.case("HPC-028")
def test_hpc_028_a_handler_that_thinks_for_long_is_not_cut(tmp_path: Path) -> None:
    """Run 3: silent for several times the heartbeat's patience; WARM tells that the handler lives."""

    async def scenario() -> None:
        async with pair(tmp_path) as two:
            seen = []
            async with two.a.stream(two.to, "demo.silent", {"s": 2.2}) as thoughts:
                async for thought in thoughts:
                    seen.append(thought)
                    if thought == "first":
                        stream, session = thoughts._call.stream, two.contact.session
                        before, received = stream.seen_at, session.receiver.next
                        await until(lambda s=stream, b=before: s.seen_at > b, "a sign of life of the handler")
                        assert session.receiver.next == received  # without an item: WARM it was
            assert seen == ["first", "last"]
            assert (two.p.connections, two.contact.breaks) == (1, 0)

    clean(scenario)


def test_a_line_that_is_lost_while_the_handler_thinks_is_back_before_it_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as two:
            call = asyncio.ensure_future(two.a.call(two.to, "demo.held", {}))
            await until(lambda: two.offered.ran["held"], "the handler runs")
            for n in range(5):
                assert await two.a.call(two.to, "demo.echo", {"n": n}) == {"n": n}
                links = two.contact.session.links
                await two.p.cut()
                await until(lambda links=links: two.contact.session.links > links and two.contact.pump, "it is back")
            two.offered.release.set()
            assert await call == {"held": True}
            assert two.offered.ran["held"] == 1
            show(f"recoveries of a lone link: {link_of(two.a, 'worker')['recovery_ms']} ms (spread {SPREAD_S} s)")

    clean(scenario, rounds=2)


def test_black_holes_on_dialling_cost_a_time_out_each_and_no_more(tmp_path: Path) -> None:
    """The port answers, then nothing: the handshake's clock ends it, and the next attempt gets through."""

    async def scenario() -> None:
        quick: dict[str, Any] = {"config": Config(handshake_s=0.3)}
        async with pair(tmp_path, a=quick) as two:
            two.p.blackhole("down")
            two.p.connections = 0
            call = asyncio.ensure_future(two.a.call(two.to, "demo.echo", {"x": 1}))
            await two.p.until(lambda: two.p.connections == 1)
            await until(lambda: two.contact.last_error is not None, "the first attempt is given up")
            assert two.contact.last_error.reason == Reason.TIMEOUT.name.lower()
            assert not call.done()
            two.p.heal()
            assert await call == {"x": 1}

    clean(scenario)


def test_the_proxy_itself_leaves_nothing(tmp_path: Path) -> None:
    """The baseline of all these tests: two agents and a proxy come and go, and all is as before."""

    async def scenario() -> None:
        async with pair(tmp_path) as two:
            assert isinstance(two.p, FaultProxy)
            assert await two.a.call(two.to, "demo.echo", {}) == {}

    clean(scenario, rounds=3)


@pytest.mark.case("HPC-003")
def test_hpc_003_a_link_that_held_counts_as_progress_though_nothing_moved(tmp_path: Path) -> None:
    """A handler that thinks for an hour must not pay at the fifth cut for the four before."""

    async def scenario() -> None:
        async with pair(tmp_path, a={"redial_limit": 1}) as two:
            call = asyncio.ensure_future(two.a.call(two.to, "demo.held", {}))
            await until(lambda: two.offered.ran["held"], "the handler runs")
            for _ in range(2):  # more often than the limit
                links, pump = two.contact.session.links, two.contact.pump
                beat = pump.link.heartbeat
                await until(lambda b=beat: b.last_in - two.contact._up_at > 1.2 * b.patience, "the line has held")
                await two.p.cut()
                await until(lambda n=links: two.contact.session.links > n and two.contact.pump, "it is back")
                assert two.contact.backoff.attempts <= 1
            two.offered.release.set()
            assert await call == {"held": True}

    clean(scenario)
