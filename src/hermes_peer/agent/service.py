"""The product's own methods, hermes.*: what an agent tells of itself to whoever may `read`.

Knows: how to describe an agent. Refuses to know: who is asking; the policy decides before. Called by: agent.
"""

from __future__ import annotations

import os
import platform
import time
from typing import TYPE_CHECKING, Any

from hermes_peer import __version__
from hermes_peer.agent.context import CURRENT
from hermes_peer.agent.durable.methods import durable_methods
from hermes_peer.agent.methods import Method
from hermes_peer.agent.taps import Taps

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.agent.life import Life
    from hermes_peer.runtime.contact import Contact


def own_methods(agent: HermesAgent) -> list[Method]:
    """hermes.ping, hermes.describe, hermes.status, hermes.tap, and those of durable work."""

    async def ping() -> dict[str, Any]:
        """Answers at once."""
        return {"agent": agent.name, "time_ms": time.time_ns() // 1_000_000}

    async def describe() -> dict[str, Any]:
        """The methods that this caller may call, with their schemas."""
        request = CURRENT.get()
        assert request is not None
        return description(agent, request._inbound.contact)

    async def status_() -> dict[str, Any]:
        """Links, load and the size of everything that is kept."""
        return agent.status()

    return [
        Method("hermes.ping", ping),
        Method("hermes.describe", describe),
        Method("hermes.status", status_),
        Taps(agent).method(),
        *durable_methods(agent),
    ]


def description(agent: HermesAgent, contact: Contact) -> dict[str, Any]:
    """What `contact` may know of this agent: the methods that he may call."""
    methods = [m.describe() for m in agent.methods if agent.allows(contact, m.name)]
    return {
        "agent": agent.name,
        "product": f"hermes-peer/{__version__}",
        "capabilities": list(agent.capabilities),
        "methods": [m for m in methods if not m["name"].startswith(("hermes.", "task."))],
    }


def status(agent: HermesAgent, life: Life) -> dict[str, Any]:
    """Plain JSON values (mission L21, M24)."""
    endpoint = life.endpoint
    sessions = [c.session for c in endpoint.contacts.values() if c.session is not None]
    return {
        "agent": agent.name,
        "slot": life.slot.number,
        "instance": life.instance,
        "fingerprint": life.slot.fingerprint,
        "addresses": [str(a) for a in life.addresses],
        "doors": [door.address for door in life.doors],
        "pid": os.getpid(),
        "python": platform.python_version(),
        "product": f"hermes-peer/{__version__}",
        "up_s": round(time.time() - life.started, 1),
        "accepting": not life.server.draining,
        "home": str(life.home.path),
        "links": [c.report() for c in endpoint.contacts.values() if c.session is not None or c.pump is not None],
        "calls": {
            "running": len(life.server.running),
            "served": life.server.served,
            "threads_waiting": agent.threads.waiting,
            "waiting": sum(s.places.open_mine for s in sessions),
        },
        "durable": life.durable.gauges(),
        "gauges": {
            "sessions": len(sessions),
            "unread_bytes": sum(s.receiver.window.unread for s in sessions),
            "replay_bytes": sum(s.sender.replay.bytes for s in sessions),
            "budget_bytes": endpoint.node.config.budget,
            "outcome_bytes": life.server.outcomes.size(),
            "half_open_links": len(endpoint.node.half_open),
            "loop_stalls": endpoint.stalls,
        },
        "refused_links": dict(endpoint.refused),
        "trust_problem": life.directory.trust.problem,
        "policy_problem": life.directory.policy.problem,
    }
