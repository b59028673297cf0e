"""`python -m bench.durable`: durable calls beside volatile ones on the same link and beside NATS JetStream, in one run.

Knows: two ways to do "request kept on disk, done once, reply kept on disk, both acknowledged". Refuses to know: the
other workloads. Called by hand. Needs what `bench/requirements.txt` says, and the program nats-server.

JetStream does the same with file store and `sync_interval: always`: the request is published to a work queue (its
acknowledgement is awaited), the worker publishes the reply to a second stream (awaited), then acknowledges the request;
the caller's durable consumer gets the reply and acknowledges it. Its queue hands work out at least once, so our method
is "idempotent"; request and reply are on disks before the caller has the answer, on either side. Debian's nats-server
(2.9) does not know that setting and acknowledges before the disk has it, as the table says; `--nats-server PATH` names
a newer one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.app import HOST

BODY = {"place": "Reykjavik", "days": 3, "text": "x" * 180}
WINDOW = 64
Call = Callable[[], Awaitable[Any]]


# ---------------------------------------------------------------------- what is measured
async def latency(call: Call, seconds: float) -> dict[str, float]:
    """One at a time."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        await call()
        times.append(time.perf_counter() - began)
    times.sort()
    return {"p50_ms": 1000 * statistics.median(times), "p99_ms": 1000 * times[int(len(times) * 0.99)], "n": len(times)}


async def rate(call: Call, seconds: float) -> dict[str, float]:
    """WINDOW in flight."""
    count, end = 0, time.perf_counter() + seconds

    async def one() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await call()
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(WINDOW)))
    return {"per_s": count / (time.perf_counter() - began), "n": count}


# ---------------------------------------------------------------------- the two rivals
@contextlib.asynccontextmanager
async def child(role: str, *arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.durable",
        "--role",
        role,
        *arguments,
        stdin=-1,
        stdout=-1,
        cwd=Path(__file__).parents[1],
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        async with asyncio.timeout(20):
            ready = json.loads(await process.stdout.readline())
        yield ready
    finally:
        process.stdin.close()
        await process.wait()


async def hermes_worker(home: str) -> None:
    from hermes_peer import HermesAgent

    agent = HermesAgent("bench-worker", home=home, listen=f"hermes://{HOST}:0")

    @agent.method("echo", contract="idempotent")
    async def echo(place: str, days: int, text: str) -> dict[str, Any]:
        return {"place": place, "days": days, "text": text}

    async with agent:
        address = next(each for each in agent.addresses if each.startswith("hermes://"))
        print(json.dumps({"address": address}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


class Hermes:
    def __init__(self, me: Any, address: str) -> None:
        self.me, self.address = me, address

    async def __call__(self) -> Any:
        return await (await self.me.submit(self.address, "echo", BODY)).result()

    async def volatile(self) -> Any:
        return await self.me.call(self.address, "echo", BODY)

    async def commits(self) -> tuple[int, int]:
        other = await self.me.call(self.address, "hermes.status")
        return self.me.status()["durable"].get("commits", 0), other["durable"].get("commits", 0)


async def nats_worker(port: str) -> None:
    import nats

    link = await nats.connect(f"nats://{HOST}:{port}")
    stream = link.jetstream()
    from nats.js.api import AckPolicy, ConsumerConfig

    tasks: set[asyncio.Task[None]] = set()

    async def work(message: Any) -> None:
        body = json.loads(message.data)
        await stream.publish("reply." + message.headers["Reply-Id"], json.dumps(body).encode())
        await message.ack()

    async def begin(message: Any) -> None:
        task = asyncio.create_task(work(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1024)
    await stream.subscribe("work.echo", durable="worker", cb=begin, manual_ack=True, config=config)
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


class JetStream:
    def __init__(self, link: Any, name: str) -> None:
        self.name = name
        self.stream = link.jetstream()
        self.waiting: dict[str, asyncio.Future[bytes]] = {}
        self.count = 0

    async def open(self) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1024)
        await self.stream.subscribe("reply.*", durable="caller", cb=self._reply, manual_ack=True, config=config)

    async def _reply(self, message: Any) -> None:
        future = self.waiting.pop(message.subject.removeprefix("reply."), None)
        if future is not None and not future.done():
            future.set_result(message.data)
        await message.ack()

    async def __call__(self) -> Any:
        self.count += 1
        id = str(self.count)
        future = self.waiting[id] = asyncio.get_running_loop().create_future()
        await self.stream.publish("work.echo", json.dumps(BODY).encode(), headers={"Reply-Id": id, "Nats-Msg-Id": id})
        return json.loads(await future)


@contextlib.asynccontextmanager
async def jetstream(folder: Path, program: str) -> Any:
    import nats
    from nats.js.api import RetentionPolicy, StorageType

    port = free_port()
    always = await takes_always(program)
    sync = "sync_interval: always" if always else ""
    config = folder / "nats.conf"
    config.write_text(f'host: {HOST}\nport: {port}\njetstream {{\n store_dir: "{folder}/js"\n {sync}\n}}\n')
    server = await asyncio.create_subprocess_exec(program, "-c", str(config), stdout=-3, stderr=-3)
    try:
        await listening(port)
        link = await nats.connect(f"nats://{HOST}:{port}", allow_reconnect=False)
        stream = link.jetstream()
        for name, subject in (("WORK", "work.*"), ("REPLY", "reply.*")):
            await stream.add_stream(
                name=name, subjects=[subject], storage=StorageType.FILE, retention=RetentionPolicy.WORK_QUEUE
            )
        async with child("nats", str(port)):
            rival = JetStream(link, "JetStream" if always else "JetStream without fsync")
            await rival.open()
            yield rival
            await link.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.wait()


async def takes_always(program: str) -> bool:
    """Whether this nats-server knows `sync_interval: always` (2.10 and newer)."""
    asked = await asyncio.create_subprocess_exec(program, "--version", stdout=-1)
    text = (await asked.communicate())[0].decode()
    major, minor = text.rpartition("v")[2].split(".")[:2]
    return (int(major), int(minor)) >= (2, 10)


async def listening(port: int) -> None:
    """Returns once somebody takes connections there. Raises TimeoutError."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


# ---------------------------------------------------------------------- the run
async def measure(folder: Path, seconds: float, repeat: int, program: str) -> dict[str, Any]:
    from hermes_peer import HermesAgent

    found: dict[str, list[dict[str, float]]] = {}
    commits: list[tuple[float, float]] = []

    def note(what: str, result: dict[str, float]) -> None:
        found.setdefault(what, []).append(result)
        print(f"  {what:22} {', '.join(f'{k} {v:,.2f}' for k, v in result.items())}", file=sys.stderr, flush=True)

    home = str(folder / "home")
    async with contextlib.AsyncExitStack() as stack:
        ready = await stack.enter_async_context(child("hermes", home))
        me = await stack.enter_async_context(HermesAgent("bench-planner", home=home))
        hermes = Hermes(me, ready["address"])
        rival = await stack.enter_async_context(jetstream(folder, program)) if program else None
        for call in (hermes, hermes.volatile, *([rival] if rival else [])):
            await rate(call, 0.3)  # warm
        for _ in range(repeat):
            note("volatile latency", await latency(hermes.volatile, seconds))
            note("durable latency", await latency(hermes, seconds))
            if rival:
                note(f"{rival.name} latency", await latency(rival, seconds))
            note("volatile rate", await rate(hermes.volatile, seconds))
            before = await hermes.commits()
            note("durable rate", result := await rate(hermes, seconds))
            after = await hermes.commits()
            commits.append(tuple((b - a) / result["n"] for a, b in zip(before, after, strict=True)))  # type: ignore[arg-type]
            if rival:
                note(f"{rival.name} rate", await rate(rival, seconds))
    medians = {
        what: {k: statistics.median(r[k] for r in results) for k in results[0]} for what, results in found.items()
    }
    return {"medians": medians, "commits": tuple(statistics.median(side) for side in zip(*commits, strict=True))}


def told(result: dict[str, Any]) -> str:
    m = result["medians"]
    lines = [f"{'':24}{'latency of one, p50':>22}{'p99':>10}{f'rate, {WINDOW} in flight':>22}"]
    names = [what.removesuffix(" rate") for what in m if what.endswith(" rate")]
    for name in names:
        one, many = m[f"{name} latency"], m[f"{name} rate"]
        lines.append(f"{name:24}{one['p50_ms']:>19.2f} ms{one['p99_ms']:>7.1f} ms{many['per_s']:>20,.0f}/s")

    def ratio(one: str, other: str) -> str:
        latency = m[f"{other} latency"]["p50_ms"] / m[f"{one} latency"]["p50_ms"]
        rate = m[f"{one} rate"]["per_s"] / m[f"{other} rate"]["per_s"]
        return f"{one} against {other}: rate x{rate:.2f}, latency {latency:.2f} times as fast"

    lines += [ratio("durable", name) for name in names if name != "durable"]
    ours, theirs = result["commits"]
    lines.append(f"commits per message at {WINDOW} in flight: {ours:.2f} at the submitter, {theirs:.2f} at the worker")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.durable")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without JetStream")
    parser.add_argument("--nats-server", default="nats-server", metavar="PATH")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--role", choices=("hermes", "nats"), help=argparse.SUPPRESS)
    parser.add_argument("where", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    if options.role:
        asyncio.run((hermes_worker if options.role == "hermes" else nats_worker)(options.where))
        return 0
    with tempfile.TemporaryDirectory(prefix="hbd-", dir=os.environ.get("HERMES_BENCH_DIR")) as folder:
        program = "" if options.alone else options.nats_server
        result = asyncio.run(measure(Path(folder), options.seconds, options.repeat, program))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    print(told(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
