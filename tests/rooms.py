"""What tests of several rooms begin with: a home of their own, a disk that does not wait, a log that stays clean.

A conftest takes in what it wants by name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about a power failure: a busy disk must not be what these tests wait for."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture(autouse=True)
def clean_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Field cases, check 4. A test that provokes an error on purpose looks at it and calls `caplog.clear()`."""
    caplog.set_level(logging.INFO)
    yield
    for record in caplog.get_records("call"):
        text = f"{record.name}: {record.getMessage()}"
        assert record.levelno < logging.ERROR, text
        assert record.exc_info is None, f"a traceback in the log: {text}"
        assert "never" not in record.getMessage() or record.name != "asyncio", text
