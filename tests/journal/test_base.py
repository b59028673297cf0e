"""The port: its contract over both journals, and the kit itself, which must catch journals that are wrong."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from hermes_peer.journal import rules
from hermes_peer.journal.base import Journal
from hermes_peer.journal.memory import MemoryJournal, MemoryStore
from hermes_peer.journal.values import Limits
from hermes_peer.testing.journal_contract import check_journal

from .rig import op


def memory(limits: Limits, **_: Any) -> Journal:
    return MemoryJournal(entropy=os.urandom, limits=limits)


def test_the_contract_in_memory() -> None:
    check_journal(memory)


def test_the_contract_in_sqlite(tmp_path: Any, make: Callable[..., Any]) -> None:
    numbers = itertools.count()
    check_journal(lambda limits: make(tmp_path / f"j{next(numbers)}", limits=limits))


def _broken_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    good = MemoryStore.apply
    monkeypatch.setattr(
        MemoryStore,
        "apply",
        lambda self, o: (
            sum(self._forget(r) for r in list(self._taken.values())) if isinstance(o, op.Settle) else good(self, o)
        ),
    )


def _broken_requeue(monkeypatch: pytest.MonkeyPatch) -> None:
    good = rules._NEXT_SENT[op.Requeue]
    monkeypatch.setitem(rules._NEXT_SENT, op.Requeue, lambda row, o: replace(good(row, o), expires_ms=row.expires_ms))


def _broken_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "judged", lambda old, digest: rules.Verdict(rules.Kind.ATTACH, old))


def _broken_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "back", lambda self: None)


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (_broken_settle, "unfinished work must not be settled"),
        (_broken_requeue, "fresh ttl"),
        (_broken_digest, "another digest must be a CONFLICT"),
        (_broken_rollback, "nothing of a refused commit must be stored"),
    ],
)
def test_the_kit_catches(harm: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harm(monkeypatch)
    with pytest.raises(AssertionError, match=sentence):
        check_journal(memory)
