"""Processes that die and come back, and two that are started by somebody who read only the first page.

Knows: kill -9, real homes, what callers are told. Refuses to know: how links are made.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hermes_peer import HermesAgent, Request, SessionLost
from hermes_peer.errors import UsageError

from .rig import clean, free_port, link_of, make_caller, process, quick_redials, settled, show, until, worker_process

AGENT = """
from hermes_peer import HermesAgent

agent = HermesAgent("worker")

@agent.method("text.shout")
async def shout(text: str) -> dict:
    return {"text": text.upper()}

agent.start()
"""

CALLER = """
import asyncio
from hermes_peer import HermesAgent

async def main():
    async with HermesAgent("planner") as me:
        print(await me.call("worker", "text.shout", {"text": "hi"}, ttl=5))

asyncio.run(main())
"""


def test_the_first_example_works_in_an_empty_folder_with_an_empty_home(tmp_path: Path) -> None:
    """Six lines here, four there, typed in; no other step."""

    async def scenario() -> None:
        home = tmp_path / "user"
        folder = tmp_path / "project"
        for each in (home, folder):
            each.mkdir(exist_ok=True)
        gone = ("HERMES_PEER_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
        env = {name: value for name, value in os.environ.items() if name not in gone} | {"HOME": str(home)}
        async with process(folder, AGENT, env=env) as worker:
            said = [await worker.line()]
            while "worker is ready" not in said[-1]:
                assert said[-1], f"the worker ended: {await worker.rest()}"
                said.append(await worker.line())
            async with process(folder, CALLER, env=env) as caller:
                lines = [await caller.line()]
                code = await caller.gone()
                assert (lines, code) == (["{'text': 'HI'}"], 0), await caller.rest()
                assert await caller.rest() == ""
            worker.kill(2)
            assert await worker.gone() == 0
            assert await worker.rest() == ""
        made = home / ("Library/Application Support" if os.uname().sysname == "Darwin" else ".local/share")
        assert (made / "hermes-peer" / "trust.toml").exists()
        assert sorted(path.suffix for path in folder.iterdir()) == [".py", ".py"]  # and nothing of ours beside them

    clean(scenario)


@pytest.mark.case("HPC-078")
def test_hpc_078_a_worker_killed_in_mid_stream_and_started_again(tmp_path: Path) -> None:
    """The volatile caller is told how far it got and that the work may have run; then it just goes on."""

    async def scenario() -> None:
        home, port, rounds = tmp_path / "home", free_port(), 3
        async with make_caller(home) as a:
            news: list[str] = []
            a.on_link(lambda peer, what, reason, seconds: news.append(what))
            running = worker_process(tmp_path, home, port)
            worker, there = await running.__aenter__()
            sessions = set()
            for round in range(rounds):
                taken = [0, 0]
                started = asyncio.Event()

                async def read(n: int, taken: list[int] = taken, started: asyncio.Event = started) -> None:
                    async with a.stream(str(there), "demo.tokens", {"n": 10_000, "every": 0.002}) as tokens:
                        async for item in tokens:
                            assert item == taken[n] + 1
                            taken[n] = item
                            if min(taken) >= 20:
                                started.set()

                readers = [asyncio.ensure_future(read(n)) for n in range(2)]
                await started.wait()
                sessions.add(id(next(iter(a._running().endpoint.contacts.values())).session))
                worker.kill()
                await worker.gone()
                calls = [asyncio.ensure_future(a.call(str(there), "demo.echo", {"n": n}, ttl=30)) for n in range(10)]
                await running.__aexit__(None, None, None)
                running = worker_process(tmp_path, home, port)
                worker, _ = await running.__aenter__()
                ends = await asyncio.gather(*readers, return_exceptions=True)
                for end, last in zip(ends, taken, strict=True):
                    assert isinstance(end, SessionLost), end
                    assert (end.ran, end.offset) == ("unknown", last)
                    assert last >= 20
                # Calls made meanwhile provably did not run: they were made again by themselves, on one new session.
                assert [await call for call in calls] == [{"n": n} for n in range(10)]
                assert await a.call(str(there), "demo.echo", {"round": round}) == {"round": round}
                worker.tell("counts")
                counts = await worker.said()
                assert counts["ran"] == {"echo": 11}  # each once; the streams were not opened again behind our back
                assert [line["links"] for line in counts["links"]] == [1]  # one handshake, not one for each call
                assert link_of(a, "worker")["links"] == 1
            await settled(a)
            await running.__aexit__(None, None, None)
            show(f"lines lost and found over {rounds} kills: {news}")

    with quick_redials():
        clean(scenario)


def test_a_worker_that_never_comes_back_is_told_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        home = tmp_path / "home"
        async with make_caller(home, redial_limit=3) as a, worker_process(tmp_path, home) as (worker, there):
            call = asyncio.ensure_future(a.call(str(there), "demo.held", {}))
            await until(lambda: link_of(a, "worker").get("streams"), "it is on its way")
            worker.kill()
            await worker.gone()
            with pytest.raises(SessionLost) as lost:
                await call
            assert "given up after 3 attempts" in str(lost.value)
            await settled(a)

    with quick_redials():
        clean(scenario)


SUBMITTER = """
    import asyncio, sys
    from hermes_peer import HermesAgent

    async def main():
        async with HermesAgent("planner", home=sys.argv[1], slot=1) as me:
            await (await me.submit("worker", "count", {"n": 1})).result()
            inbox, _ = await me._running().durable.open()
            await inbox.journal.begin()  # the disk takes its time
            await me.submit("worker", "count", {"n": 2})
            print("submitted", flush=True)

    asyncio.run(main())
"""


def test_a_submitter_killed_while_its_work_is_stored_and_already_there(tmp_path: Path) -> None:
    """`submit` had not returned: nobody was promised anything, the work ran at most once, and all goes on."""

    async def scenario() -> None:
        home = tmp_path / f"home-{os.urandom(4).hex()}"
        worker = HermesAgent("worker", home=home)
        ran: dict[str, int] = {}
        twice = asyncio.Event()

        @worker.method("count", contract="idempotent")
        async def count(n: int, request: Request) -> int:
            ran[request.message_id] = n
            if n == 2:
                twice.set()
            return n

        async with worker:
            async with process(tmp_path, SUBMITTER, str(home)) as killed:
                await twice.wait()
                killed.kill()
                await killed.gone()
                assert killed.lines == [] and await killed.rest() == ""
            first, lost = ran
            async with HermesAgent("planner", home=home, slot=1) as me:
                assert me.status()["durable"]["problem"] is None
                assert await me.ticket(first).result() == 1
                with pytest.raises(UsageError, match="knows of no ticket"):
                    await me.ticket(lost).state()
                assert await (await me.submit("worker", "count", {"n": 3})).result() == 3
                assert list(ran.values()) == [1, 2, 3]
                await until(lambda: not me.status()["durable"]["to_settle"], "it is told")
            durable = worker.status()["durable"]
            assert (durable["taken"]["done"], durable["in_hand"]) == (1, 0)  # the lost one, until its time is over
            assert durable["taken"]["running"] == durable["taken"]["accepted"] == 0

    clean(scenario)
