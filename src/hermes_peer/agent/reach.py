"""From a target to a contact that has a session: the slow path of a call.

Knows: instances of a name, which to wait for. Refuses to know: envelopes, streams. Called by: agent, when the route
of the hot path does not hold.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_peer.errors import DeadlineExceeded
from hermes_peer.runtime.contact import Contact

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life

AT_ONCE = 8  # instances that are dialled at the same time


async def reach(life: Life, target: str, until: float) -> Contact:
    """A contact with a session; of several instances the least loaded, else the first that answers.

    A lone instance whose line is down is good enough: what is sent waits for the line. Raises LinkError,
    DeadlineExceeded (timer "connect"), UsageError.
    """
    while True:
        contacts = life.directory.find(target, life.loop.time())
        best = contacts[0]
        if best.session is not None and (best.pump is not None or len(contacts) == 1):
            best.wake()
            for other in contacts[1:AT_ONCE]:
                other.invite()
            return best
        found = await _first(life, target, contacts[:AT_ONCE], until)
        if found.session is not None:  # else it was lost in this very turn
            return found


async def _first(life: Life, target: str, contacts: list[Contact], until: float) -> Contact:
    left = until - life.loop.time()
    tasks = {life.loop.create_task(contact.ready(linked=True)): contact for contact in contacts}
    pending = set(tasks)
    error: BaseException | None = None
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=max(0.0, until - life.loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                why = f": {contacts[0].last_error}" if contacts[0].last_error else ""
                raise DeadlineExceeded(
                    "connect", f"no link to {target} within {left:.3g} s{why}", origin="local", timer="connect"
                )
            for task in done:
                if task.exception() is None:
                    return tasks[task]
                error = error or task.exception()
        assert error is not None
        raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
