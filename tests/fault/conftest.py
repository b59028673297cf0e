"""A clean log is part of every case: no error, no traceback, nothing "never retrieved" (field cases, check 4)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from tests.rooms import clean_log  # noqa: F401


@pytest.fixture(autouse=True)
def own_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime folder for each test, with a short path, as the sockets of all agents of this user lie in one."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield
