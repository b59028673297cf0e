import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.journal.sqlite import SqliteJournal
from tests.loops import *  # noqa: F403

from .rig import opened


@pytest.fixture
def path() -> Iterator[Path]:
    """In memory where there is /dev/shm: what needs a disk (strace, tmpfs, power loss) brings its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name) / "journal"


@pytest.fixture
def make(path: Path) -> Iterator[Callable[..., SqliteJournal]]:
    """Opens the journal at `path` (again); closes what is left open."""
    all_: list[SqliteJournal] = []

    def one(at: Path = path, **more: Any) -> SqliteJournal:
        all_.append(opened(at, **more))
        return all_[-1]

    yield one
    for each in all_:
        each.close()
