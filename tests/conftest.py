"""Every test has a runtime folder and a home of its own: no test meets another one's sockets, or the user's."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_runtime_folder() -> Iterator[None]:
    """Short, because a socket's path has a limit; session-wide, for agents that a whole module shares."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        Path(folder).chmod(0o700)
        patch.setenv("XDG_RUNTIME_DIR", folder)
        patch.setenv("HERMES_PEER_HOME", str(Path(folder) / "home"))
        yield


@pytest.fixture(autouse=True)
def own_log_level() -> Iterator[None]:
    """A command that ran in this process has set how much the library says."""
    log = logging.getLogger("hermes_peer")
    level = log.level
    yield
    log.setLevel(level)
