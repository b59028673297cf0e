"""`hermes-peer run --reload`: the agent in a child process, started again when a file changes.

Knows: which files are watched, and how to replace a process. Refuses to know: what runs in it. Called by: run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from hermes_peer.cli import out

LOOK_S = 0.3
END_S = 3.0
MOST_FILES = 2000
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


class _Ending(Exception):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def keep_running(path: Path, words: list[str]) -> int:
    """Run `hermes-peer WORDS` again and again until a signal; returns the last child's exit code."""
    before = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    child = _start(words)
    try:
        seen = stamps(path)
        while True:
            time.sleep(LOOK_S)
            now = stamps(path)
            if now != seen:
                changed = sorted(now.items() ^ seen.items())[0][0]
                seen = now
                out.note(f"{Path(changed).name} changed, starting again")
                _stop(child)
                child = _start(words)
            elif child.returncode is None and child.poll() is not None:
                out.note("the agent ended; waiting for a change of its files (Ctrl-C ends this)")
    except _Ending:
        return _stop(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "hermes_peer", *words])


def _stop(child: subprocess.Popen[bytes]) -> int:
    """End it politely, then not; a child that also got the terminal's Ctrl-C is simply waited for."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return child.returncode


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ending(number)
