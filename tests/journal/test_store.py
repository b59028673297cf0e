"""Errors told apart: the caller's own, no room, and those that stop the journal."""

from __future__ import annotations

import sqlite3

import pytest

from hermes_peer.errors import JournalError, UsageError
from hermes_peer.journal.store import Fault, fault, picked


def error(code: int) -> sqlite3.Error:
    made = sqlite3.OperationalError("x")
    made.sqlite_errorcode = code
    return made


@pytest.mark.parametrize("code", range(1, 29))
def test_every_primary_code(code: int) -> None:
    ours = {13: Fault.FULL, 19: Fault.UNIT}.get(code, Fault.FATAL)
    assert fault(error(code)) is ours
    assert fault(error(code | 5 << 8)) is ours, "an extended code counts as its primary one"
    if code in (10, 11, 26, 7):  # I/O, corrupt, not a database, no memory: fatal also under a handler
        assert fault(error(code), foreign=True) is Fault.FATAL
    if code in (1, 9, 19, 23):  # SQL error, interrupt, constraint, not authorized: the handler's own
        assert fault(error(code), foreign=True) is Fault.UNIT


def test_what_is_no_error_of_sqlite() -> None:
    for own in (UsageError("x"), JournalError("x"), TypeError(), sqlite3.ProgrammingError("x"), OverflowError()):
        assert fault(own) is Fault.UNIT
    assert fault(OSError(5, "x")) is Fault.FATAL and fault(KeyboardInterrupt()) is Fault.FATAL
    assert fault(OSError(5, "x"), foreign=True) is Fault.UNIT, "a handler's own file is not our disk"


def test_states_are_spelled_as_the_indexes_are() -> None:
    assert [picked([4]), picked([2, 1]), picked([])] == ["state = 4", "state IN (1,2)", ""]
