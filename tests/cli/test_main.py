"""Every way out of the program: readers that are gone, closed descriptors, tracebacks (HPC-084)."""

from __future__ import annotations

import subprocess
from functools import partial

import pytest

from tests.cli.conftest import PROGRAM, Place, codes, environment, shell, together

pytestmark = pytest.mark.case("HPC-084")


def test_nobody_reads_at_all(place: Place) -> None:
    def check(words: str) -> None:
        done = shell(place, f"hp {words} | true")
        assert codes(done)[0] in (0, 141) and done.stderr in ("", 'hermes-peer: result: {"n": 9}\n')

    together(partial(check, words) for words in ("list", "--help", "--version", "stream rich tokens n=9"))


def test_closed_descriptors(place: Place) -> None:
    def check(line: str, code: int) -> None:
        done = shell(place, line)
        assert codes(done) == [code] and "Traceback" not in done.stderr, (line, done)

    lines = {"hp list >&-": 0, "hp call rich nope 2>&-": 1, "hp call rich echo - <&-": 2}
    together(partial(check, *each) for each in lines.items())


def test_debug_shows_the_traceback(fresh: Place) -> None:
    env = environment(fresh.home, HERMES_PEER_DEBUG="1")
    done = subprocess.run([*PROGRAM, "run", "absent.py"], env=env, capture_output=True, text=True, cwd=fresh.folder)
    assert done.returncode == 2 and "Traceback" in done.stderr
