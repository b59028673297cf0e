"""agent/directory: from a name to the right instance; keys that are copies; oneself."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, LinkError, PermissionDenied, UsageError
from hermes_peer.agent import directory, life
from hermes_peer.core.heartbeat import Load
from hermes_peer.runtime import contact as contacts
from tests.agent.rig import QUICK, planner, quiet, two, worker
from tests.loops import case, until


async def test_instances_are_chosen_by_load(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "FRESH_S", 0.05)
    async with worker(home), worker(home):
        pass  # both slots have left their pins: the second will begin without any change of trust
    async with worker(home) as one, planner(home) as me:
        for _ in range(3):
            assert await me.call("worker", "echo", {}) == {}
        async with worker(home) as other:  # it begins later, and is found all the same
            await until_linked(me, 2)
            await asyncio.gather(*[me.call("worker", "sleep", {"s": 0.1}) for _ in range(40)])
            assert one.started.count("sleep") == other.started.count("sleep") == 20
            stuck = [asyncio.ensure_future(me.call(one.fingerprint, "sleep", {"s": 30})) for _ in range(5)]
            await until(lambda: one.started.count("sleep") == 25)
            before = len(other.started)
            for _ in range(10):
                await me.call("worker", "echo", {})
            assert len(other.started) == before + 10
            for call in stuck:
                call.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)
        for _ in range(3):  # and one that is gone is not asked
            assert await me.call("worker", "echo", {}) == {}
        await quiet(me, one)


async def test_who_is_linked_is_known_without_dialling_however_old_the_last_look(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with planner(home) as me:
        them = me._running().directory
        now = me._running().loop.time()
        looked: list[str] = []
        find = them.find
        monkeypatch.setattr(them, "find", lambda target, now: looked.append(target) or find(target, now))
        for _ in range(3):
            assert them.linked("worker", now) is None  # unknown, and not looked for again at once
        assert looked == ["worker"]
        now += 2 * directory.FRESH_S
        async with worker(home) as served:
            assert them.linked("worker", now) is None  # not dialled for this
            await me.call("worker", "echo", {})
            for later in (0.0, 10 * directory.FRESH_S):
                contact = them.linked("worker", now + later)
                assert contact is not None and contact.peer.fingerprint.hex() == served.fingerprint
            await quiet(me, served)
        assert them.linked("worker", now + 30 * directory.FRESH_S) is None  # gone


@pytest.mark.parametrize(("queue_ms", "idle_is_chosen"), [(0, True), (20, True), (200, False)])
async def test_a_short_queue_is_noise_and_a_long_one_outweighs_calls(
    home: Path, queue_ms: int, idle_is_chosen: bool
) -> None:
    """`one` has five calls in work and no queue, `other` its last queue, and calls of ours that have ended."""
    async with worker(home) as one, worker(home) as other, planner(home) as me:
        them = me._running().directory
        await until_linked(me, 2)
        endpoint = me._running().endpoint
        for agent, queue, calls, ours in ((one, 0, 5, 0), (other, queue_ms, 20, 20)):
            contact = endpoint.contact(bytes.fromhex(agent.fingerprint))
            assert contact.pump is not None
            contact.pump.link.heartbeat.load = Load(in_flight=calls, queue_ms=queue, ours=ours)
        found = them.find("worker", me._running().loop.time())
        assert found[0].peer.fingerprint.hex() == (other if idle_is_chosen else one).fingerprint


async def until_linked(me: HermesAgent, count: int) -> None:
    end = asyncio.get_running_loop().time() + 5
    while sum(link["state"] == "connected" for link in me.status()["links"]) < count:
        assert asyncio.get_running_loop().time() < end
        await me.call("worker", "echo", {})
        await asyncio.sleep(0.01)


@case("HPC-072")
async def test_an_instance_that_died_does_not_hold_up_the_next(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session waits for it for ten minutes; calls go to the instance that lives."""
    from tests.agent.test_agent import crash

    monkeypatch.setattr(directory, "FRESH_S", 0.05)
    async with planner(home) as me:
        dead, living = worker(home), worker(home)  # two slots, two keys
        await dead.__aenter__()
        assert await me.call("worker", "echo", {"n": 1}) == {"n": 1}
        await living.__aenter__()
        crash(dead)
        await until(lambda: me.status()["links"][0]["state"] != "connected")
        assert await me.call("worker", "echo", {"n": 2}, ttl=3) == {"n": 2}
        assert len(living.started) == 1
        await living.aclose()
        await dead.aclose()


async def test_targets(home: Path) -> None:
    async with worker(home, listen=["hermes://127.0.0.1:0", "hermes://[::1]:0"]) as served, planner(home) as me:
        unix, tcp, six = served.addresses
        assert tcp.startswith("hermes://") and "[::1]" in six and unix.startswith("hermes+unix://")
        bare = tcp.replace(served.fingerprint + "@", "")
        for target in ("worker", served.fingerprint, unix, tcp, six, bare):
            assert await me.call(target, "echo", {"t": target}) == {"t": target}
        assert len(me.status()["links"]) == 1
        with pytest.raises(UsageError, match="whose address"):
            await me.call("hermes://127.0.0.1:1", "echo")
        with pytest.raises(LinkError, match="not trusted here"):
            await me.call("0" * 64, "echo")
        with pytest.raises(UsageError, match="not an address"):
            await me.call("http://x", "echo")


async def test_over_tcp_when_the_address_says_so(home: Path) -> None:
    async with worker(home, listen="hermes://127.0.0.1:0") as served, planner(home) as me:
        assert await me.call(served.addresses[1], "echo", {}) == {}
        assert me.status()["links"][0]["address"] == "127.0.0.1"


@case("HPC-047")
async def test_dialling_oneself(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with planner(home, listen="hermes://127.0.0.1:0") as me:
        port = me.addresses[1].rpartition(":")[2]
        key = me.fingerprint
        for place in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"127.0.0.2:{port}"):
            with pytest.raises(LinkError, match="does not call itself"):
                await me.call(f"hermes://{key}@{place}", "echo")
            with pytest.raises((LinkError, UsageError)):
                await me.call(f"hermes://{place}", "echo")
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert me.status()["links"] == []


async def test_an_agent_without_a_listener_is_called_over_the_line_it_made(home: Path) -> None:
    async with worker(home) as served, planner(home, listen=False, keep_links=["worker"], config=QUICK) as me:

        @me.method("here")
        async def here() -> str:
            return "over your own line"

        await until(lambda: me.status()["links"] and me.status()["links"][0]["state"] == "connected")
        await asyncio.sleep(1.2)  # longer than an idle line lives
        assert await served.call("planner", "here") == "over your own line"
        assert me.addresses == []


async def test_kept_links_come_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "KEEP_S", 0.02)
    async with planner(home, listen=False, keep_links=["worker"]) as me:  # before there is one
        for _ in range(2):
            async with worker(home):
                await until(lambda: any(link["state"] == "connected" for link in me.status()["links"]))


@case("HPC-045")
async def test_two_with_one_key(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(life, "REFUSED_S", 0.5)
    monkeypatch.setattr(life, "KEEP_S", 0.05)
    monkeypatch.setattr(contacts, "YIELD_S", 0.05)
    options: dict[str, Any] = {"listen": False, "keep_links": ["worker"]}
    async with worker(home) as served, planner(home, **options) as me:
        await until(lambda: linked(me))
        shutil.copytree(home, tmp_path / "copy")
        async with planner(tmp_path / "copy", **options) as clone:
            assert clone.fingerprint == me.fingerprint
            told = "in use by another running instance"
            await until(lambda: any(told in r.getMessage() for r in caplog.records))
            accepted = served._life.endpoint.contacts
            links = sum(c.report()["links"] for c in accepted.values())
            assert linked(me) != linked(clone)  # one has the place
            before = served._life.endpoint.refused.get("cloned", 0)
            await asyncio.sleep(0.4)
            assert served._life.endpoint.refused.get("cloned", 0) - before <= 2  # no tight loop
            assert links <= 4
            warned = [r for r in caplog.records if r.levelno == logging.WARNING and told in r.getMessage()]
            assert len(warned) <= 2 and "delete its agents/NAME/N folder" in warned[0].getMessage()
        await until(lambda: linked(me), 5)  # without a restart
        assert await me.call("worker", "echo", {}) == {}


def linked(agent: HermesAgent) -> bool:
    return any(link["state"] == "connected" for link in agent.status()["links"])


async def test_a_copy_on_the_same_machine_may_not_take_the_socket(home: Path, tmp_path: Path) -> None:
    async with worker(home) as served:
        shutil.copytree(home, tmp_path / "copy")
        with pytest.raises(LinkError, match="a copy of the same key"):
            await worker(tmp_path / "copy").__aenter__()
        assert os.path.exists(served.addresses[0].partition("@")[2])
        async with planner(home) as me:
            assert await me.call("worker", "echo", {}) == {}


async def test_a_registry_that_cannot_be_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(home) as (_, me):
        assert await me.call("worker", "echo", {}) == {}
        life_ = me._life
        assert life_ is not None

        def broken(**_: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(life_.directory.view._registry, "find", broken)
        life_.directory._routes.clear()
        assert await me.call("worker", "echo", {}) == {}  # who is linked can be called
        with pytest.raises(LinkError, match="cannot be read"):
            await me.call("nobody", "echo", {})


async def test_call_right_after_the_start(home: Path) -> None:
    """Trust is read again when a name is not known: an agent that began a moment ago is found."""
    async with planner(home) as me:
        for n in range(3):
            async with worker(home, name=f"w{n}"):
                assert await me.call(f"w{n}", "echo", {"n": n}) == {"n": n}


async def test_a_change_is_told_whoever_noticed_it_first(home: Path) -> None:
    async with two(home) as (served, _):
        directory = served._running().directory
        directory.reload()
        directory.changes()
        policy = home / "policy.toml"
        policy.write_text(
            policy.read_text() + '\n# touched\n[[rule]]\ncaller = "x"\nagent = "y"\nmethod = "z"\nallow = true\n'
        )
        assert directory.reload() == (False, True)  # a look-up in between
        assert directory.reload() == (False, False)
        assert directory.changes() == (False, True)
        assert directory.changes() == (False, False)


async def test_attack_57_a_right_taken_back_ends_a_stream_although_a_look_up_saw_it_first(home: Path) -> None:
    async with two(home) as (served, me), me.stream("worker", "forever") as stream:
        await anext(stream)
        (home / "policy.toml").write_text("")
        with pytest.raises(LinkError):
            await served.call("nobody", "x", {})  # it reloads, and must not swallow the news
        with pytest.raises(PermissionDenied):
            async for _ in stream:
                pass


async def test_a_caller_that_began_before_the_worker(home: Path) -> None:
    async with planner(home) as me:
        with pytest.raises(LinkError) as alone:
            await me.call("worker", "echo")
        assert str(alone.value).startswith(
            "no agent named worker runs in this home: start it first; no other agent is running; for one on another"
        )
        async with worker(home, name="third"):
            with pytest.raises(LinkError, match="start it first; running: third; for one"):
                await me.call("worker", "echo")
