"""`id`: the formula of mission I8."""

from __future__ import annotations

from hermes_peer.wire.invoke import stable_agent_id
from tests.cli.conftest import Place


def test_id(quick: Place) -> None:
    done = quick.hp("id", "db-query-service", "prod", "db-node-01")
    # `uuid.UUID(bytes=sha256(b"db-query-service-prod-db-node-01")[:16], version=4)`, worked out by hand.
    assert done.stdout == "c7e72067-cd67-428d-9e87-ba0f4ae25fb4\n" and "SHA-256" in done.stderr
    assert not quick.home.exists()


def test_ids() -> None:
    made = stable_agent_id("db", "prod", "n1")
    assert made == stable_agent_id("db", "prod", "n1") != stable_agent_id("db", "dev", "n1")
    assert made[14] == "4" and made[19] in "89ab" and len(made) == 36
