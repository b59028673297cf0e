"""The real program as subprocesses: one home with one running agent, shared by all tests of the command line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.loops import loop_kind, pytest_pyfunc_call  # noqa: F401

SRC = Path(__file__).parents[2] / "src"
PROGRAM = (sys.executable, "-m", "hermes_peer")

RICH = '''
import asyncio
from hermes_peer import CallError, Final, HermesAgent, Request

agent = HermesAgent("rich", capabilities=["text"])
ended = []

@agent.method("text.shout")
async def shout(text: str) -> dict:
    """Says it louder."""
    return {"text": text.upper()}

@agent.method("echo")
async def echo(request):
    return request.payload

@agent.method("tokens")
async def tokens(n: int, pause: float = 0.0, tag: str = ""):
    try:
        for i in range(n):
            yield {"i": i}
            if pause:
                await asyncio.sleep(pause)
        yield Final({"n": n})
    finally:
        ended.append(tag)

@agent.method("slow")
async def slow(request: Request, seconds: float = 60, tag: str = ""):
    try:
        await request.progress("thinking", tokens_used=3)
        await asyncio.sleep(seconds)
        return "done"
    finally:
        ended.append(tag)

@agent.method("wait_ended")
async def wait_ended(tag: str) -> bool:
    async with asyncio.timeout(1):
        while tag not in ended:
            await asyncio.sleep(0.01)
    return True

@agent.method("nasty")
async def nasty() -> str:
    return "a\\x1b[31mred\\x07\\u202egnp"

@agent.method("fail")
async def fail():
    raise CallError("no_stock", "there is none left\\x1b[2J", details={"sku": 3})

@agent.method("crash")
async def crash():
    return 1 / 0

@agent.method("trace")
async def trace(request: Request):
    return request.trace_id

agent.start()
'''


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HERMES_PEER") and k not in ("NO_COLOR", "COLUMNS")}
    return kept | {"HERMES_PEER_HOME": str(home), "PYTHONPATH": str(SRC)} | more


@dataclass
class Agent:
    """A process of `hermes-peer run` that has said that it is ready."""

    process: subprocess.Popen[str]
    ready: str
    lines: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.ready.rpartition(" and ")[2].strip()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code; a process that does not obey is killed, and that is a failure."""
        self.process.send_signal(number)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def start(home: Path, *words: str, cwd: Path) -> Agent:
    process = subprocess.Popen(
        [*PROGRAM, "run", *words],
        env=environment(home),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seen: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        seen.append(line)
        if " is ready at " in line:
            return Agent(process, line, seen)
    raise AssertionError(f"the agent did not start: {seen}")


@dataclass
class Place:
    """A home, a folder to stand in, and the program."""

    home: Path
    folder: Path
    agent: Agent | None = None

    def hp(self, *words: str, code: int = 0, input: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; its exit code must be `code`, and it never shows a traceback."""
        done = subprocess.run(
            [*PROGRAM, *words],
            env=environment(self.home, **env),
            cwd=self.folder,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        assert done.returncode == code, (words, done)
        return done

    def refusal(self, *words: str, code: int, **more: Any) -> str:
        """The one plain sentence of a command that fails; stdout stays empty."""
        done = self.hp(*words, code=code, **more)
        assert done.stdout == "" and done.stderr.count("\n") == 1, done
        assert done.stderr.startswith("hermes-peer: ")
        return done.stderr.removeprefix("hermes-peer: ").rstrip("\n")

    def open(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """Start the program and leave it running."""
        more.setdefault("stdout", subprocess.PIPE)
        return subprocess.Popen(
            [*PROGRAM, *words],
            env=environment(self.home),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def has_ended(self, tag: str) -> None:
        """The handler with this tag ends within a second."""
        assert self.hp("call", "rich", "wait_ended", f"tag={tag}").stdout == "true\n"


@contextlib.contextmanager
def running(place: Place, *words: str) -> Iterator[Agent]:
    agent = start(place.home, *words, cwd=place.folder)
    try:
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.stop()
        assert agent.process.stdout is not None
        agent.process.stdout.close()


def shell(place: Place, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A line of bash; `hp` is the program. The last line of stdout has the exit codes of the last pipe."""
    program = f'hp() {{ {PROGRAM[0]} -m hermes_peer "$@"; }}; {line}; echo; echo ${{PIPESTATUS[@]}}'
    program = program.replace("; echo; echo", '; s="${PIPESTATUS[*]}"; echo "$s"; : ')
    return subprocess.run(
        ["bash", "-c", program],
        env=environment(place.home, **env),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
    )


def codes(done: subprocess.CompletedProcess[str]) -> list[int]:
    return [int(word) for word in done.stdout.splitlines()[-1].split()]


def terminal(place: Place, *words: str, columns: int = 80, **env: str) -> str:
    """What a terminal of that width is sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *words],
        env=environment(place.home, TERM="xterm-256color") | env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=place.folder,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(master)
    assert process.wait(30) == 0, seen
    return seen.decode()


def until(place: Place, says: str, *words: str) -> str:
    """Ask until an agent has seen a file change; it looks twice a second."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done = subprocess.run(
            [*PROGRAM, *words], env=environment(place.home), capture_output=True, text=True, check=False
        )
        if says in done.stdout + done.stderr:
            return done.stdout + done.stderr
    raise AssertionError(done)


def together(checks: Iterable[Callable[[], None]]) -> None:
    """Run checks side by side, as many as there are cores; the first failure is the test's."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(check) for check in checks]:
            done.result()


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The shared home, in which `rich` runs."""
    base = tmp_path_factory.mktemp("cli")
    place = Place(base / "home", base)
    (base / "rich.py").write_text(RICH)
    with running(place, "rich.py", "--listen", "hermes://127.0.0.1:0") as agent:
        place.agent = agent
        yield place
        assert agent.process.poll() is None  # whatever the tests did, it went on serving


@pytest.fixture
def fresh(tmp_path: Path) -> Place:
    """A home that does not exist yet."""
    return Place(tmp_path / "home", tmp_path)


@dataclass
class Inside(Place):
    """The program in this very process, for commands that visit no agent: ten times as quick."""

    patch: Any = None
    capture: Any = None

    def at(self, place: Place) -> Inside:
        """The same in another home."""
        return Inside(place.home, place.folder, None, self.patch, self.capture)

    def hp(self, *words: str, code: int = 0, input: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        from hermes_peer.cli import main

        assert words[0] in ("init", "trust", "policy", "id", "ttl") or not env
        self.patch.setattr(sys, "argv", ["hermes-peer", *words])
        self.patch.setenv("HERMES_PEER_HOME", str(self.home))
        self.patch.chdir(self.folder)
        self.capture.readouterr()
        found = main._main()
        said = self.capture.readouterr()
        assert found == code, (words, found, said)
        return subprocess.CompletedProcess(words, found, said.out, said.err)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    """A home that does not exist yet, and the program without a process of its own."""
    return Inside(tmp_path / "home", tmp_path, None, monkeypatch, capfd)
