"""From a target to a contact that has a session: the slow path of a call.

Knows: instances of a name, which to wait for. Refuses to know: envelopes, streams. Called by: agent, when the route
of the hot path does not hold.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_peer.errors import DeadlineExceeded, LinkError
from hermes_peer.runtime.contact import Contact

if TYPE_CHECKING:
    from hermes_peer.agent.life import Life

LOOK_S = 0.5  # after so long without a line the registry is asked again
AT_ONCE = 8  # instances that are dialled at the same time


async def reach(life: Life, target: str, until: float) -> Contact:
    """A contact with a session; of several instances the least loaded, else the first that answers.

    Nothing is queued for a line that is down: the instance that lives may be another one (HPC-072). Raises
    LinkError, DeadlineExceeded (timer "connect"), UsageError.
    """
    begun = life.loop.time()
    while True:
        contacts = life.directory.find(target, life.loop.time())
        best = contacts[0]
        if best.session is not None and best.pump is not None:  # the first has a line: it takes calls, or none does
            for other in contacts[1:AT_ONCE]:
                other.invite()
            return best
        draining = [c for c in contacts if c.pump is not None]  # they have lines, and come last
        try:
            found = await _first(life, contacts[: len(contacts) - len(draining)][:AT_ONCE], until)
        except LinkError:
            if not draining:
                raise
            found = None
        if found is None:  # the one that drains says so itself
            found = next((c for c in draining if c.pump is not None), None)
        if found is not None and found.session is not None:  # else it was lost in this very turn
            return found
        if life.loop.time() >= until:
            why = f": {best.last_error}" if best.last_error else ""
            raise DeadlineExceeded(
                "connect", f"no link to {target} within {until - begun:.3g} s{why}", origin="local", timer="connect"
            )
        life.directory.reload()


async def _first(life: Life, contacts: list[Contact], until: float) -> Contact | None:
    """The first that has a line; None if none has one within LOOK_S: then it is time to look for others."""
    until = min(until, life.loop.time() + LOOK_S)
    tasks = {life.loop.create_task(contact.ready(linked=True)): contact for contact in contacts}
    pending = set(tasks)
    error: BaseException | None = None
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=max(0.0, until - life.loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                return None
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
