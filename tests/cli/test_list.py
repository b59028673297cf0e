"""`list`: what answered just now, and what did not; thousands of records (HPC-084)."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest

from tests.cli.conftest import Place, codes, running, shell, terminal, together


def test_list(place: Place) -> None:
    head, row = place.hp("list").stdout.splitlines()
    assert head.split() == ["AGENT", "INSTANCE", "LINK", "RTT", "LOAD", "SEALED", "ADDRESS"]
    assert row.split()[0] == "rich" and row.split()[2] == "connected" and "hermes://127.0.0.1:" in row
    found = json.loads(place.hp("list", "--json").stdout)
    assert (found["agent"], found["link"], found["running"], found["sealed"]) == ("rich", "connected", 0, True)
    assert 0 < found["rtt_ms"] < 1000


def test_list_says_that_an_agent_is_gone(fresh: Place, place: Place) -> None:
    """Its record lives on for a minute after a kill: a record is no proof of life."""
    (fresh.folder / "rich.py").write_bytes((place.folder / "rich.py").read_bytes())
    with running(fresh, "rich.py") as agent:
        agent.process.kill()
        agent.process.wait()
        done = fresh.hp("list")
    assert "unreachable" in done.stdout and "check that the agent runs there" in done.stdout
    assert "connected" not in done.stdout.replace("cannot connect", "")
    assert "no agent is running in this home" in fresh.hp("list", "--home", "empty").stderr


def test_thousands_of_records_into_head(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    from hermes_peer.access.home import Home
    from hermes_peer.registry.folder import FolderRegistry
    from hermes_peer.registry.record import Record, sign_record

    home = Home.open(tmp_path_factory.mktemp("many") / "home")
    registry = FolderRegistry(home.registry_dir)
    now = time.time_ns() // 1_000_000
    with home.slot("many") as slot:  # one key for all: their records differ by their file only
        address = "hermes+unix:///tmp/hermes-peer-nobody.sock"
        record = Record(
            agent_id="many", instance_id="1", key=slot.identity.public.hex(), addresses=[address],
            capabilities=[], seq=now, issued_ms=now, lease_s=600.0,
        )  # fmt: skip
        blob = sign_record(slot.identity, record)
        registry.announce(blob, slot.fingerprint)
        for number in range(5000):
            (home.registry_dir / f"{number:064x}.record").write_bytes(blob)
    done = shell(Place(home.path, home.path), "hp list | head -1", PYTHONUNBUFFERED="1")
    assert done.stdout.startswith("AGENT") and codes(done)[0] in (0, 141) and done.stderr == ""


def test_terminals(place: Place) -> None:
    def check(has: str, has_not: str, *words: str, columns: int = 80, **env: str) -> None:
        seen = terminal(place, *words, columns=columns, **env)
        assert has in seen and (not has_not or has_not not in seen)

    together(
        [
            partial(check, "\x1b[32mconnected\x1b[0m", "", "list"),
            partial(check, "connected", "\x1b", "list", NO_COLOR="1"),
            partial(check, "connected", "\x1b", "list", TERM="dumb"),
            partial(check, "link connected\r\n", "\x1b", "list", columns=20, NO_COLOR="1"),
            partial(check, "Usage: hermes-peer", "\x1b", "call", "--help", columns=20),
        ]
    )
    assert "\x1b" not in place.hp("list", TERM="xterm-256color").stdout
