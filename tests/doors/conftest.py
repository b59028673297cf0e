"""A home in tmp_path, coroutine tests, and a log that stays clean."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.loops import *  # noqa: F403
from tests.rooms import home, quick_disk  # noqa: F401


@pytest.fixture(autouse=True)
def clean_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Field cases, check 4: nothing that a caller does is worth a warning, and never a traceback."""
    caplog.set_level(logging.INFO)
    yield
    for record in caplog.get_records("call"):
        if record.name in ("asyncio", "httpx2", "httpcore2", "hermes_peer.link") and record.levelno < logging.WARNING:
            continue
        text = f"{record.name}: {record.getMessage()}"
        assert record.levelno < logging.WARNING, text
        assert record.exc_info is None, f"a traceback in the log: {text}"
