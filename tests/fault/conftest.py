"""A clean log is part of every case: no error, no traceback, nothing "never retrieved" (field cases, check 4)."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def own_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime folder for each test, with a short path, as the sockets of all agents of this user lie in one."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(autouse=True)
def clean_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A test that provokes an error on purpose looks at it and calls `caplog.clear()`."""
    caplog.set_level(logging.INFO)
    yield
    for record in caplog.get_records("call"):
        text = f"{record.name}: {record.getMessage()}"
        assert record.levelno < logging.ERROR, text
        assert record.exc_info is None, f"a traceback in the log: {text}"
        assert "never" not in record.getMessage() or record.name != "asyncio", text
