"""What can be learned of each agent of a home by asking it, now.

Knows: records, pins, one short visit to each. Refuses to know: how it is shown. Called by: list.

What an agent says of itself is shown only if it was reached; a record alone proves nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_peer.cli import failures
from hermes_peer.errors import CallError, DeadlineExceeded, HermesError, LinkError

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent
    from hermes_peer.runtime.contact import Contact

AT_ONCE = 64


@dataclass(slots=True)
class Row:
    """One instance. `link`: "connected" only if it answered just now; `problem` says why it did not."""

    agent: str
    instance: str
    fingerprint: str
    address: str
    link: str = "asking"
    rtt_ms: float | None = None
    running: int | None = None
    accepting: bool | None = None
    sealed: bool | None = None
    up_s: float | None = None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def known(me: HermesAgent) -> tuple[list[tuple[Row, Contact]], list[str]]:
    """Every instance that this home knows, by name, and why some records were left out."""
    directory = me._running().directory
    records = directory.all()
    found = [
        (Row(each.agent_id, each.instance_id, each.fingerprint, _first(each.addresses)), directory.of(each))
        for each in records
    ]
    have = {row.fingerprint for row, _ in found}
    now = time.time()
    for pin in directory.trust.pins():
        if pin.at is None or pin.fingerprint in have or not directory.trust.grant(pin.fingerprint, now).allowed:
            continue
        have.add(pin.fingerprint)
        contact = directory.find(str(pin.at.with_fingerprint(pin.fingerprint)), 0.0)[0]
        found.append((Row(pin.name, "", pin.fingerprint, str(pin.at.endpoint)), contact))
    found.sort(key=lambda each: (each[0].agent, each[0].instance))
    return found, list(directory.view.refused)


async def ask_all(me: HermesAgent, found: list[tuple[Row, Contact]], ttl: float) -> AsyncIterator[Row]:
    """The rows in their order, each as soon as it and those before it are known."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(row: Row, contact: Contact) -> Row:
        async with gate:
            await _ask(me, row, contact, ttl)
        return row

    tasks = [asyncio.ensure_future(one(row, contact)) for row, contact in found]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(me: HermesAgent, row: Row, contact: Contact, ttl: float) -> None:
    try:
        async with asyncio.timeout(ttl):
            await contact.ready()
            row.rtt_ms = round(await contact.ping(ttl) * 1000, 3)
            report = contact.report()
            row.link, row.sealed = report["state"], report["sealed"]
            row.running, row.accepting = report["in_flight"], report["accepting"]
            row.instance = row.instance or report["instance"]
            status = await me.call_contact(contact, "hermes.status", None, ttl=ttl)
            row.running, row.accepting, row.up_s = _read(status)
    except (TimeoutError, DeadlineExceeded):
        if row.rtt_ms is None:
            row.link = "no answer"
            row.problem = f"no answer within {ttl:g} s"
    except CallError as error:
        row.problem = failures.sentence(error)  # it is there, and does not tell us more
    except HermesError as error:
        row.link = "unreachable"
        if isinstance(error, LinkError) and failures.exit_code(error) == failures.REFUSED:
            row.link = "refused"
        row.problem = failures.sentence(error)


def _read(status: Any) -> tuple[int | None, bool | None, float | None]:
    """What a status says; an agent may be of another version, so nothing in it is taken for granted."""
    calls = status.get("calls") if isinstance(status, dict) else None
    running = calls.get("running") if isinstance(calls, dict) else None
    accepting = status.get("accepting") if isinstance(status, dict) else None
    up_s = status.get("up_s") if isinstance(status, dict) else None
    return (
        max(0, running - 1) if isinstance(running, int) else None,  # the question itself is one of them
        accepting if isinstance(accepting, bool) else None,
        float(up_s) if isinstance(up_s, int | float) else None,
    )


def _first(addresses: list[str]) -> str:
    """The address to show: one that other machines can use, before a socket file of this one."""
    return min(addresses, key=lambda each: each.startswith("hermes+unix://"), default="")
