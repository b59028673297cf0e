"""A new home in a temporary folder, and a clock that stands still."""

import tempfile

import pytest

from hermes_peer.access.home import Home

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32


@pytest.fixture
def home(tmp_path, monkeypatch):
    # Short: under a long tmp_path the sockets would go to the user's real folder, and these tests plant things there.
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as run:
        monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        yield Home.open(tmp_path / "home")


@pytest.fixture
def trust_text(home):
    """Writes trust.toml as an editor does."""

    def write(text: str) -> None:
        home.trust_file.write_text(text)

    return write
