"""`hermes-peer run --reload`: the agent in a child process, started again when a file changes.

Knows: which files are watched, how to replace a process, who else sends it signals. Refuses to know: what runs in it.
Called by: run.

The child ends in an orderly way at the first signal, and at once at a second one; so it must get each of them once. A
terminal's Ctrl-C reaches it without our doing, SIGTERM and SIGHUP are passed on. It stays in our process group, because
a group of its own could not read from the terminal.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hermes_peer.cli import out

LOOK_S = 0.3
END_S = 3.0
AT_ONCE_S = 1.0
STEP_S = 0.05
FORCED = 130  # the exit code after a second signal, as of an agent without --reload
MOST_FILES = 2000
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


Signals = queue.SimpleQueue[int]  # a signal's handler may put into one at any moment
Child = subprocess.Popen[bytes]


def keep_running(path: Path, words: list[str]) -> int:
    """Run `hermes-peer WORDS` again and again until a signal; returns the last child's exit code."""
    with _caught() as signals:
        child = _start(words)
        seen = stamps(path)
        while True:
            number = _next(signals, LOOK_S)
            if number is not None:
                return _end(child, signals, told=number == signal.SIGINT)
            now = stamps(path)
            if now != seen:
                changed = sorted(now.items() ^ seen.items())[0][0]
                seen = now
                out.note(f"{Path(changed).name} changed, starting again")
                child.terminate()
                if _wait(child, END_S, signals) is not None:
                    return _end(child, signals, told=True)
                _kill(child)
                child = _start(words)
            elif child.returncode is None and child.poll() is not None:
                out.note("the agent ended; waiting for a change of its files (Ctrl-C ends this)")


def stamps(path: Path) -> dict[str, tuple[int, int]]:
    """Each Python file beside and below the agent's file, with what tells one version from the next."""
    found = {}
    for file in _files(path):
        with contextlib.suppress(OSError):
            stat = os.stat(file)
            found[file] = (stat.st_mtime_ns, stat.st_size)
    return found


def _files(path: Path) -> Iterator[str]:
    count = 0
    for folder, folders, names in os.walk(path.absolute().parent):
        folders[:] = [
            each
            for each in sorted(folders)
            if each not in _SKIPPED and not each.startswith(".") and not Path(folder, each, "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(".py"):
                count += 1
                if count > MOST_FILES:
                    return
                yield os.path.join(folder, name)


def _start(words: list[str]) -> Child:
    return subprocess.Popen([sys.executable, "-m", "hermes_peer", *words])


# ---------------------------------------------------------------- signals
@contextlib.contextmanager
def _caught() -> Iterator[Signals]:
    """The signals that ask this process to end, one after the other, instead of what they do."""
    signals: Signals = queue.SimpleQueue()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _: signals.put(number)) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _next(signals: Signals, seconds: float) -> int | None:
    """The next signal within so long."""
    try:
        return signals.get(timeout=seconds)
    except queue.Empty:
        return None


def _wait(child: Child, seconds: float, signals: Signals) -> int | None:
    """Until the child has ended, but not for longer; or until a signal, which is returned."""
    until = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < until:
        if (number := _next(signals, STEP_S)) is not None:
            return number
    return None


# ---------------------------------------------------------------- the end
def _end(child: Child, signals: Signals, *, told: bool) -> int:
    """End the child, which was perhaps told already; at once at another signal. Returns the exit code."""
    if told and _wait(child, END_S, signals) is not None:
        return _end_at_once(child)
    child.terminate()  # if it had been told: the signal was sent to us alone, or it takes too long
    if _wait(child, END_S, signals) is not None:
        return _end_at_once(child)
    return _code(_kill(child))


def _end_at_once(child: Child) -> int:
    """A second signal: the child does what it does then, which takes no time."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(AT_ONCE_S)
    _kill(child)
    return FORCED


def _kill(child: Child) -> int:
    """Its exit code; one that still runs is killed."""
    child.kill()
    return child.wait()


def _code(returned: int) -> int:
    """As a shell says it."""
    return returned if returned >= 0 else 128 - returned
