"""agent/life: beginning and ending, in every order; trust and rest while it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, LinkError, SessionLost, UsageError
from hermes_peer.agent import life
from tests.agent.rig import QUICK, planner, two, worker
from tests.loops import both_loops, case, until


@case("HPC-032")
@both_loops
async def test_closing_from_any_task_in_any_order(home: Path, loop_kind: str) -> None:
    for order in ((1, 0, 2), (2, 1, 0), (0, 2, 1)) * 3:
        agents = [worker(home, name=f"w{n}", listen=f"hermes+memory://w{n}") for n in range(3)]
        await asyncio.gather(*[agent.__aenter__() for agent in agents])
        await agents[0].call("w1", "echo", {})
        await agents[1].call("w2", "echo", {})

        async def close(order: tuple[int, ...] = order, agents: Any = agents) -> None:
            for n in order:
                await agents[n].aclose()
                await agents[n].aclose()

        await asyncio.ensure_future(close())
        assert not any(agent.running for agent in agents)


async def test_closing_inside_a_cancelled_task_and_while_another_closes(home: Path) -> None:
    agent = worker(home, drain_s=0.2)
    inside = asyncio.Event()

    async def run() -> None:
        async with agent:
            inside.set()
            await asyncio.sleep(30)

    task = asyncio.ensure_future(run())
    await inside.wait()
    async with planner(home) as me:
        call = asyncio.ensure_future(me.call("worker", "sleep", {"s": 30}))
        await until(lambda: agent.started)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()  # again, while it closes
        closing = [asyncio.ensure_future(agent.aclose()) for _ in range(3)]
        closing[0].cancel()
        await asyncio.gather(*closing, return_exceptions=True)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not agent.running and agent.ended == ["cancelled"]
        with pytest.raises(Exception, match="shut down"):
            await call
    async with agent:  # and it can begin again
        pass


async def test_closing_from_a_handler_and_from_a_timer(home: Path) -> None:
    async with planner(home) as me:
        agent = worker(home)

        @agent.method("close")
        async def close() -> None:
            await agent.aclose()

        async with agent:
            with pytest.raises(Exception, match="shut down"):
                await me.call("worker", "close")
            await until(lambda: not agent.running)

        @agent.every(0.01)
        async def end() -> None:
            await agent.aclose()

        await asyncio.wait_for(agent.run(), 5)


async def test_an_exception_inside_is_not_hidden(home: Path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with worker(home):
            raise LookupError("mine")


async def test_every(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []
    agent = worker(home)

    @agent.every(0.01)
    async def coroutine() -> None:
        ran.append("coroutine")

    @agent.every(0.01)
    def plain() -> None:
        import threading

        assert threading.current_thread() is not threading.main_thread()
        ran.append("plain")

    @agent.every(0.01)
    async def broken() -> None:
        ran.append("broken")
        raise LookupError

    async with agent:

        @agent.every(0.01)
        async def late() -> None:
            ran.append("late")

        await until(lambda: all(ran.count(name) > 2 for name in ("coroutine", "plain", "broken", "late")))
    assert "periodic function" in caplog.text
    caplog.clear()
    for wrong in (0, -1, float("nan"), float("inf"), "60"):
        with pytest.raises(UsageError, match="number of seconds"):
            agent.every(wrong)


async def test_what_begins_while_it_ends_does_not_hold_it(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent = worker(home, drain_s=5)
    inside, let_go = asyncio.Event(), asyncio.Event()

    @agent.method("late")
    async def late() -> None:
        inside.set()
        await until(lambda: not life_of.running)
        await agent.submit("nobody", "x", {}, message_id="late")  # would look for its receiver for a day

    @agent.every(0.01)
    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                pass

    async with planner(home) as me:
        await agent.__aenter__()
        life_of = agent._running()
        await agent.submit("elsewhere", "x", {})
        call = asyncio.ensure_future(me.call("worker", "late"))
        await inside.wait()
        try:
            async with asyncio.timeout(10):
                await agent.aclose()
        finally:
            let_go.set()
        await call
        assert "Life._every takes no notice" in caplog.text
    async with worker(home) as again:
        assert await again.ticket("late").state() == "waiting"


async def test_a_handler_hears_of_durable_work_in_its_last_moment(home: Path) -> None:
    middle, inside, let_go = worker(home, name="middle", drain_s=10), asyncio.Event(), asyncio.Event()

    @middle.method("ask")
    async def ask() -> Any:
        ticket = await middle.submit("last", "held", {})
        inside.set()
        return await ticket.result()

    async with planner(home) as me, worker(home, name="last") as last:

        @last.method("held")
        async def held() -> str:
            await let_go.wait()
            return "heard"

        async with middle:
            life_of = middle._running()
            call = asyncio.ensure_future(me.call("middle", "ask"))
            await inside.wait()
            closing = asyncio.ensure_future(middle.aclose())
            await until(lambda: not life_of.running)
            let_go.set()
            assert await call == "heard"
            await closing


@pytest.mark.parametrize("where", ["lifespan", "journal"])
async def test_closed_while_it_begins(home: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    agent = worker(home)
    async with agent:
        await agent.submit("nobody", "x", {})
    never: list[asyncio.Event] = [asyncio.Event()]
    reached = asyncio.Event()

    async def wait(*_: Any) -> None:
        reached.set()
        if never:
            await never[0].wait()

    if where == "journal":
        monkeypatch.setattr("hermes_peer.agent.durable.outbox.Outbox.recover", wait)
    else:

        @agent.lifespan
        async def slow(_: Any) -> AsyncIterator[None]:
            await wait()
            yield

    begins = asyncio.ensure_future(agent.run())
    await reached.wait()
    life_of = agent._running()
    closing = asyncio.ensure_future(agent.aclose())
    if where == "journal":
        await until(lambda: life_of._over)
        never[0].set()  # a journal that is being read is not left half open
    with pytest.raises(UsageError, match="closed while it began"):
        await begins
    await closing
    assert not agent.running
    begins = asyncio.ensure_future(agent.run())
    await until(lambda: agent.running)
    begins.cancel()  # by whoever runs it: that is another thing
    never[0].set()
    with pytest.raises(asyncio.CancelledError):
        await begins
    never.clear()
    monkeypatch.undo()
    async with agent, planner(home) as me:
        assert await me.call("worker", "echo", {"n": 1}) == {"n": 1}


@pytest.mark.attack(12)
async def test_trust_that_is_revoked_with_a_live_line(home: Path) -> None:
    async with two(home) as (served, me):
        stream = me.stream("worker", "silent")
        await anext(stream)
        began = asyncio.get_running_loop().time()
        text = (home / "trust.toml").read_text()
        (home / "trust.toml").write_text(f'{text}\n[[deny]]\nfingerprint = "{me.fingerprint}"\nreason = "stolen"\n')
        os.chmod(home / "trust.toml", 0o600)
        with pytest.raises((SessionLost, LinkError)):
            await asyncio.wait_for(anext(stream), 2)
        assert asyncio.get_running_loop().time() - began < 1.2
        await until(lambda: served.ended == ["finally"])
        with pytest.raises(LinkError):
            await me.call("worker", "echo", {}, ttl=3)
        assert not served.started


@pytest.mark.parametrize(
    ("where", "here", "there", "sealed"),
    [
        ("unix", False, False, False),
        ("unix", True, False, True),
        ("unix", False, True, True),
        ("tcp", False, False, False),
        ("tcp", True, False, True),
        ("tcp", False, True, True),
        ("tcp", True, True, True),
    ],
)
async def test_unsealed_only_if_both_ends_want_it_on_one_host(
    home: Path, where: str, here: bool, there: bool, sealed: bool
) -> None:
    async with (
        worker(home, listen="hermes://127.0.0.1:0", encrypt=there) as served,
        planner(home, encrypt=here) as me,
    ):
        target = served.addresses[0 if where == "unix" else 1]
        assert await me.call(target, "echo", {"a": "x" * 100_000}) == {"a": "x" * 100_000}
        assert [item["i"] async for item in me.stream(target, "tokens", {"n": 100})] == list(range(100))
        assert me.status()["links"][0]["sealed"] is sealed
        assert served.status()["links"][0]["sealed"] is sealed


async def test_an_idle_line_rests_and_a_call_wakes_it(home: Path) -> None:
    async with two(home, config=QUICK) as (served, me):
        assert await me.call("worker", "echo", {"n": 1}) == {"n": 1}
        await until(lambda: me.status()["links"][0]["state"] == "away")
        ends = [agent._life.endpoint for agent in (me, served)]  # type: ignore[union-attr]
        await until(lambda: not any(end.pumps for end in ends))  # type: ignore[union-attr]
        assert await me.call("worker", "echo", {"n": 2}) == {"n": 2}
        assert me.status()["links"][0]["links"] == 2  # the same session
        assert me.status()["links"][0]["breaks"] == 0
        await until(lambda: me.status()["links"][0]["state"] == "away")
        assert await served.call("planner", "hermes.ping")  # from the other side, too


async def test_memory_needs_no_socket(home: Path) -> None:
    async with (
        worker(home, listen="hermes+memory://worker") as served,
        planner(home, listen=["hermes+memory://planner"]) as me,
    ):
        assert served.addresses == [f"hermes+memory://{served.fingerprint}@worker"]
        assert await me.call("worker", "echo", {}) == {}
        assert await served.call("planner", "hermes.ping")
        assert me.status()["links"][0]["address"] == "memory"
        with pytest.raises(LinkError, match="in use"):
            await worker(home, name="other", listen="hermes+memory://worker").__aenter__()


async def test_addresses_that_cannot_be_had(home: Path) -> None:
    async with worker(home, listen="hermes://127.0.0.1:0") as served:
        port = served.addresses[1].rpartition(":")[2]
        other = planner(home, listen=f"hermes://127.0.0.1:{port}")
        with pytest.raises(LinkError, match="cannot listen"):
            await other.__aenter__()
        assert not other.running
        for wrong in (["x"], [7], "nonsense"):
            with pytest.raises(UsageError):
                await planner(home, listen=wrong).__aenter__()
        with pytest.raises(UsageError, match="registry_url"):
            HermesAgent("x", registry_url="nats://x")
        other.listen = None
        async with other:  # nothing was left of the attempt
            assert await other.call("worker", "echo", {}) == {}


async def test_a_fifty_agent_crowd_gets_in_at_once(home: Path) -> None:
    """They come over one Unix socket: that is no flood of one stranger."""
    async with worker(home) as served:
        crowd = [planner(home, name=f"p{n}", listen=False) for n in range(50)]
        await asyncio.gather(*[agent.__aenter__() for agent in crowd])
        served._life.directory.reload()
        await asyncio.gather(*[agent.call("worker", "echo", {"n": n}) for n, agent in enumerate(crowd)])
        assert served._life.endpoint.refused == {}
        await asyncio.gather(*[agent.aclose() for agent in crowd])


def test_a_host_name_is_no_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system tells none, TCP links stay sealed."""
    assert len(life._boot_id()) == 36

    def fail(path: Path) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    assert life._boot_id() == b""
