from tests.loops import *  # noqa: F403

from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import pytest  # noqa: E402

from hermes_peer.journal.sqlite import SqliteJournal  # noqa: E402

from .rig import opened  # noqa: E402


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


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
