"""agent/process: an agent as the main thing of a process: signals, exit codes, what it leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, HermesError
from hermes_peer.agent import process
from tests.agent.rig import planner
from tests.loops import case

ROOT = Path(__file__).resolve().parents[2]
FILE = """
import asyncio, sys, time
from hermes_peer import HermesAgent
agent = HermesAgent("worker")

@agent.method("silent")
async def silent():
    try:
        yield 0
        await asyncio.Event().wait()
    finally:
        print("finally", flush=True)

@agent.method("block")
def block():
    time.sleep(60)

@agent.method("stubborn")
async def stubborn():
    yield 0
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(home: Path, tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def start_it(more: str = "", *flags: str) -> subprocess.Popen[str]:
        file = tmp_path / "agent.py"
        file.write_text(
            FILE + more + "\nif __name__ == '__main__':\n    agent.start()\n    print('after', flush=True)\n"
        )
        child = subprocess.Popen(
            [sys.executable, *flags, str(file)],
            env={**os.environ, "HERMES_PEER_HOME": str(home), "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(child)
        return child

    yield start_it
    for child in running:
        if child.poll() is None:
            child.kill()
        child.communicate()


def ready(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    for line in child.stdout:
        if "is ready at" in line:
            return line.split(" at ")[1].strip().removeprefix("hermes+unix://")
    raise AssertionError(child.stderr.read() if child.stderr else "")


async def gone(child: subprocess.Popen[str], seconds: float = 2.0) -> float:
    began = time.monotonic()
    while child.poll() is None:
        assert time.monotonic() - began < seconds, "it does not end"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


@case("HPC-076")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_with_streams_and_blocked_threads(home: Path, start: Start, number: signal.Signals) -> None:
    child = start()
    socket = ready(child)
    async with planner(home) as me:
        streams = [me.stream("worker", "silent") for _ in range(3)]
        for stream in streams:
            await anext(stream)
        blocked = asyncio.ensure_future(me.call("worker", "block"))
        stubborn = me.stream("worker", "stubborn")
        await anext(stubborn)
        child.send_signal(number)
        for stream in streams:
            with pytest.raises(HermesError):
                await anext(stream)
        with pytest.raises(HermesError):
            await blocked
        assert await gone(child) < 1.5
        out, err = child.communicate()
        assert child.returncode == 0 and "no notice of being cancelled" in err and err.count("\n") == 1
        assert out.count("finally") == 3 and "after" in out
        assert not os.path.exists(socket)
        again = start()  # at once
        ready(again)
        assert await me.call("worker", "hermes.ping")
        again.send_signal(number)
        await gone(again)


@case("HPC-076")
async def test_a_second_signal_ends_it_at_once(home: Path, start: Start) -> None:
    child = start("agent.drain_s = 30\n")
    socket = ready(child)
    async with planner(home) as me:
        stream = me.stream("worker", "silent")
        await anext(stream)
        child.send_signal(signal.SIGINT)
        await asyncio.sleep(0.3)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert await gone(child) < 0.5
        assert child.returncode == 130
        assert not os.path.exists(socket)
        await stream.aclose()


async def test_a_signal_while_it_begins(start: Start) -> None:
    child = start(
        """
@agent.lifespan
async def slow(agent):
    print("is ready at hermes+unix:///x", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("undone", flush=True)
    yield
"""
    )
    ready(child)
    child.send_signal(signal.SIGTERM)
    await gone(child)
    out, err = child.communicate()
    assert (child.returncode, err) == (0, "") and "undone" in out


async def test_closed_from_inside(start: Start) -> None:
    child = start("\n@agent.every(0.1)\nasync def end():\n    await agent.aclose()\n")
    ready(child)
    await gone(child)
    assert child.returncode == 0


async def test_mistakes_end_in_one_sentence(start: Start) -> None:
    child = start("agent.listen = 'hermes://192.0.2.1:1'\n")
    _, err = child.communicate(timeout=30)
    assert child.returncode == 3 and err.count("\n") == 1 and err.startswith("hermes-peer: cannot listen on")
    child = start("agent.listen = 'nonsense'\n")
    _, err = child.communicate(timeout=30)
    assert child.returncode == 2 and err.count("\n") == 1


@case("HPC-088")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_warning_in_developers_mode(home: Path, tmp_path: Path, loop: str) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        f"""
import asyncio, uvloop
from hermes_peer import HermesAgent
served = HermesAgent("worker", home={str(home)!r}, listen="hermes://127.0.0.1:0")

@served.method("words")
async def words(text: str):
    for word in text.split():
        yield word

@served.method("plain")
def plain(x: int):
    return x

async def main():
    asyncio.get_running_loop().slow_callback_duration = 9
    async with served, HermesAgent("planner", home={str(home)!r}) as me:
        assert await me.call("worker", "plain", {{"x": 1}}) == 1
        assert await me.call(served.addresses[1], "plain", {{"x": 1}}) == 1
        async for word in me.stream("worker", "words", {{"text": "a b c"}}):
            break
        left = me.stream("worker", "words", {{"text": "a b c"}})
        await anext(left)
        call = asyncio.ensure_future(me.call("worker", "plain", {{"x": 1}}))
        await asyncio.sleep(0)
        call.cancel()

for _ in range(2):
    with asyncio.Runner(loop_factory={"uvloop.new_event_loop" if loop == "uvloop" else None}) as runner:
        runner.run(main())
"""
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(file)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_under_run_it_returns_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run_blocking", lambda agent: pytest.fail("it ran"))
    process.loaded_by_run(True)
    try:
        HermesAgent("worker", home=home).start()
    finally:
        process.loaded_by_run(False)


def test_the_loop_is_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvloop

    assert process.new_loop_factory() is uvloop.new_event_loop
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert process.new_loop_factory() is None


async def test_a_thread_that_holds_the_process_is_told(home: Path, start: Start) -> None:
    child = start(
        """
@agent.method("hold")
async def hold():
    await asyncio.to_thread(time.sleep, 2.5)
"""
    )
    ready(child)
    async with planner(home) as me:
        call = asyncio.ensure_future(me.call("worker", "hold"))
        await me.call("worker", "hermes.ping")
        child.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(child.communicate, timeout=30)
        with pytest.raises(HermesError):
            await call
    assert child.returncode == 0 and err.count("still runs and is waited for") == 1


async def test_a_forked_child_holds_nothing_of_ours(home: Path, start: Start) -> None:
    """A handler that forks (a library's subprocess without exec): the slot is free when the parent has ended."""
    child = start(
        """
import os
@agent.method("fork")
async def fork():
    pid = os.fork()
    if not pid:
        time.sleep(3)
        os._exit(0)
    return pid
"""
    )
    ready(child)
    async with planner(home) as me:
        pid: Any = await me.call("worker", "fork")
        child.send_signal(signal.SIGTERM)
        assert child.stdout is not None
        await gone(child)
        again = start()
        assert ready(again)
        os.kill(pid, signal.SIGKILL)
        slot = (await me.call("worker", "hermes.status", {}))["slot"]
        assert slot == 1
