"""One commit accepts a work, whoever hands it in first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hermes_peer.agent.durable.acceptance import Acceptance, NotTaken, running
from hermes_peer.journal.values import Contract, Taken, TakenState
from tests.loops import until

ROW = Taken(
    principal=b"p" * 32,
    message_id="m",
    method="x",
    contract=Contract("idempotent"),
    envelope=b"{}",
    payload=b"{}",
    digest=b"d",
    taken_ms=1,
    expires_ms=2,
)


class Journal:
    """Remembers the rows; its answers never come."""

    def __init__(self) -> None:
        self.rows: list[Taken] = []

    def commit(self, *operations: Any) -> Any:
        (take,) = operations
        self.rows.append(take.taken)
        return asyncio.get_running_loop().create_future()


def made() -> tuple[Acceptance, Any]:
    journal: Any = Journal()
    return Acceptance(journal, running(ROW), asyncio.get_running_loop()), journal


async def test_an_outcome_that_comes_first_goes_with_it() -> None:
    acceptance, journal = made()
    shared = asyncio.ensure_future(acceptance.shared(b"end", 9))
    await until(lambda: journal.rows)
    assert acceptance.handed_in() is acceptance.handed_in()
    acceptance.decided(True)
    assert await shared is True
    (row,) = journal.rows
    assert (row.state, row.attempts, row.outcome, row.keep_until_ms) == (TakenState.DONE, 1, b"end", 9)


async def test_an_outcome_that_comes_later_waits_for_it_and_goes_alone() -> None:
    acceptance, journal = made()
    acceptance.handed_in()
    shared = asyncio.ensure_future(acceptance.shared(b"end", 9))
    await asyncio.sleep(0)
    assert not shared.done()
    acceptance.decided(True)
    assert await shared is False
    assert [(row.state, row.attempts, row.outcome) for row in journal.rows] == [(TakenState.RUNNING, 1, None)]


@pytest.mark.parametrize("first", [True, False])
async def test_what_is_not_taken_has_no_outcome(first: bool) -> None:
    acceptance, _ = made()
    if not first:
        acceptance.handed_in()
    shared = asyncio.ensure_future(acceptance.shared(b"end", 9))
    await asyncio.sleep(0)
    acceptance.decided(False)
    with pytest.raises(NotTaken):
        await shared
    with pytest.raises(NotTaken):
        await acceptance.stands()
