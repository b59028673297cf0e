"""agent/service: hermes.ping, hermes.describe, hermes.status."""

from __future__ import annotations

from pathlib import Path

from hermes_peer import __version__
from tests.agent.rig import two
from tests.agent.test_serving import CLOSED, _allows, write_policy
from tests.loops import until


async def test_ping_and_describe(home: Path) -> None:
    async with two(home) as (served, me):
        assert (await me.call("worker", "hermes.ping"))["agent"] == "worker"
        told = await me.call("worker", "hermes.describe")
        assert {m["name"] for m in told["methods"]} >= {"echo", "tokens"}
        assert not any(m["name"].startswith("hermes.") for m in told["methods"])
        write_policy(home, CLOSED)
        await until(lambda: not _allows(served, "tokens"))
        told = await me.call("worker", "hermes.describe")
        assert [m["name"] for m in told["methods"]] == ["echo"]


async def test_status_here_and_there(home: Path) -> None:
    async with two(home) as (served, me):
        theirs, ours = await me.call("worker", "hermes.status"), me.status()
        assert theirs["agent"] == "worker" and theirs["product"] == f"hermes-peer/{__version__}"
        assert theirs["fingerprint"] == served.fingerprint == ours["links"][0]["fingerprint"]
        assert ours["links"][0]["state"] == "connected" and ours["links"][0]["sealed"] is True
        assert ours["links"][0]["message_limit"] == 5 * 1024 * 1024
        assert theirs["calls"]["running"] == 1 and theirs["accepting"] is True
        assert ours["gauges"]["unread_bytes"] == 0
        assert ours["policy_problem"] is None and ours["trust_problem"] is None
