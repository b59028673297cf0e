"""Closing with connections open, and running out of descriptors.

Knows: both event loops, real limits of a process. Refuses to know: what the connections were for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_peer import HermesAgent, HermesError, LinkError
from hermes_peer.core.config import Config
from hermes_peer.transport import base
from hermes_peer.wire.address import Address

from .rig import ROOT, clean, descriptors, free_port, make_caller, make_worker, pair, process, tcp, until

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop

CLOSING = """
    import asyncio, sys, time, warnings
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from tests.fault.rig import make_caller, make_worker, tcp
    if sys.argv[3] == "uvloop":
        import uvloop
        factory = uvloop.new_event_loop
    else:
        factory = None

    async def main():
        home = Path(sys.argv[2])
        worker, offered = make_worker(home)
        await worker.__aenter__()
        there = tcp(worker)
        silent = [await asyncio.open_connection(there.host, there.port) for _ in range(5)]
        half = await asyncio.open_connection(there.host, there.port)
        half[1].write(b"HRMP\\x01\\x01\\0" + bytes(8) + (1500).to_bytes(4, "big") + b"half a hello")
        unix = await asyncio.open_unix_connection(str(worker._running().slot.socket_path))
        caller = make_caller(home)
        await caller.__aenter__()
        blocked = caller.stream(str(there), "demo.bytes", {"n": 1 << 30, "chunk": 65536})
        await anext(blocked)
        held = asyncio.ensure_future(caller.call(str(there), "demo.held", {}))
        while not offered.ran["held"]:
            await asyncio.sleep(0.005)
        begin = time.monotonic()
        await worker.aclose()
        took = time.monotonic() - begin
        assert took < worker.drain_s + 1, took
        for reader, writer in [*silent, half, unix]:
            assert await asyncio.wait_for(reader.read(), 2) == b""
            writer.close()
        try:
            await asyncio.wait_for(held, 5)
        except Exception as error:
            print(type(error).__name__, flush=True)
        waiting = asyncio.ensure_future(caller.call("hermes://" + "0" * 64 + "@127.0.0.1:1", "x", {}))
        await caller.aclose()
        try:
            await asyncio.wait_for(waiting, 5)
        except Exception as error:
            print(type(error).__name__, flush=True)
        # An agent that nobody closes: the end of the loop has to do.
        left = make_caller(home, "left")
        await left.__aenter__()
        print("done", flush=True)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
"""


@pytest.mark.case("HPC-088")
@pytest.mark.parametrize("loop", LOOPS)
def test_hpc_088_closing_waits_for_nobody_who_stays_connected(tmp_path: Path, loop: str) -> None:
    async def scenario() -> None:
        async with process(tmp_path, CLOSING, ROOT, str(tmp_path / "home"), loop, dev=True) as child:
            assert await child.line() in ("Unavailable", "SessionLost")  # the call that was running
            assert await child.line() in ("LinkError", "SessionLost")
            assert await child.line() == "done"
            errors = await child.rest()
            assert await child.gone() == 0, errors
            assert "Traceback" not in errors and "loop is closed" not in errors, errors

    clean(scenario)


@pytest.mark.case("HPC-088")
@pytest.mark.parametrize("loop", LOOPS)
def test_hpc_088_a_port_can_be_taken_again_at_once(tmp_path: Path, loop: str) -> None:
    """Started and stopped 30 times in one loop on one port, with a client connected each time."""

    async def main() -> None:
        port = free_port()
        agent, _ = make_worker(tmp_path, listen=f"hermes://127.0.0.1:{port}", drain_s=0.0)
        async with make_caller(tmp_path) as a:
            counts = []
            for n in range(30):
                async with agent:
                    assert await a.call(str(tcp(agent)), "demo.echo", {"n": n}) == {"n": n}
                counts.append((descriptors(), len(asyncio.all_tasks())))
            await until(lambda: descriptors() <= counts[4][0], f"descriptors do not grow: {counts}")
            assert counts[-1][1] <= counts[4][1] + 1

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(main(), 40))


@pytest.mark.case("HPC-088")
def test_hpc_088_cancellation_is_never_swallowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as two:
            for make in (
                lambda: two.a.call(two.to, "demo.held", {}),
                lambda: two.a.call(two.to, "demo.sleep", {"s": 30}),
                lambda: anext(two.a.stream(two.to, "demo.sleep", {"s": 30})),
                lambda: two.a.stream(two.to, "demo.held", {}).result(),
            ):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.15):
                        await make()
                task = asyncio.ensure_future(make())
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert task.cancelled()
            ended = two.offered.ended
            await until(lambda: ended["held"] == two.offered.ran["held"], "the handlers were cancelled")
            await until(lambda: ended["sleep"] == two.offered.ran["sleep"], "the handlers were cancelled")

    clean(scenario)


@pytest.mark.case("HPC-088")
def test_hpc_088_a_dial_that_swallows_its_cancellation_does_not_hold_the_end_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `asyncio.wait_for` did until Python 3.12, when the connection failed in the moment of the cancellation."""
    dialling = asyncio.Event()

    async def deaf(address: Address, make_sink: object) -> None:
        dialling.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        raise LinkError("connection refused")

    async def scenario() -> None:
        async with pair(tmp_path) as two:
            monkeypatch.setattr(base, "dial", deaf)
            call = asyncio.ensure_future(two.a.call(two.to, "demo.echo", {}))
            await dialling.wait()
            async with asyncio.timeout(5):
                await two.a.aclose()
            with pytest.raises(HermesError):
                await call
            await two.a.__aenter__()

    clean(scenario)


FEW_FILES = """
    import asyncio, json, os, resource, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    import logging
    logging.basicConfig(level="WARNING")
    from hermes_peer.core.config import Config
    from tests.fault.rig import make_worker

    async def main():
        config = Config(handshake_s=1.0)
        agent, offered = make_worker(Path(sys.argv[2]), config=config)
        async with agent:
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            print(json.dumps(next(a for a in agent.addresses if a.startswith("hermes://"))), flush=True)
            loop = asyncio.get_running_loop()
            while await loop.run_in_executor(None, sys.stdin.readline):
                cpu = sum(os.times()[:2])
                # Listing /proc/self/fd would need one more.
                files = sum(os.path.islink(f"/proc/self/fd/{fd}") for fd in range(256))
                print(json.dumps({"files": files, "cpu": cpu}), flush=True)

    asyncio.run(main())
"""


@pytest.mark.case("HPC-091")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_hpc_091_running_out_of_descriptors_is_survived(tmp_path: Path) -> None:
    async def scenario() -> None:
        home = tmp_path / "home"
        async with process(tmp_path, FEW_FILES, ROOT, str(home)) as child, make_caller(home, config=Config()) as a:
            to = await child.said()
            taken: list[int] = []

            async def read() -> None:
                async with a.stream(to, "demo.tokens", {"n": 100_000, "every": 0.002}) as tokens:
                    async for item in tokens:
                        taken.append(item)

            reader = asyncio.ensure_future(read())
            await until(lambda: len(taken) > 20, "the stream flows")
            child.tell("look")
            before = await child.said()
            host, port = to.rpartition("@")[2].rsplit(":", 1)
            crowd = []
            for _ in range(200):
                sock = socket.create_connection((host, int(port)))
                sock.setblocking(False)
                crowd.append(sock)
            begin, count = time.monotonic(), len(taken)
            await until(lambda: time.monotonic() - begin > 2.0, "two seconds at the limit", 5)
            assert len(taken) > count + 50  # the stream does not mind
            child.tell("look")
            at_limit = await child.said()
            assert at_limit["files"] <= 64
            assert at_limit["cpu"] - before["cpu"] < 1.5  # no spinning
            for sock in crowd:
                sock.close()
            async with make_caller(home, "second") as second:
                assert await second.call(to, "demo.echo", {"x": 1}, ttl=10) == {"x": 1}
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            assert taken == list(range(1, len(taken) + 1))

            async def back() -> bool:
                child.tell("look")
                return (await child.said())["files"] <= before["files"] + 1

            while not await back():
                await asyncio.sleep(0.05)
            child.child.stdin.close()
            errors = await child.rest()
            assert await child.gone() == 0, errors
            assert len(errors.splitlines()) < 100, errors[:2000]

    clean(scenario)


@pytest.mark.case("HPC-091")
def test_hpc_091_failed_connections_leave_no_descriptor(tmp_path: Path) -> None:
    """Refused, wrong key, silent: sixty of each."""

    async def scenario() -> None:
        async with pair(tmp_path, b={"config": Config(handshake_s=0.2)}, a={"config": Config(handshake_s=0.2)}) as two:
            assert await two.a.call(two.to, "demo.echo", {}) == {}
            there = tcp(two.b)
            stranger = HermesAgent("stranger", home=tmp_path / "elsewhere", listen=False, redial_limit=1)
            async with stranger:
                before = descriptors()
                for _ in range(60):
                    with pytest.raises(HermesError):
                        await stranger.call(str(there), "demo.echo", {}, ttl=1)
                    with pytest.raises(OSError):
                        socket.create_connection(("127.0.0.1", 1), timeout=1)
                    _, writer = await asyncio.open_connection(there.host, there.port)
                    writer.write(b"HRMP" + os.urandom(40))
                    writer.close()
                await until(lambda: descriptors() <= before, f"{before} descriptors again")
            assert await two.a.call(two.to, "demo.echo", {}) == {}

    clean(scenario)
