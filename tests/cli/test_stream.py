"""`stream`: items as they come; readers that leave or are slow (HPC-084)."""

from __future__ import annotations

import fcntl
import json
import sys
import termios
import time

import pytest

from tests.cli.conftest import Place, codes, shell

pytestmark = pytest.mark.case("HPC-084")


def test_stream(place: Place) -> None:
    done = place.hp("stream", "rich", "tokens", "n=2")
    assert done.stdout == '{"i": 0}\n{"i": 1}\n' and done.stderr == 'hermes-peer: result: {"n": 2}\n'
    done = place.hp("stream", "rich", "tokens", "n=1", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"item": {"i": 0}}, {"result": {"n": 1}}]
    assert done.stderr == ""


def test_head_has_enough_and_the_producer_is_cancelled(place: Place) -> None:
    done = shell(place, "hp stream rich tokens n=100000000 tag=head | head -5", PYTHONUNBUFFERED="1")
    assert done.stdout.splitlines()[:5] == [f'{{"i": {i}}}' for i in range(5)]
    assert codes(done)[0] in (0, 141) and done.stderr == ""
    place.has_ended("head")


def test_a_reader_that_leaves_a_silent_stream_is_noticed(place: Place) -> None:
    """Nothing is written after the first item, so that no write can fail."""
    start = time.monotonic()
    done = shell(place, "hp stream rich tokens n=2 pause=60 tag=silent | head -1")
    assert time.monotonic() - start < 10
    assert codes(done)[0] in (0, 141) and done.stderr == ""
    place.has_ended("silent")


def test_a_slow_reader_stops_nothing_else(place: Place) -> None:
    """The pipe is full: the program still answers its line and its signals, and what was written is whole."""
    process = place.open("stream", "rich", "tokens", "n=100000000", "tag=full")
    assert process.stdout is not None
    first = process.stdout.readline()
    held = before = -1
    while held < 60_000 or held != before:
        before, held = held, int.from_bytes(fcntl.ioctl(process.stdout, termios.FIONREAD, bytes(4)), sys.byteorder)
        time.sleep(0.02)
    assert "cli (connected" in place.hp("inspect", "rich").stdout
    process.terminate()
    place.has_ended("full")
    rest = process.stdout.read()
    process.communicate()
    assert process.returncode == 143
    lines = (first + rest).splitlines()
    assert lines[:-1] == [f'{{"i": {i}}}' for i in range(len(lines) - 1)]
