"""Losing a line and finding it again: budgets, crowds, moved peers, copied keys, one's own address.

Knows: how often is dialled, where to, and what a caller is told at the end. Refuses to know: heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, HermesError, LinkError, SessionLost
from hermes_peer.access.editing import add_pin
from hermes_peer.access.home import Home
from hermes_peer.core.config import Config
from hermes_peer.runtime import backoff
from hermes_peer.runtime import contact as contact_module
from hermes_peer.testing import FaultProxy
from hermes_peer.testing.relay import Ending
from hermes_peer.wire.address import Address

from .rig import (
    BEAT,
    Pair,
    clean,
    clean_each,
    free_port,
    link_of,
    make_caller,
    make_worker,
    pair,
    quick_redials,
    settled,
    show,
    tcp,
    until,
    worker_process,
)


@pytest.mark.case("HPC-003")
def test_hpc_003_a_spent_budget_ends_a_stream_once_and_clearly(tmp_path: Path) -> None:
    async def scenario() -> None:
        short = Config(idle_s=0.4, busy_s=0.2, resume_s=3.0)
        async with pair(tmp_path, a={"redial_limit": 5, "config": short}) as two:
            items: list[int] = []
            with pytest.raises(SessionLost) as lost:  # noqa: PT012
                async with two.a.stream(two.to, "demo.tokens", {"n": 100, "every": 0.02}) as tokens:
                    async for item in tokens:
                        items.append(item)
                        if item == 30:
                            two.p.refuse()
                            await two.p.cut()
            assert items[:30] == list(range(1, 31))
            assert items == list(range(1, len(items) + 1))
            assert lost.value.offset == len(items) == tokens.offset
            assert lost.value.ran == "unknown"
            assert "given up after 5 attempts" in str(lost.value)
            assert "connection refused" in str(lost.value)  # the last cause
            with pytest.raises(SessionLost):  # the same end, however often it is asked for
                await tokens.result()
            assert two.contact._task is None  # nobody dials any more
            two.p.accept()
            assert await two.a.call(two.to, "demo.echo", {"again": 1}) == {"again": 1}
            assert two.offered.ran["tokens"] == 1
            await until(lambda: two.offered.ended["tokens"], "the handler was cancelled")

    with quick_redials(0.03):
        clean(scenario)


@pytest.mark.case("HPC-003")
def test_hpc_003_connects_without_progress_do_not_refill_the_budget(tmp_path: Path) -> None:
    """The link comes up each time, and is cut before anything moved."""

    async def scenario() -> None:
        short = Config(idle_s=0.4, busy_s=0.2, resume_s=3.0)
        async with pair(tmp_path, a={"redial_limit": 5, "config": short}) as two:
            ups = 0

            @two.a.on_link
            def heard(peer: str, what: str, reason: str, seconds: float) -> None:
                nonlocal ups
                if what == "back":
                    ups += 1
                    for link in two.p.links:
                        link.end(Ending.RST)

            seen = []
            with pytest.raises(SessionLost) as lost:  # noqa: PT012
                async with two.a.stream(two.to, "demo.silent", {"s": 60}) as thoughts:
                    async for thought in thoughts:
                        seen.append(thought)
                        both = (two.contact.session.sender.replay, two.back.session.sender.replay)
                        await until(lambda b=both: not (b[0].bytes or b[1].bytes), "all is acknowledged")
                        await two.p.cut()
            assert seen == ["first"]
            assert lost.value.offset == 1
            assert "given up after 5 attempts" in str(lost.value)
            assert ups == 5
            two.a._watchers.clear()
            await two.p.until(lambda: not two.p.links)
            assert await two.a.call(two.to, "demo.echo", {"again": 1}) == {"again": 1}

    with quick_redials(0.03):
        clean(scenario)


@pytest.mark.case("HPC-005")
def test_hpc_005_items_made_while_the_reader_was_away_come_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as two:
            items = []
            async with two.a.stream(two.to, "demo.tokens", {"n": 20, "every": 0.03}) as tokens:
                async for item in tokens:
                    items.append(item)
                    if item == 5:
                        two.p.refuse()
                        await two.p.cut()
                        await until(lambda: two.offered.produced >= 13, "items 6 to 13 are made meanwhile")
                        assert two.contact.pump is None
                        two.p.accept()
            assert items == list(range(1, 21))
            assert await tokens.result() == {"n": 20}
            assert two.offered.ran["tokens"] == two.offered.ended["tokens"] == 1

    with quick_redials():
        clean(scenario, rounds=2)


@pytest.mark.case("HPC-010")
def test_hpc_010_an_id_that_is_delivered_again_and_again_runs_once(tmp_path: Path) -> None:
    """Nothing gets back to the caller for six deliveries; the seventh is answered."""

    async def scenario() -> None:
        async with pair(tmp_path, a={"redial_limit": 20}) as two:
            await two.a.call(two.to, "demo.echo", {})
            await settled(two.a, two.b)
            two.p.links[0].blackhole("down")
            call = asyncio.ensure_future(two.a.call(two.to, "demo.incr", {}, message_id="m-1"))
            await until(lambda: two.offered.ran["incr m-1"], "the first delivery")
            two.p.cut_after(1400, "down", once=False)  # in the middle of the answer to each resume
            before = two.p.connections
            await two.p.cut()
            await two.p.until(lambda: two.p.connections >= before + 6, 15)
            two.p.cut_after(None)
            assert await call == {"value": 1}
            assert two.offered.ran["incr m-1"] == 1
            # And so it stays when the application asks again, on this session and on the next.
            assert await two.a.call(two.to, "demo.incr", {}, message_id="m-1") == {"value": 1}
            await two.p.cut()
            assert await two.a.call(two.to, "demo.incr", {}, message_id="m-1") == {"value": 1}
            assert await two.a.call(two.to, "demo.incr", {}, message_id="m-2") == {"value": 1}
            assert (two.offered.ran["incr m-1"], two.offered.ran["incr m-2"]) == (1, 1)

    with quick_redials(0.02):
        clean(scenario)


@pytest.mark.case("HPC-010")
def test_hpc_010_after_a_restart_the_caller_is_told_that_it_may_have_run(tmp_path: Path) -> None:
    """The volatile guarantee: never sent again by itself once it may have run."""

    async def scenario() -> None:
        home, port = tmp_path / "home", free_port()
        async with make_caller(home) as a:
            async with worker_process(tmp_path, home, port) as (worker, there):
                call = asyncio.ensure_future(a.call(str(there), "demo.held", {}, message_id="m-1"))
                while True:
                    worker.tell("counts")
                    if (await worker.said())["ran"].get("held"):
                        break
                worker.kill()
                await worker.gone()
            async with worker_process(tmp_path, home, port) as (worker, _):
                with pytest.raises(SessionLost) as lost:
                    await call
                assert lost.value.ran == "unknown"
                worker.tell("counts")
                assert (await worker.said())["ran"] == {}
                assert await a.call(str(there), "demo.incr", {}, message_id="m-1") == {"value": 1}
                await settled(a)

    with quick_redials():
        clean(scenario)


@pytest.mark.case("HPC-009")
def test_hpc_009_a_crowd_does_not_come_back_in_the_same_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of 200 with 24, all pauses halved: the spread per link is so much longer."""
    crowd = 24
    monkeypatch.setattr(backoff, "SPREAD_S", 0.5 / crowd)
    attempts: dict[bytes, list[float]] = defaultdict(list)
    try_once = contact_module.Contact._try

    async def noted(self: Any, address: Address) -> Any:
        attempts[self.endpoint.node.identity.fingerprint].append(time.monotonic())
        return await try_once(self, address)

    monkeypatch.setattr(contact_module.Contact, "_try", noted)
    beat = Config(idle_s=0.5, busy_s=0.5)
    monkeypatch.setattr(backoff, "FIRST_S", 0.5)
    monkeypatch.setattr(backoff, "LONGEST_S", 1.0)

    def knows_the_crowd(agent: HermesAgent) -> bool:
        lines = list(agent._running().endpoint.contacts.values())
        link = lines[0].pump.link if lines and lines[0].pump is not None else None
        # A loss right after the handshake would count as one more failed attempt.
        return link is not None and link.heartbeat.load.links >= crowd and lines[0]._held(link)

    async def scenario() -> None:
        home, port = tmp_path / "home", free_port()
        agents = [HermesAgent(f"c{n}", home=home, listen=False, config=beat) for n in range(crowd)]
        async with contextlib.AsyncExitStack() as stack:
            worker, there = await stack.enter_async_context(worker_process(tmp_path, home, port))
            for agent in agents:
                agent.keep_links = (str(there),)
                await stack.enter_async_context(agent)
            await until(lambda: all(map(knows_the_crowd, agents)), "all are connected and know how many they are", 20)
            for round in (1, 2):
                attempts.clear()
                worker.kill()
                await worker.gone()
                await until(lambda: len(attempts) == crowd, "each has dialled")
                first = sorted(times[0] for times in attempts.values())
                most = max(sum(1 for at in first if begin <= at < begin + 0.1) for begin in first)
                show(f"round {round}: {most} of {crowd} in the busiest 100 ms, all within {first[-1] - first[0]:.2f} s")
                # A fifth on average, half by bad luck; without a spread it is all.
                assert most <= crowd * 3 // 4, "too many dial at once"
                worker, _ = await stack.enter_async_context(worker_process(tmp_path, home, port))
                back = time.monotonic()
                await until(lambda: all(map(knows_the_crowd, agents)), "all are back", 20)
                show(f"round {round}: all back {time.monotonic() - back:.2f} s after the worker")
                for times in attempts.values():
                    pauses = [b - a for a, b in itertools.pairwise(times)]
                    assert all(pause >= 0.2 for pause in pauses), (
                        pauses
                    )  # the first pause is 0.25 to 0.5 s, then longer
                    assert len(times) <= 12
                worker.tell("counts")
                counts = await worker.said()
                assert [line["breaks"] for line in counts["links"]] == [0] * crowd  # no healthy link was dropped

    clean(scenario, limit=60)


@pytest.mark.case("HPC-045")
def test_hpc_045_a_copied_key_is_named_and_its_loser_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        worker, _ = make_worker(tmp_path / "home")
        async with worker:
            there = str(tcp(worker))
            first = HermesAgent("caller", home=tmp_path / "home", listen=False, keep_links=[there], config=BEAT)
            async with first:
                await until(lambda: link_of(first, "worker").get("state") == "connected", "the original is connected")
                shutil.copytree(tmp_path / "home", tmp_path / "copy")
                second = HermesAgent("caller", home=tmp_path / "copy", listen=False, keep_links=[there], config=BEAT)
                async with second:
                    begin = time.monotonic()

                    def quiet(seconds: float) -> bool:
                        return time.monotonic() - begin > seconds

                    assert second.fingerprint == first.fingerprint
                    both = [agent._running().endpoint for agent in (first, second)]

                    def told() -> list[contact_module.Contact]:
                        lines = [line for endpoint in both for line in endpoint.contacts.values()]
                        return [line for line in lines if "in use" in str(line.last_error)]

                    losers = await until(told, "somebody is told")
                    lines = [next(iter(endpoint.contacts.values())) for endpoint in both]
                    assert len(losers) == 1
                    assert "make a new key" in str(losers[0].last_error)
                    loser, winner = losers[0], next(line for line in lines if line not in losers)
                    served = worker.status()["links"][0]["links"]
                    # And then there is peace: the loser knocks once more at most, and then waits for minutes.
                    refused = worker.status()["refused_links"]
                    await until(
                        lambda: worker.status()["refused_links"]["cloned"] > refused["cloned"] or quiet(3.0), ""
                    )
                    await until(lambda: loser._task is None, "the loser no longer dials")
                    assert loser.pump is None
                    assert winner.pump is not None
                    assert worker.status()["links"][0]["links"] == served
                    assert worker.status()["refused_links"]["cloned"] <= 3
                    assert caplog.text.count("refuses us for good") == 1
                # The copy is gone: the original works again, without a restart.
                assert await first.call(there, "demo.echo", {"x": 1}, ttl=10) == {"x": 1}

    clean(scenario)


@pytest.mark.case("HPC-047")
def test_hpc_047_an_agent_does_not_dial_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        agent, offered = make_worker(tmp_path)
        async with agent:
            own = tcp(agent)
            async with FaultProxy((own.host, own.port)) as p:
                forwarded = Address.tcp(*p.address, own.fingerprint)
                localhost = Address.tcp("localhost", own.port, own.fingerprint)
                # `pin FP name=svc at=…` of its own key, and its own record under its own name
                add_pin(Home.open(tmp_path), own.fingerprint, "svc", f"hermes://127.0.0.1:{own.port}")
                agent._running().directory.reload()
                for target in [*agent.addresses, str(forwarded), str(localhost), "svc", "worker", own.fingerprint]:
                    with pytest.raises(HermesError) as told:
                        await agent.call(target, "demo.echo", {}, ttl=5)
                    assert "own" in str(told.value) or "itself" in str(told.value), (target, told.value)
                assert p.connections == 0  # known before the first byte
            assert offered.ran["echo"] == 0
            assert caplog.text.count("itself") <= 1

    clean(scenario)


@pytest.mark.case("HPC-072")
def test_hpc_072_a_peer_that_moved_is_found_at_its_new_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at one address, started again at another with the same name and key; each record has two addresses."""

    async def scenario() -> None:
        home = tmp_path / "home"
        short = Path(os.environ["XDG_RUNTIME_DIR"])  # a socket's path has a limit
        for number in ("1", "2"):
            (short / number).mkdir(mode=0o700, exist_ok=True)
        async with make_caller(home) as a:
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / "1"))
            async with worker_process(tmp_path, home) as (worker, first):
                assert await a.call("worker", "demo.echo", {"n": 0}) == {"n": 0}
                held = asyncio.ensure_future(a.call("worker", "demo.sleep", {"s": 60}, ttl=50))
                while True:
                    worker.tell("counts")
                    if (await worker.said())["ran"].get("sleep"):
                        break
                worker.kill()
                await worker.gone()
            waiting = [asyncio.ensure_future(a.call("worker", "demo.echo", {"n": n}, ttl=30)) for n in range(1, 6)]
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / "2"))
            async with worker_process(tmp_path, home) as (worker, second):
                assert second.fingerprint == first.fingerprint and second.port != first.port
                for n, call in enumerate(waiting, 1):  # queued while it was away: they never ran, so they may follow
                    assert await call == {"n": n}
                with pytest.raises(SessionLost) as lost:
                    await held
                assert lost.value.ran == "unknown"
                assert await a.call("worker", "demo.echo", {"n": 9}) == {"n": 9}
                # Two addresses of which the first, the Unix socket, is dead: the second is tried in the same attempt.
                # (So is the caller's own, or the worker might be the first to dial back.)
                for path in list(short.rglob("*.sock")):
                    path.unlink()
                line = next(iter(a._running().endpoint.contacts.values()))
                line.pump.abort()
                assert await a.call("worker", "demo.echo", {"n": 10}) == {"n": 10}
                assert line.address == "127.0.0.1"
                worker.child.stdin.close()  # it closes itself in an orderly way
                await worker.gone()
            # Gone altogether, and its record with it: attempts end by budget, in a sentence that says so.
            with pytest.raises(HermesError) as told:
                await a.call("worker", "demo.echo", {"n": 11}, ttl=10)
            assert isinstance(told.value, LinkError | SessionLost | TimeoutError)
            assert "worker" in str(told.value)
            await settled(a)

    with quick_redials():
        clean(scenario)


@pytest.mark.case("HPC-075")
def test_hpc_075_a_caller_that_returns_while_the_worker_is_busy_is_served(tmp_path: Path) -> None:
    """`block` runs in a thread; `stall` stops the whole loop of the worker."""

    async def scenario(method: str) -> None:
        home = tmp_path / method
        async with (
            worker_process(tmp_path, home) as (worker, there),
            FaultProxy((there.host, there.port)) as p,
            make_caller(home) as a,
        ):
            to = str(Address.tcp(*p.address, there.fingerprint))
            assert await a.call(to, "demo.echo", {"n": 0}) == {"n": 0}
            busy = asyncio.ensure_future(a.call(to, method, {"s": 1.2}))
            served = p.bytes_up
            await p.until(lambda: p.bytes_up > served)
            for _ in range(2):  # the second and the third connection of the same key
                before = p.connections
                await p.cut()
                await p.until(lambda before=before: p.connections > before)
            assert await a.call(to, "demo.echo", {"n": 1}, ttl=10) == {"n": 1}
            assert await busy == {f"{'block' if method == 'demo.block' else 'stall'}ed": 1.2}
            assert await a.call(to, "demo.echo", {"n": 2}) == {"n": 2}
            worker.tell("counts")
            counts = await worker.said()
            assert counts["ran"][method.removeprefix("demo.")] == 1
            assert [line["state"] for line in counts["links"]] == ["connected"]
            await p.until(lambda: len(p.links) == 1)  # none is accepted and deaf
            await settled(a)

    clean_each(scenario, ["demo.block", "demo.stall"])


@pytest.mark.case("HPC-081")
def test_hpc_081_both_sides_resume_at_once_and_one_session_stays(tmp_path: Path) -> None:
    """The part that lives in memory: two dials at the same moment, with new calls coming in."""

    async def scenario() -> None:
        a, _ = make_worker(tmp_path, "caller")
        b, offered = make_worker(tmp_path, "worker")
        async with a, b:
            items = []
            async with a.stream("worker", "demo.tokens", {"n": 400, "every": 0.004}) as tokens:
                two = Pair()
                two.a, two.b = a, b
                session, sessions = two.contact.session, set()
                async for item in tokens:
                    items.append(item)
                    if item % 20 == 0:
                        sessions |= {id(two.contact.session), id(two.back.session)}
                        mine, theirs = two.contact, two.back
                        breaks = mine.breaks + theirs.breaks
                        (mine if item % 40 else theirs).pump.abort()
                        await until(lambda m=mine, t=theirs, n=breaks: m.breaks + t.breaks > n, "the line is lost")
                        theirs.wake()
                        mine.wake()
                        assert await a.call("worker", "demo.incr", {}, message_id=f"m-{item}") == {"value": 1}
            assert items == list(range(1, 401))
            assert len(sessions) == 2 and two.contact.session is session  # one at each end, the same all the time
            assert two.contact.session.id == two.back.session.id
            assert offered.ran["tokens"] == 1
            assert all(times == 1 for name, times in offered.ran.items() if name.startswith("incr"))
            await until(lambda: len(a._running().endpoint.pumps) == len(b._running().endpoint.pumps) == 1, "one link")
            await settled(a, b)

    clean(scenario)


def test_the_port_stays_silent_to_strangers(tmp_path: Path) -> None:
    """What a scanner sends is not answered, and leaves nothing behind."""

    async def scenario() -> None:
        async with pair(tmp_path) as two:
            there = tcp(two.b)
            for opening in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(600), b"\x16\x03\x01" + bytes(40), b"HRMP"):
                reader, writer = await asyncio.open_connection(there.host, there.port)
                writer.write(opening)
                writer.write_eof()
                assert await reader.read() == b""
                writer.close()
            assert await two.a.call(two.to, "demo.echo", {}) == {}

    clean(scenario)
