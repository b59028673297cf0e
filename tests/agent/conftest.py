"""A home in tmp_path, and coroutine tests."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loops import *  # noqa: F403


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
