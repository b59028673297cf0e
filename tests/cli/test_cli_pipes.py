"""HPC-084: readers that leave, signals, closed descriptors, narrow and plain terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time

import pytest

from tests.cli.conftest import PROGRAM, Place, environment

pytestmark = pytest.mark.case("HPC-084")
QUIET = (0, 141)


def shell(place: Place, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A line of bash; `hp` is the program. The last line of stdout has the exit codes of the last pipe."""
    program = f'hp() {{ {PROGRAM[0]} -m hermes_peer "$@"; }}; {line}; echo; echo ${{PIPESTATUS[@]}}'
    program = program.replace("; echo; echo", '; s="${PIPESTATUS[*]}"; echo "$s"; : ')
    return subprocess.run(
        ["bash", "-c", program],
        env=environment(place.home, **env),
        capture_output=True,
        text=True,
        timeout=30,
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
    )


def codes(done: subprocess.CompletedProcess[str]) -> list[int]:
    return [int(word) for word in done.stdout.splitlines()[-1].split()]


def test_head_has_enough_and_the_producer_is_cancelled(place: Place) -> None:
    done = shell(place, "hp stream rich tokens n=100000000 tag=head | head -5", PYTHONUNBUFFERED="1")
    assert done.stdout.splitlines()[:5] == [f'{{"i": {i}}}' for i in range(5)]
    assert codes(done)[0] in QUIET and done.stderr == ""
    place.has_ended("head")


def test_a_reader_that_leaves_a_silent_stream_is_noticed(place: Place) -> None:
    """Nothing is written after the first item, so that no write can fail."""
    start = time.monotonic()
    done = shell(place, "hp stream rich tokens n=2 pause=60 tag=silent | head -1")
    assert time.monotonic() - start < 10
    assert codes(done)[0] in QUIET and done.stderr == ""
    place.has_ended("silent")


@pytest.mark.parametrize("words", ["list", "--help", "trust list", "call rich echo a=1", "stream rich tokens n=9"])
def test_nobody_reads_at_all(place: Place, words: str) -> None:
    done = shell(place, f"hp {words} | true")
    assert codes(done)[0] in QUIET and done.stderr in ("", 'hermes-peer: result: {"n": 9}\n')


def test_closed_descriptors(place: Place) -> None:
    for line, code in (("hp list >&-", 0), ("hp call rich nope 2>&-", 1), ("hp call rich echo - <&-", 2)):
        done = shell(place, line)
        assert codes(done) == [code] and "Traceback" not in done.stderr, (line, done)


def test_input_without_end_ends(place: Place) -> None:
    done = shell(place, "yes | hp call rich echo -")
    assert codes(done)[1] == 2 and done.stderr.count("\n") == 1 and "MiB came in on stdin" in done.stderr


def test_thousands_of_records_into_head(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    from hermes_peer.access.home import Home
    from hermes_peer.registry.folder import FolderRegistry
    from hermes_peer.registry.record import Record, sign_record

    home = Home.open(tmp_path_factory.mktemp("many") / "home")
    registry = FolderRegistry(home.registry_dir)
    now = time.time_ns() // 1_000_000
    with home.slot("many") as slot:  # one key for all: their records differ by their file only
        address = "hermes+unix:///tmp/hermes-peer-nobody.sock"
        record = Record(
            agent_id="many", instance_id="1", key=slot.identity.public.hex(), addresses=[address],
            capabilities=[], seq=now, issued_ms=now, lease_s=600.0,
        )  # fmt: skip
        blob = sign_record(slot.identity, record)
        registry.announce(blob, slot.fingerprint)
        for number in range(5000):
            (home.registry_dir / f"{number:064x}.record").write_bytes(blob)
    done = shell(Place(home.path, home.path), "hp list | head -1", PYTHONUNBUFFERED="1")
    assert done.stdout.startswith("AGENT") and codes(done)[0] in QUIET and done.stderr == ""


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (("stream", "rich", "tokens", "n=100000000"), signal.SIGINT, 130),
        (("stream", "rich", "tokens", "n=100000000"), signal.SIGTERM, 143),
        (("call", "rich", "slow"), signal.SIGINT, 130),
        (("call", "rich", "slow"), signal.SIGHUP, 129),
    ],
)
def test_signals_end_it_and_the_handler(place: Place, words: tuple[str, ...], number: int, code: int) -> None:
    tag = f"{words[0]}{number}"
    process = place.open(*words, f"tag={tag}")
    assert process.stdout is not None and process.stderr is not None
    (process.stdout if words[0] == "stream" else process.stderr).readline()  # it runs
    process.send_signal(number)
    start = time.monotonic()
    _, errors = process.communicate(timeout=10)
    assert process.returncode == code and time.monotonic() - start < 2
    assert errors == ("hermes-peer: interrupted\n" if number == signal.SIGINT else "")
    place.has_ended(tag)


def test_a_slow_reader_keeps_the_line_alive(place: Place) -> None:
    """The pipe is full for a while: the event loop goes on, and nothing is lost."""
    process = place.open("stream", "rich", "tokens", "n=30000", "tag=slow")
    assert process.stdout is not None
    first = process.stdout.readline()
    link = place.hp("inspect", "rich").stdout
    assert "cli (connected" in link
    rest = process.stdout.read()
    process.communicate()
    assert process.returncode == 0 and (first + rest).count("\n") == 30000


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
    assert process.wait(10) == 0, seen
    return seen.decode()


def test_terminals(place: Place) -> None:
    assert "\x1b[32mconnected\x1b[0m" in terminal(place, "list")
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in terminal(place, "list", **env)
    assert "\x1b" not in place.hp("list", TERM="xterm-256color").stdout
    narrow = terminal(place, "list", columns=20, NO_COLOR="1")
    assert "agent rich\r\n" in narrow and "link connected\r\n" in narrow
    assert "Usage: hermes-peer" in terminal(place, "call", "--help", columns=20)
