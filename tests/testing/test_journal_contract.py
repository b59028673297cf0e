"""The journal's contract kit is run, and shown to catch broken journals, in tests/journal/test_base.py."""

from __future__ import annotations

import os

from hermes_peer.journal.memory import MemoryJournal
from hermes_peer.testing.journal_contract import check_journal


def test_it_needs_no_pytest_and_passes_over_memory() -> None:
    check_journal(lambda limits: MemoryJournal(entropy=os.urandom, limits=limits))
