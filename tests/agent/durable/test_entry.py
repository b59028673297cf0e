"""What is known of one work on its way."""

from __future__ import annotations

import asyncio

import pytest

from hermes_peer.agent.durable import entry as entry_file
from hermes_peer.agent.durable.entry import Entry
from hermes_peer.errors import JournalError
from hermes_peer.journal.values import SentState
from hermes_peer.wire.messages import Envelope
from tests.agent.durable.test_rows import row


async def test_to_whom_it_must_go() -> None:
    loop = asyncio.get_running_loop()
    entry = Entry(row(), Envelope(), 5.0, loop)
    assert entry.stays == b"p" * 32
    entry.free = True
    assert entry.stays == b""


async def test_an_accepted_work_may_be_late() -> None:
    loop = asyncio.get_running_loop()
    assert Entry(row(), Envelope(), 5.0, loop).dies == 5.0
    assert Entry(row(state=SentState.ACCEPTED), Envelope(), 5.0, loop).dies == 5.0 + entry_file.LATE_S


async def test_whoever_waits_hears_of_a_lost_journal() -> None:
    entry = Entry(row(state=SentState.ACCEPTED), Envelope(), 5.0, asyncio.get_running_loop())
    entry.fail(JournalError("stopped"))
    entry.fail(JournalError("again"))
    with pytest.raises(JournalError, match="stopped"):
        await entry.done
    await entry.accepted
