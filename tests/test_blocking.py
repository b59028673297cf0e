"""blocking: an agent for code that has no event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hermes_peer
from hermes_peer import CallError, DeadlineExceeded, Final, HermesAgent, UsageError, blocking

ended: list[str] = []


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[blocking.Agent]:
    agent = HermesAgent("worker", home=tmp_path / "home", drain_s=0.05)

    @agent.method("text.shout")
    def shout(text: str) -> dict[str, str]:
        return {"text": text.upper()}

    @agent.method("text.words")
    async def words(text: str) -> Any:
        try:
            for word in text.split():
                yield word
                await asyncio.sleep(0)
            yield Final(len(text))
        finally:
            ended.append("words")

    @agent.method("silent")
    async def silent() -> Any:
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            ended.append("silent")

    @agent.event("seen")
    async def seen(n: int) -> None:
        ended.append(f"seen {n}")

    ended.clear()
    with blocking.Agent(agent) as served:
        yield served


def test_the_portal(worker: blocking.Agent, tmp_path: Path) -> None:
    with hermes_peer.blocking.Agent("planner", home=tmp_path / "home", listen=False) as me:
        assert me.call("worker", "text.shout", {"text": "hi"}, ttl=5) == {"text": "HI"}
        assert me.call(target_agent_id="worker", method="text.shout", payload={"text": "x"}) == {"text": "X"}
        stream = me.stream("worker", "text.words", {"text": "a b c"}, message_id="m")
        assert list(stream) == ["a", "b", "c"]
        assert (stream.result(), stream.offset, stream.message_id) == (5, 3, "m")
        assert list(stream) == []
        with me.stream("worker", "silent") as silent:
            for _ in silent:
                break
        me.emit("worker", "seen", {"n": 7})
        end = time.monotonic() + 30
        while ended != ["words", "silent", "seen 7"] and time.monotonic() < end:
            time.sleep(0.005)
        assert sorted(ended) == ["seen 7", "silent", "words"]
        assert {record.agent_id for record in me.find()} == {"worker"}
        assert me.status()["links"][0]["state"] == "connected"
        with pytest.raises(CallError):
            me.call("worker", "nothing")
        with pytest.raises(DeadlineExceeded):
            list(me.stream("worker", "silent", ttl=0.1))
        me.close()
        me.close()
        with pytest.raises(UsageError, match="not running"):
            me.call("worker", "text.shout", {"text": "hi"})


def test_from_many_threads_and_one_loop(worker: blocking.Agent, tmp_path: Path) -> None:
    with blocking.Agent("planner", home=tmp_path / "home", listen=False) as me, ThreadPoolExecutor(8) as pool:
        texts = [f"t{n}" for n in range(100)]
        got = list(pool.map(lambda text: me.call("worker", "text.shout", {"text": text})["text"], texts))
        assert got == [text.upper() for text in texts]
    assert sum(thread.name == "hermes-peer-portal" for thread in threading.enumerate()) == 1


def test_on_an_event_loop_it_says_so(worker: blocking.Agent) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="would block this event loop"):
            worker.call("worker", "x")

    asyncio.run(main())
