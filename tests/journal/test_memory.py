"""The journal in memory: epoch, and that a failed commit leaves no trace in any dict."""

from __future__ import annotations

import os

import pytest

from hermes_peer.errors import UsageError
from hermes_peer.journal.memory import MemoryJournal
from hermes_peer.journal.values import Origin

from .rig import ONE, a_taken, do, op


def test_its_epoch_comes_from_the_entropy() -> None:
    journal = MemoryJournal(entropy=lambda n: b"e" * n)
    assert (journal.epoch, journal.origin, journal.notice) == (b"e" * 8, Origin.NEW, "")
    journal.close()


def test_a_failed_commit_leaves_no_trace() -> None:
    journal = MemoryJournal(entropy=os.urandom)
    keyed = a_taken(idempotency_key="k")
    with pytest.raises(UsageError):
        do(journal, op.Take(keyed), op.Run(ONE, "m-1"), op.Append(ONE, "m-1", 0, (b"a",)), op.Run(ONE, "absent"))
    assert journal.gauges().size == 0 and not any(journal.gauges().taken.values())
    do(journal, op.Take(a_taken("m-2", idempotency_key="k")))
    assert journal.taken(ONE, "m-1").result(5) is None
    journal.close()
