"""The writer: group commit, failing alone, cancelled callers, a stop that lasts."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal import writer
from hermes_peer.journal.values import Kind, SentState

from .rig import ONE, a_sent, a_taken, do, op


class Gate:
    """Holds the writer at a failpoint, so that a batch gathers behind it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.armed = False
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, name: str) -> None:
        if self.armed and name == self.name:
            self.armed = False
            self.reached.set()
            assert self.go.wait(10)

    def hold(self, journal: Any) -> None:
        self.armed = True
        journal.commit(op.Submit(a_sent("gate")))
        assert self.reached.wait(10)


def test_what_is_queued_shares_a_commit(make: Any) -> None:
    gate = Gate("before commit")
    journal = make(failpoint=gate)
    gate.hold(journal)
    before = journal.gauges().commits
    promises = [journal.commit(op.Submit(a_sent(f"m-{i}"))) for i in range(100)]
    assert journal.gauges().queue == 100
    gate.go.set()
    assert all(promise.result(5)[0].kind is Kind.NEW for promise in promises)
    assert journal.gauges().commits == before + 2, "one for the gate, one for the hundred"
    assert journal.gauges().units == 101


def test_no_answer_before_the_commit(make: Any) -> None:
    gate = Gate("before commit")
    journal = make(failpoint=gate)
    gate.hold(journal)
    promise = journal.commit(op.Submit(a_sent()))
    read = journal.sent("gate")
    time.sleep(0.05)
    assert not promise.done() and not read.done()
    gate.go.set()
    assert promise.result(5) and read.result(5)


def test_an_idle_writer_does_not_wait_for_company(make: Any) -> None:
    journal = make()
    began = time.perf_counter()
    for i in range(20):
        do(journal, op.Submit(a_sent(f"m-{i}")))
    assert journal.gauges().commits == 20
    assert time.perf_counter() - began < 5


def test_what_is_patient_shares_the_commit_of_the_next(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PATIENCE_S", 30.0)
    journal = make()
    patient = [journal.commit(op.Submit(a_sent(f"m-{i}")), patient=True) for i in range(3)]
    while journal.gauges().queue:  # until the writer has them in hand
        time.sleep(0.001)
    assert not any(promise.done() for promise in patient)
    journal.commit(op.Submit(a_sent("hurry"))).result(5)
    assert all(promise.done() for promise in patient)
    assert journal.gauges().commits == 1 and journal.gauges().units == 4


def test_a_question_or_the_end_finds_what_is_patient_stored(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PATIENCE_S", 30.0)
    journal = make()
    journal.commit(op.Submit(a_sent("m-0")), patient=True)
    assert journal.sent("m-0").result(5).message_id == "m-0"
    last = journal.commit(op.Submit(a_sent("m-1")), patient=True)
    journal.close()
    assert last.result(5)[0].kind is Kind.NEW


def test_what_is_patient_and_alone_is_stored_too(make: Any) -> None:
    journal = make()
    assert journal.commit(op.Submit(a_sent("m-0")), patient=True).result(5)[0].kind is Kind.NEW


async def test_a_cancelled_caller_loses_and_doubles_nothing(make: Any) -> None:
    gate = Gate("before commit")
    journal = make(failpoint=gate)
    gate.hold(journal)

    async def submit(i: int) -> Any:
        return await journal.commit(op.Submit(a_sent(f"m-{i}")), op.Attempt(f"m-{i}", 5))

    tasks = [asyncio.ensure_future(submit(i)) for i in range(20)]
    await asyncio.sleep(0.01)
    for task in tasks[::2]:
        task.cancel()
    gate.go.set()
    for i, task in enumerate(tasks):
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled() == (i % 2 == 0)
    rows = await journal.find_sent()
    assert [(row.message_id, row.attempts) for row in rows[1:]] == [(f"m-{i}", 1) for i in range(20)]
    await asyncio.to_thread(journal.close)


def test_a_handler_that_rolls_back_takes_nobody_with_it(make: Any) -> None:
    """INSERT OR ROLLBACK ends the transaction of the whole batch: the others are carried out anew, the handler not."""
    gate = Gate("before commit")
    journal = make(failpoint=gate)
    journal.transaction(lambda sql: sql.execute("CREATE TABLE t (id PRIMARY KEY)")).result(5)
    journal.transaction(lambda sql: sql.execute("INSERT INTO t VALUES (1)")).result(5)
    gate.hold(journal)
    runs: list[str] = []
    before = journal.commit(op.Submit(a_sent("before")))

    def bad(sql: Any) -> None:
        runs.append("bad")
        with contextlib.suppress(sqlite3.IntegrityError):
            sql.execute("INSERT OR ROLLBACK INTO t VALUES (1)")
        with contextlib.suppress(JournalError):
            sql.execute("INSERT INTO t VALUES (2)")  # without the guard this would be a commit of its own

    lost = journal.transaction(bad)
    after = journal.commit(op.Submit(a_sent("after")))
    gate.go.set()
    assert "ended the transaction" in str(lost.exception(5)) and runs == ["bad"]
    assert before.result(5)[0].kind is Kind.NEW and after.result(5)[0].kind is Kind.NEW
    assert journal.transaction(lambda sql: sql.execute("SELECT id FROM t")).result(5) == [(1,)]
    assert [r.message_id for r in journal.find_sent().result(5)] == ["gate", "before", "after"]


class Failing(sqlite3.Connection):
    """Says what a test wants at COMMIT."""

    code = 0

    def execute(self, sql: str, *parameters: Any) -> Any:
        if sql == "COMMIT" and Failing.code:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = Failing.code
            raise error
        return super().execute(sql, *parameters)


@pytest.fixture
def failing(make: Any) -> Any:
    Failing.code = 0
    yield make(
        connect=lambda path: sqlite3.connect(path, factory=Failing, isolation_level=None, check_same_thread=False)
    )
    Failing.code = 0


@pytest.mark.parametrize("code", [10, 1034, 11, 7, 8, 5, 14])
def test_any_error_at_commit_stops_for_good(failing: Any, code: int) -> None:
    do(failing, op.Submit(a_sent("before")))
    Failing.code = code
    errors = [promise.exception(5) for promise in [failing.commit(op.Submit(a_sent(f"m-{i}"))) for i in range(3)]]
    assert all("stopped because the disk failed it (disk I/O error)" in str(error) for error in errors)
    assert errors[0].ran == "unknown", "it may be on the disk"
    Failing.code = 0
    with pytest.raises(JournalError, match="Restart the process"):
        do(failing, op.Submit(a_sent("later")))
    with pytest.raises(JournalError, match="stopped"):
        failing.find_sent().result(5)
    assert failing.gauges().stopped


def test_a_stopped_journal_is_whole_after_a_restart(failing: Any, make: Any) -> None:
    do(failing, op.Submit(a_sent("before")))
    Failing.code = 10
    assert isinstance(failing.commit(op.Submit(a_sent("lost"))).exception(5), JournalError)
    failing.close()
    Failing.code = 0
    again = make()
    assert [row.message_id for row in again.find_sent().result(5)] == ["before"]


def test_an_error_of_ours_does_not_leave_callers_waiting(make: Any) -> None:
    def boom(name: str) -> None:
        if name == "before answer":
            raise RuntimeError("a bug")

    journal = make(failpoint=boom)
    with pytest.raises(JournalError, match="a bug"):
        do(journal, op.Submit(a_sent()))
    with pytest.raises(JournalError, match="stopped"):
        journal.sent("m-1").result(5)


def test_a_wrong_value_fails_alone(make: Any) -> None:
    journal = make()
    bad: list[Any] = [
        op.Attempt(None, 1),
        op.Attempt("m-1", 1 << 70),
        "nonsense",
        op.Submit(a_sent("m-2", payload="text")),
    ]
    do(journal, op.Submit(a_sent()))
    for each in bad:
        assert journal.commit(each).exception(5) is not None
    assert journal.gauges().stopped == "" and journal.gauges().sent[SentState.WAITING] == 1


def test_close_carries_out_what_was_handed_in(make: Any) -> None:
    gate = Gate("before commit")
    journal = make(failpoint=gate)
    gate.hold(journal)
    promises = [journal.commit(op.Submit(a_sent(f"m-{i}"))) for i in range(10)]
    closing = threading.Thread(target=journal.close)
    closing.start()
    gate.go.set()
    closing.join(5)
    assert all(promise.done() and promise.exception() is None for promise in promises)
    assert "closed" in str(journal.commit(op.Discard("m-1")).exception(5))
    assert len(make().find_sent().result(5)) == 11


def test_an_unfinished_take_and_run_is_one_commit(make: Any) -> None:
    journal = make()
    before = journal.gauges().commits
    do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"))
    assert journal.gauges().commits == before + 1
