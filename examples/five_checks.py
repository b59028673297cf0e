"""The five checks that a Hermes agent must pass (mission I11), against a running calculator, as a table.

    hermes-peer run examples/calculator.py --http 127.0.0.1:8000
    python examples/five_checks.py [http://127.0.0.1:8000] [--seconds 60] [--rate 100]

Without an address it starts the calculator itself, on a free port. Python's own library is all it needs for that.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

GROWTH_MAX = 8 * 1024 * 1024  # bytes, from a tenth of the way to its end
FIELDS = ("version", "msg_type", "sender_id", "receiver_id", "ttl", "trace_id")
Row = tuple[str, bool, str]


class Door:
    """One connection to a door, kept alive."""

    def __init__(self, url: str) -> None:
        self.parts = urlsplit(url)
        self.line = http.client.HTTPConnection(self.parts.hostname or "127.0.0.1", self.parts.port or 80, timeout=90)

    def send(self, body: Any) -> tuple[int, dict[str, Any]]:
        """Status and message."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.line.request("POST", "/hermes/v1/invoke", data, {"Content-Type": "application/hermes+json"})
        response = self.line.getresponse()
        return response.status, json.loads(response.read())


def message(expression: str = "2 + 2 * 3", **meta: Any) -> dict[str, Any]:
    """A TASK_REQUEST."""
    fields = {"version": "1.2", "msg_type": 1, "sender_id": "checker", "receiver_id": None, "ttl": 65}
    return {
        "meta": {**fields, "trace_id": uuid.uuid4().hex, **meta},
        "payload": {"task_id": str(uuid.uuid4()), "tool": "calculator", "expression": expression},
    }


def fields(door: Door) -> str:
    """1. Every field of the meta is there in the answer, and missed in a question."""
    status, answer = door.send(message())
    assert status == 200 and answer["payload"]["result"] == 8, answer
    assert set(answer) == {"meta", "payload"} and set(answer["meta"]) == set(FIELDS), answer
    for field in FIELDS:
        lacking = message()
        del lacking["meta"][field]
        status, answer = door.send(lacking)
        assert status == 400 and field in answer["payload"]["detail"], (field, answer)
    status, answer = door.send(json.dumps(json.dumps(message())).encode())
    assert status == 400 and answer["payload"]["error_code"] == 2, answer
    return f"all {len(FIELDS)} are answered, each one is missed; a message within a string is refused"


def spent(door: Door) -> str:
    """2. A ttl that is spent, before the work or during it, is error 3 and no HTTP error."""
    status, answer = door.send(message(ttl=0))
    assert status == 200 and answer["payload"]["error_code"] == 3, answer
    slow = message(ttl=0.2)
    slow["payload"] = {"task_id": str(uuid.uuid4()), "tool": "calculator.slowly", "seconds": 5}
    began = time.monotonic()
    status, answer = door.send(slow)
    took = time.monotonic() - began
    assert status == 200 and answer["payload"]["error_code"] == 3 and took < 3, answer
    return f"ttl 0 is refused; work of 5 s with a ttl of 0.2 s ends after {took:.2f} s with error 3"


def codes(door: Door) -> str:
    """3. What is wrong has its own code, and an answer that says what to do."""
    seen = []
    for what, body, code in (
        ("expression", message("2 + "), 2),
        ("version", message(version="1.3"), 2),
        ("tool", {**message(), "payload": {"tool": "calculater"}}, 4),
        ("division", message("1 / 0"), 10),
        ("power", message("9 ** 9 ** 9"), 10),
    ):
        _, answer = door.send(body)
        payload = answer["payload"]
        assert payload["error_code"] == code and payload["detail"] and payload["hint"], (what, answer)
        seen.append(f"{what} {code}")
    return ", ".join(seen)


def trace(door: Door) -> str:
    """4. The trace id comes back as it went."""
    for trace_id in ("my-trace-123", uuid.uuid4().hex, "四-é", "x" * 128):
        for expression in ("1", "1 / 0"):
            _, answer = door.send(message(expression, trace_id=trace_id))
            assert answer["meta"]["trace_id"] == trace_id, answer
    return "kept in results and errors, also my-trace-123 and 128 characters"


def load(url: str, seconds: float, rate: int, pid: int | None) -> str:
    """5. So many requests a second for so long, without an error and without growth."""
    workers, began, sizes = 4, time.monotonic(), [memory(pid)]

    def work(number: int) -> tuple[int, float]:
        door, count, slowest = Door(url), 0, 0.0
        while (due := began + (count * workers + number) / rate) < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            sent = time.monotonic()
            status, answer = door.send(message(f"{count} + 1"))
            assert status == 200 and answer["payload"]["result"] == count + 1, answer
            slowest = max(slowest, time.monotonic() - sent)
            count += 1
        return count, slowest

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(work, number) for number in range(workers)]
        while not all(each.done() for each in running):
            concurrent.futures.wait(running, timeout=seconds / 20)
            sizes.append(memory(pid))
        done = [each.result() for each in running]
    count, took = sum(each[0] for each in done), time.monotonic() - began
    said = (
        f"{count} requests in {took:.1f} s, none failed, the slowest took {max(each[1] for each in done) * 1000:.0f} ms"
    )
    assert count >= 0.95 * rate * seconds, said
    if pid is None:
        return f"{said}; memory unknown: start it from here"
    grown = sizes[-1] - sizes[len(sizes) // 10]
    assert grown < GROWTH_MAX, f"{said}; memory grew by {grown / 2**20:.1f} MiB"
    return f"{said}; memory {sizes[-1] / 2**20:.1f} MiB, {grown / 2**20:+.1f} MiB since a tenth of the way"


def memory(pid: int | None) -> int:
    """Resident bytes of the agent, where the system tells."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def calculator() -> Iterator[tuple[str, int]]:
    """The example agent, in a home of its own, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    here = Path(__file__).with_name("calculator.py")
    with tempfile.TemporaryDirectory() as home:
        words = [sys.executable, "-m", "hermes_peer", "run", str(here), "--http", f"127.0.0.1:{port}"]
        env = {**os.environ, "HERMES_PEER_HOME": home}
        process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            while "is ready" not in (line := process.stdout.readline()):
                assert line, "the calculator did not start"
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(10)
            process.stdout.close()


def checks(url: str, seconds: float, rate: int, pid: int | None) -> list[Row]:
    """Run all five; a check that fails says why."""
    rows: list[Row] = []
    one: list[tuple[str, Callable[[], str]]] = [
        ("fields", lambda: fields(Door(url))),
        ("ttl", lambda: spent(Door(url))),
        ("error codes", lambda: codes(Door(url))),
        ("trace", lambda: trace(Door(url))),
        (f"{rate} a second, {seconds:g} s", lambda: load(url, seconds, rate, pid)),
    ]
    for name, check in one:
        try:
            rows.append((name, True, check()))
        except (AssertionError, OSError, http.client.HTTPException, KeyError, ValueError) as error:
            rows.append((name, False, str(error)[:300] or type(error).__name__))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=100)
    options = parser.parse_args()
    with contextlib.nullcontext((options.url, None)) if options.url else calculator() as (url, pid):
        rows = checks(url, options.seconds, options.rate, pid)
    width = max(len(name) for name, _, _ in rows)
    print(f"   {'check'.ljust(width)}  what was seen")
    for number, (name, fine, said) in enumerate(rows, 1):
        print(f"{number}  {name.ljust(width)}  {'' if fine else 'FAILED: '}{said}")
    failed = [name for name, fine, _ in rows if not fine]
    print(f"{len(rows) - len(failed)} of {len(rows)} passed" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
