"""Signals end the command and the handler over there (HPC-084)."""

from __future__ import annotations

import signal
import time
from functools import partial

import pytest

from tests.cli.conftest import Place, together

pytestmark = pytest.mark.case("HPC-084")


CASES = [
    (("stream", "rich", "tokens", "n=100000000"), signal.SIGINT, 130),
    (("stream", "rich", "tokens", "n=100000000"), signal.SIGTERM, 143),
    (("call", "rich", "slow"), signal.SIGINT, 130),
    (("call", "rich", "slow"), signal.SIGHUP, 129),
]


def test_signals_end_it_and_the_handler(place: Place) -> None:
    def check(words: tuple[str, ...], number: int, code: int) -> None:
        tag = f"{words[0]}{number}"
        process = place.open(*words, f"tag={tag}")
        assert process.stdout is not None and process.stderr is not None
        (process.stdout if words[0] == "stream" else process.stderr).readline()  # it runs
        process.send_signal(number)
        start = time.monotonic()
        _, errors = process.communicate(timeout=30)
        assert process.returncode == code and time.monotonic() - start < 3
        assert errors == ("hermes-peer: interrupted\n" if number == signal.SIGINT else "")
        place.has_ended(tag)

    together(partial(check, *each) for each in CASES)
