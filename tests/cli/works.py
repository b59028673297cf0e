"""What the tests of durable work share: a worker's file, a planner that submits and dies.

Knows: processes and gates (files that a handler waits for). Refuses to know: how work is kept. Called by: pytest.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cli.conftest import Agent, Place, environment, running

WORKER = """
import asyncio, pathlib
from hermes_peer import CallError, Final, HermesAgent, Request

agent = HermesAgent("worker")
here = pathlib.Path(__file__).parent

@agent.method("text.shout", contract="idempotent")
async def shout(text: str) -> dict:
    return {"text": text.upper()}

@agent.method("count", contract="idempotent")
async def count(n: int, request: Request):
    for i in range(request.emitted, n):
        yield {"i": i}
    yield Final({"n": n})

@agent.method("gate", contract="idempotent")
async def gate(name: str) -> str:
    while not (here / name).exists():
        await asyncio.sleep(0.01)
    return f"{name} is open"

@agent.method("order", contract="idempotent")
async def order(sku: str, request: Request) -> str:
    with (here / "orders").open("a") as file:
        file.write(f"{sku}\\n")
    return sku

@agent.method("tell", contract="idempotent")
async def tell(name: str) -> str:
    return (await agent.submit("planner", "relay", {"name": name}, message_id="told")).message_id

@agent.method("press", contract="idempotent")
async def press(name: str) -> str:
    if not (here / "paper").exists():
        raise CallError("no_paper", "the press is out of paper")
    with (here / "orders").open("a") as file:
        file.write(f"{name}\\n")
    while not (here / name).exists():
        await asyncio.sleep(0.01)
    return f"{name} is printed"

@agent.method("print")
async def print_(page: int) -> str:
    if (here / "no paper").exists():
        raise CallError("no_paper", "the printer is out of paper\\x1b[2J", details={"tray": 2})
    return f"page {page}"

agent.start()
"""

PLANNER = """
import asyncio, json, pathlib, sys
from hermes_peer import HermesAgent

async def main() -> None:
    how = json.loads(sys.argv[1])
    agent = HermesAgent("planner", listen=how["listen"], secret_key_path=how["key"])

    @agent.method("relay", contract="idempotent")
    async def relay(name: str) -> str:
        while not pathlib.Path(name).exists():
            await asyncio.sleep(0.01)
        return f"{name} was relayed"

    async with agent:
        for id, target, method, payload in how["works"]:
            await agent.submit(target, method, payload, message_id=id)
        print("submitted", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""

Work = tuple[str, str, str, dict[str, object]]


@contextlib.contextmanager
def worker(place: Place) -> Iterator[Agent]:
    """The worker runs."""
    (place.folder / "worker.py").write_text(WORKER)
    with running(place, "worker.py") as agent:
        yield agent


@contextlib.contextmanager
def planner(
    place: Place, *works: Work, listen: bool = True, key: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A planner that has submitted these works, and lives until it is killed or let go."""
    with coming_planner(place, *works, listen=listen, key=key, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == "submitted\n"
        yield process


@contextlib.contextmanager
def coming_planner(
    place: Place, *works: Work, listen: bool = True, key: Path | None = None, stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """The same from its very start; what it logs is on its stderr."""
    (place.folder / "planner.py").write_text(PLANNER)
    how = {"listen": None if listen else False, "key": None if key is None else str(key), "works": works}
    process = subprocess.Popen(
        [sys.executable, "planner.py", json.dumps(how)],
        env=environment(place.home),
        cwd=place.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()
        if process.stderr is not None:
            process.stderr.close()


def submitted_by_a_planner_that_died(place: Place, *works: Work) -> None:
    with planner(place, *works) as process:
        process.kill()


def submit(place: Place, *words: str, code: int = 0) -> str:
    """The ticket's id."""
    done = place.hp("submit", *words, code=code)
    id = done.stdout.rstrip("\n")
    assert re.fullmatch(r"[!-~]+", id), done
    return id


def until(check: Callable[[], bool]) -> None:
    """Until something is so; the limit is for what never comes."""
    end = time.monotonic() + 30
    while not check():
        assert time.monotonic() < end
        time.sleep(0.02)
