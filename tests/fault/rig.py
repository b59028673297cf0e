"""Two or more real agents on real sockets with a fault proxy between them, and what must hold after every case.

Knows: how to start agents in this process and in others, the methods that the cases name, the checks at the end.
Refuses to know: single faults. Called by: the tests of this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import os
import signal
import sys
import textwrap
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hermes_peer
from hermes_peer import Final, HermesAgent, Request
from hermes_peer.core.config import Config
from hermes_peer.core.session import Session
from hermes_peer.runtime import backoff
from hermes_peer.runtime.contact import Contact
from hermes_peer.testing import FaultProxy
from hermes_peer.wire.address import Address

LIMIT_S = 40.0  # no test takes longer, however busy the machine is
SOON_S = 15.0  # for a condition that should hold within a moment
BEAT = Config(idle_s=0.4, busy_s=0.2)  # a silent line is dead after about 1 s, one that is silent one way after 2 s
SRC = str(Path(hermes_peer.__file__).parents[1])
FULL = bool(os.environ.get("HERMES_FAULT_FULL"))  # the long forms: every offset, every second


# ---------------------------------------------------------------------- running
def run(make: Callable[[], Awaitable[Any]], *, limit: float = LIMIT_S) -> Any:
    """Run one scenario in a fresh loop, with a limit."""

    async def bounded() -> Any:
        async with asyncio.timeout(limit):
            return await make()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(bounded())


def _loop_factory() -> Any:
    if os.environ.get("HERMES_FAULT_LOOP") != "uvloop":
        return None
    import uvloop

    return uvloop.new_event_loop


async def until(true: Callable[[], Any], what: str = "", limit: float = SOON_S) -> Any:
    """Wait for a condition; its value. Raises TimeoutError that says what never came."""
    end = time.monotonic() + limit
    while not (value := true()):
        if time.monotonic() > end:
            raise TimeoutError(f"after {limit:g} s still not: {what or true}")
        await asyncio.sleep(0.005)
    return value


def show(text: str) -> None:
    """A number worth reading (`pytest -rP`), never asserted."""
    print(text)


@contextlib.contextmanager
def quick_redials(first_s: float = 0.05) -> Iterator[None]:
    """The pause before a second attempt is a second, doubled for each further one: scaled, so that many fit in."""
    before = backoff.FIRST_S
    backoff.FIRST_S = first_s
    try:
        yield
    finally:
        backoff.FIRST_S = before


# ---------------------------------------------------------------------- agents
class Offered:
    """The methods that the cases name, and how often each ran."""

    def __init__(self, agent: HermesAgent) -> None:
        self.ran: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.produced = 0
        self.opened: asyncio.Event | None = None
        self.release = asyncio.Event()
        ran, ended = self.ran, self.ended

        @agent.method("demo.echo")
        async def echo(request: Request) -> Any:
            ran["echo"] += 1
            return request.payload

        @agent.method("demo.tokens")
        async def tokens(request: Request, n: int, every: float = 0.0) -> AsyncIterator[Any]:
            ran["tokens"] += 1
            try:
                for i in range(1, n + 1):
                    self.produced = i
                    yield i
                    await asyncio.sleep(every)
                yield Final({"n": n})
            finally:
                ended["tokens"] += 1

        @agent.method("demo.bytes")
        async def numbers(request: Request, n: int, chunk: int = 4096) -> AsyncIterator[Any]:
            ran["bytes"] += 1
            digest = hashlib.sha256()
            try:
                for start in range(0, n, chunk):
                    part = pattern(start, min(chunk, n - start))
                    digest.update(part)
                    self.produced += 1
                    yield part
                yield Final(digest.hexdigest())
            finally:
                ended["bytes"] += 1

        @agent.method("demo.sum")
        async def total(request: Request) -> int:
            ran["sum"] += 1
            whole = 0
            async for value in request.items:
                whole += value
            return whole

        @agent.method("demo.take")
        async def take(request: Request) -> dict[str, Any]:
            """Reads bytes until their end; answers with their number and checksum."""
            ran["take"] += 1
            digest, size = hashlib.sha256(), 0
            try:
                async for part in request.items:
                    digest.update(part)
                    size += len(part)
            finally:
                ended["take"] += 1
            return {"size": size, "sha": digest.hexdigest()}

        @agent.method("demo.incr")
        async def incr(request: Request) -> dict[str, Any]:
            ran[f"incr {request.message_id}"] += 1
            return {"value": ran[f"incr {request.message_id}"]}

        @agent.method("demo.sleep")
        async def sleep(request: Request, s: float) -> dict[str, Any]:
            ran["sleep"] += 1
            try:
                await asyncio.sleep(s)
            finally:
                ended["sleep"] += 1
            return {"slept": s}

        @agent.method("demo.silent")
        async def silent(request: Request, s: float) -> AsyncIterator[Any]:
            ran["silent"] += 1
            yield "first"
            await asyncio.sleep(s)
            yield "last"

        @agent.method("demo.held")
        async def held(request: Request) -> dict[str, Any]:
            """Runs until the test lets go."""
            ran["held"] += 1
            try:
                await self.release.wait()
            finally:
                ended["held"] += 1
            return {"held": True}

        @agent.method("demo.block")
        def block(s: float) -> dict[str, Any]:
            ran["block"] += 1
            time.sleep(s)
            return {"blocked": s}

        @agent.method("demo.stall")
        async def stall(request: Request, s: float) -> dict[str, Any]:
            """Badly written on purpose: the whole loop stands still."""
            ran["stall"] += 1
            time.sleep(s)
            return {"stalled": s}

        @agent.method("demo.asks")
        async def asks(request: Request) -> dict[str, Any]:
            ran["asks"] += 1
            return {"answer": await request.ask("caller.name", {"of": 7})}

        @agent.method("demo.instance")
        async def instance(request: Request) -> str:
            return agent.status()["instance"]  # type: ignore[no-any-return]


def pattern(start: int, size: int) -> bytes:
    """Bytes that tell where they belong."""
    block = bytes(range(251))
    offset = start % 251
    return (block * (size // 251 + 2))[offset : offset + size]


def make_caller(home: Path, name: str = "caller", **options: Any) -> HermesAgent:
    """An agent with no listener: only it dials."""
    agent = HermesAgent(name, home=home, listen=False, **({"config": BEAT} | options))

    @agent.method("caller.name")
    async def own_name(of: int) -> dict[str, Any]:
        return {"name": name, "of": of}

    return agent


def make_worker(home: Path, name: str = "worker", **options: Any) -> tuple[HermesAgent, Offered]:
    agent = HermesAgent(name, home=home, **({"config": BEAT, "listen": "hermes://127.0.0.1:0"} | options))
    return agent, Offered(agent)


def tcp(agent: HermesAgent) -> Address:
    return next(found for text in agent.addresses if (found := Address.parse(text)).scheme == "tcp")


class Pair:
    """`a` calls `b` under the address `to`, which leads through the proxy `p`."""

    a: HermesAgent
    b: HermesAgent
    offered: Offered
    p: FaultProxy
    to: str

    @property
    def contact(self) -> Contact:
        """A's standing relation with B."""
        return contact(self.a, self.b)

    @property
    def back(self) -> Contact:
        """B's with A."""
        return contact(self.b, self.a)

    def state(self) -> str:
        """What A tells of its line to B."""
        return link_of(self.a, "worker").get("state", "none")


def contact(mine: HermesAgent, theirs: HermesAgent) -> Contact:
    endpoint = mine._running().endpoint
    return endpoint.contacts[bytes.fromhex(theirs.fingerprint)]


def link_of(agent: HermesAgent, name: str) -> dict[str, Any]:
    return next((link for link in agent.status()["links"] if link["agent"] == name), {})


@contextlib.asynccontextmanager
async def pair(
    home: Path, *, a: dict[str, Any] | None = None, b: dict[str, Any] | None = None, **proxy: Any
) -> AsyncIterator[Pair]:
    """Both agents and the proxy; at the end everything that was open must be closed and given back."""
    two = Pair()
    two.b, two.offered = make_worker(home, **(b or {}))
    two.a = make_caller(home, **(a or {}))
    async with two.b:
        there = tcp(two.b)
        async with FaultProxy((there.host, there.port), **proxy) as two.p:
            two.to = str(Address.tcp(*two.p.address, there.fingerprint))
            async with two.a:
                yield two
                await settled(two.a, two.b)


# ---------------------------------------------------------------------- what must hold afterwards
async def settled(*agents: HermesAgent) -> None:
    """Nothing open, nothing unread, nothing unacknowledged, all credit where it was, no deadline left."""
    for agent in agents:
        try:
            await until(lambda agent=agent: not open_things(agent))  # type: ignore[misc]
        except TimeoutError:
            raise AssertionError(f"{agent.name} still holds {open_things(agent)}") from None


def open_things(agent: HermesAgent) -> dict[str, Any]:
    """What an agent holds that it should not hold when nothing runs."""
    life = agent._running()
    found: dict[str, Any] = {"running": len(life.server.running), "handler tasks": len(life.server.runner.tasks)}
    found["deadlines"] = sum(len(bucket) for bucket in life.server.deadlines._wheel.values())
    found["half open"] = len(life.endpoint.node.half_open)
    for peer in life.endpoint.contacts.values():
        found["waiting for a link"] = len(peer._waiters)
        session = peer.session
        if session is not None:
            found |= {f"{peer.name}: {name}": value for name, value in _held(session).items()}
    return {name: value for name, value in found.items() if value}


def _held(session: Session) -> dict[str, int]:
    return {
        "streams": len(session.places.streams),
        "our streams": session.places.open_mine,
        "unread": session.receiver.window.unread,
        "unacknowledged": session.sender.replay.bytes,
        "batched": session.sender.batched,
        "never opened": len(session.sender.unsent()),
        "spare not given back": session.config.spare - session.places.spare,
        "permits not given back": session.config.permits - session.receiver.permits.free,
    }


def descriptors() -> int:
    """Open files and sockets, but for the /dev/null that uvloop keeps in reserve."""
    if not os.path.isdir("/proc/self/fd"):
        return len(os.listdir("/dev/fd"))
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}") != "/dev/null"
    return found


@contextlib.asynccontextmanager
async def assert_clean() -> AsyncIterator[None]:
    """Tasks and descriptors are back where they were."""
    gc.collect()
    tasks, files = asyncio.all_tasks(), descriptors()
    yield
    await until(lambda: asyncio.all_tasks() <= tasks, "all tasks have ended")

    def closed() -> bool:
        gc.collect()
        return descriptors() <= files

    await until(closed, f"the descriptors are {files} again")


def clean(scenario: Callable[[], Awaitable[None]], *, rounds: int = 1, limit: float = LIMIT_S) -> None:
    """Run a scenario, some rounds of it in one loop; after each, tasks and descriptors are where they were."""

    async def all_rounds() -> None:
        for _ in range(rounds):
            async with assert_clean():
                await scenario()

    run(all_rounds, limit=limit)


def clean_each(scenario: Callable[[Any], Awaitable[None]], values: Iterable[Any], *, limit: float = LIMIT_S) -> None:
    """Run a scenario for several values at once; the error says for which one it failed."""

    async def one(value: Any) -> None:
        try:
            await scenario(value)
        except BaseException as error:
            error.add_note(f"in the run with {value!r}")
            raise

    async def all_of_them() -> None:
        async with assert_clean(), asyncio.TaskGroup() as group:
            for value in values:
                group.create_task(one(value))

    run(all_of_them, limit=limit)


# ---------------------------------------------------------------------- processes
class Process:
    """A child that runs a script of ours; its lines come as they are printed."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.pid = child.pid
        self.lines: list[str] = []
        self.errors = b""

    async def line(self, limit: float = SOON_S) -> str:
        """The next line on its stdout; "" at the end."""
        assert self.child.stdout is not None
        async with asyncio.timeout(limit):
            text = (await self.child.stdout.readline()).decode().rstrip("\n")
        self.lines.append(text)
        return text

    async def said(self, limit: float = SOON_S) -> Any:
        """The next line, which is JSON."""
        text = await self.line(limit)
        if not text:
            raise AssertionError(f"the child ended: {(await self.rest())!r}")
        return json.loads(text)

    async def rest(self) -> str:
        assert self.child.stderr is not None
        return (await self.child.stderr.read()).decode()

    def tell(self, value: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(value).encode() + b"\n")

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    async def gone(self, limit: float = SOON_S) -> int:
        async with asyncio.timeout(limit):
            return await self.child.wait()


@contextlib.asynccontextmanager
async def process(
    folder: Path, script: str, *arguments: str, env: dict[str, str] | None = None, dev: bool = False
) -> AsyncIterator[Process]:
    """Run `script` with Python in `folder`; killed at the end if it still lives."""
    file = folder / f"script-{hashlib.sha256(script.encode()).hexdigest()[:8]}.py"
    file.write_text(textwrap.dedent(script))
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *(("-X", "dev", "-W", "error") if dev else ()),
        str(file),
        *arguments,
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=(env if env is not None else dict(os.environ)) | {"PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1"},
    )
    ours = Process(child)
    try:
        yield ours
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGCONT)
                child.kill()
        await child.communicate()
        transport = child._transport  # type: ignore[attr-defined]
        transport.close()


WORKER = """
    import asyncio, json, os, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from tests.fault.rig import BEAT, make_worker
    import logging
    logging.basicConfig(level="WARNING")

    if lease := os.environ.get("FAULT_LEASE_S"):
        from hermes_peer.agent import life
        life.LEASE = float(lease)

    async def main():
        port = sys.argv[3] if len(sys.argv) > 3 else "0"
        agent, offered = make_worker(Path(sys.argv[2]), listen=f"hermes://127.0.0.1:{port}", drain_s=0.1)
        async with agent:
            address = next(a for a in agent.addresses if a.startswith("hermes://"))
            print(json.dumps({"address": address, "pid": os.getpid()}), flush=True)
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                if line.strip() == '"counts"':
                    counts = {"ran": offered.ran, "ended": offered.ended, "links": agent.status()["links"]}
                    print(json.dumps(counts), flush=True)

    asyncio.run(main())
"""
ROOT = str(Path(__file__).resolve().parents[2])


@contextlib.asynccontextmanager
async def worker_process(folder: Path, home: Path, port: int = 0) -> AsyncIterator[tuple[Process, Address]]:
    """`make_worker` as a process of its own, and its TCP address."""
    async with process(folder, WORKER, ROOT, str(home), str(port)) as child:
        ready = await child.said()
        yield child, Address.parse(ready["address"])


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    show(f"{what}: {(time.perf_counter() - begin) * 1000:.0f} ms")
