"""`stream`: items as they come; readers that leave or are slow (HPC-084)."""

from __future__ import annotations

import json
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
