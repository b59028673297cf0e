"""The contract kit of the journal: a published function that proves a stranger's journal honest. It needs no pytest.

Knows: what the port promises. Refuses to know: any implementation, disks, crashes (those are tests of their own).
Called by: our tests and anybody who writes a journal.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from hermes_peer.errors import JournalError, UsageError
from hermes_peer.journal import operations as op
from hermes_peer.journal.base import Cursor, Journal
from hermes_peer.journal.values import Contract, Kind, Limits, Sent, SentState, Taken, TakenState, Verdict

ONE, TWO = b"\x01" * 32, b"\x02" * 32
Make = Callable[[Limits], Journal]
WAIT_S = 30.0


def a_sent(id: str = "m-1", peer: bytes = ONE, **more: Any) -> Sent:
    """Work to submit, with plain values."""
    row = Sent(
        message_id=id,
        peer=peer,
        target="worker",
        method="build",
        envelope=b"{}",
        payload=b"[1]",
        digest=b"d" * 32,
        created_ms=1_000,
        expires_ms=61_000,
        next_try_ms=1_000,
    )
    return replace(row, **more)


def a_taken(id: str = "m-1", principal: bytes = ONE, **more: Any) -> Taken:
    """Work to take, with plain values."""
    row = Taken(
        principal=principal,
        message_id=id,
        method="build",
        contract=Contract.NONE,
        envelope=b"{}",
        payload=b"[1]",
        digest=b"d" * 32,
        taken_ms=1_000,
        expires_ms=61_000,
    )
    return replace(row, **more)


def check_journal(make: Make) -> None:
    """Asserts the contract of `journal.base.Journal`. `make(limits)` gives a new, empty one at each call."""
    for check in (_sent, _taken, _streams, _units, _bounds, _own_sql):
        journal = make(Limits(ballast=0))
        try:
            check(journal)
        finally:
            journal.close()
            journal.close()
        _refuses(JournalError, lambda: do(journal, op.Discard("m-1")), "commit after close")  # noqa: B023
    _limits(make)
    asyncio.run(_interactive(make(Limits(ballast=0))))


def do(journal: Journal, *operations: op.Operation) -> tuple[Any, ...]:
    """Commits and waits."""
    return journal.commit(*operations).result(WAIT_S)


def _sent(journal: Journal) -> None:
    assert journal.sent("m-1").result(WAIT_S) is None, "a new journal must be empty"
    first = do(journal, op.Submit(a_sent()))[0]
    assert first.kind is Kind.NEW, "a first submit must be NEW"
    row = journal.sent("m-1").result(WAIT_S)
    assert row == first.row and row == a_sent(seq=first.row.seq), "what was submitted must come back, value for value"
    again = do(journal, op.Submit(a_sent(payload=b"[1]", attempts=0)))[0]
    assert again == Verdict(Kind.ATTACH, row), "the same id with the same digest must ATTACH to what is stored"
    other = do(journal, op.Submit(a_sent(digest=b"e" * 32)))[0]
    assert other.kind is Kind.CONFLICT, "the same id with another digest must be a CONFLICT"
    assert journal.sent("m-1").result(WAIT_S) == row, "a conflict must change nothing"

    do(journal, op.Submit(a_sent("m-2", TWO, next_try_ms=500)), op.Submit(a_sent("m-3")))
    assert do(journal, op.Attempt("m-1", 3_000)) == (1,), "an attempt must be counted"
    assert do(journal, op.Postpone("m-1", 2_500)) == (1,), "postponing must count no attempt"
    assert [r.next_try_ms for r in journal.find_sent().result(WAIT_S)][:2] == [2_500, 500], "the next look is kept"
    assert [r.message_id for r in journal.find_sent(peer=TWO).result(WAIT_S)] == ["m-2"], "find_sent(peer=)"
    do(journal, op.Move("m-2", ONE))
    do(journal, op.MarkAccepted("m-2", 9_000), op.MarkConsumed("m-2", 7), op.MarkConsumed("m-2", 5))
    row = journal.sent("m-2").result(WAIT_S)
    assert row and (row.state, row.offset, row.peer) == (SentState.ACCEPTED, 7, ONE), "accepted, offset never back"
    _refuses(UsageError, lambda: do(journal, op.Move("m-2", TWO)), "moving what was accepted")
    _refuses(UsageError, lambda: do(journal, op.Discard("m-2")), "discarding what is open")
    _refuses(UsageError, lambda: do(journal, op.Attempt("absent", 1)), "an attempt of an unknown id")
    do(journal, op.MarkDone("m-2", b"out", keep_until_ms=10_000))
    row = journal.sent("m-2").result(WAIT_S)
    assert row and (row.state, row.outcome) == (SentState.DONE, b"out"), "the outcome must be kept"
    _refuses(UsageError, lambda: do(journal, op.MarkDone("m-2", b"other")), "a second outcome")

    do(journal, op.MarkDead("m-1", "5 attempts failed"))
    dead = journal.find_sent((SentState.DEAD,)).result(WAIT_S)
    assert [(r.message_id, r.why) for r in dead] == [("m-1", "5 attempts failed")], "dead letters must be listed"
    _refuses(UsageError, lambda: do(journal, op.Attempt("m-1", 1)), "an attempt of a dead letter")
    do(journal, op.Requeue("m-1", 70_000, "operator", 130_000))
    row = journal.sent("m-1").result(WAIT_S)
    assert row is not None and row.state is SentState.WAITING and row.attempts == 0, "requeued: WAITING, attempts 0"
    assert (row.expires_ms, row.requeued_ms, row.requeued_by) == (130_000, 70_000, "operator"), "fresh ttl, who, when"
    assert (row.why, row.next_try_ms) == ("", 70_000), "requeued work is due at once, and not dead of anything"
    do(journal, op.MarkDead("m-1", "expired"))
    do(journal, op.MarkDone("m-1", b"late"))
    assert do(journal, op.Discard("m-1")) == (1,) and do(journal, op.Discard("m-1")) == (0,), "discard forgets once"
    assert do(journal, op.Expire(9_999)) == (0,) and do(journal, op.Expire(10_000)) == (1,), "expire by keep_until_ms"
    assert [r.message_id for r in journal.find_sent().result(WAIT_S)] == ["m-3"], "and nothing else must be gone"
    assert journal.gauges().sent[SentState.WAITING] == 1, "gauges must count rows by state"


def _taken(journal: Journal) -> None:
    first = do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"))
    assert first[0].kind is Kind.NEW and first[1] == 1, "Take and Run in one commit"
    row = journal.taken(ONE, "m-1").result(WAIT_S)
    assert row == a_taken(seq=first[0].row.seq, state=TakenState.RUNNING, attempts=1), "value for value"
    assert do(journal, op.Take(a_taken()), op.Run(ONE, "m-1")) == (Verdict(Kind.ATTACH, row), None), (
        "behind a Take that is not NEW nothing must be done"
    )
    assert do(journal, op.Take(a_taken(digest=b"e")))[0].kind is Kind.CONFLICT, "another digest is a CONFLICT"
    assert do(journal, op.Take(a_taken("m-1", TWO)))[0].kind is Kind.NEW, "an id belongs to its principal (attack 48)"

    keyed = a_taken("m-2", idempotency_key="task-1/step-2")
    assert do(journal, op.Take(keyed))[0].kind is Kind.NEW
    same = do(journal, op.Take(replace(keyed, message_id="m-9")))[0]
    assert same.kind is Kind.ATTACH and same.row.message_id == "m-2", "the same key must attach to the first id"
    assert do(journal, op.Take(replace(keyed, message_id="m-9", digest=b"e")))[0].kind is Kind.CONFLICT
    for free in (replace(keyed, principal=TWO), replace(keyed, message_id="m-3", method="test")):
        assert do(journal, op.Take(free))[0].kind is Kind.NEW, "a key is scoped to principal and method"
    assert do(journal, op.Take(a_taken("m-4")), op.Take(a_taken("m-5")))[1].kind is Kind.NEW, "empty keys are no keys"

    order = [r.message_id for r in journal.find_taken(principal=ONE).result(WAIT_S)]
    assert order == ["m-1", "m-2", "m-3", "m-4", "m-5"], "rows must come in the order of arrival"
    page = journal.find_taken(principal=ONE, after=row.seq, limit=2).result(WAIT_S)
    assert [r.message_id for r in page] == ["m-2", "m-3"], "after= and limit= must page"
    assert [r.message_id for r in journal.find_taken((TakenState.RUNNING,)).result(WAIT_S)] == ["m-1"]

    assert do(journal, op.Settle(ONE, ("m-1", "m-2", "absent"))) == (0,), "unfinished work must not be settled away"
    assert do(journal, op.Run(ONE, "m-1")) == (2,), "running again counts"
    do(journal, op.Finish(ONE, "m-1", b"out", 10_000), op.Finish(ONE, "m-2", b"expired", 20_000))
    row = journal.taken(ONE, "m-1").result(WAIT_S)
    assert row and (row.state, row.outcome, row.keep_until_ms) == (TakenState.DONE, b"out", 10_000)
    stored = do(journal, op.Take(a_taken()))[0]
    assert stored.kind is Kind.ATTACH and stored.row.outcome == b"out", "a late duplicate gets the stored outcome"
    _refuses(UsageError, lambda: do(journal, op.Run(ONE, "m-1")), "running what is done")
    _refuses(UsageError, lambda: do(journal, op.Finish(ONE, "m-1", b"x", 1)), "a second outcome")
    assert do(journal, op.Settle(TWO, ("m-1",))) == (0,), "another principal must not settle it"
    assert do(journal, op.Settle(ONE, ("m-1", "m-1"))) == (1,), "settle forgets"
    assert do(journal, op.Expire(20_000)) == (1,) and journal.taken(ONE, "m-2").result(WAIT_S) is None
    assert do(journal, op.Take(replace(keyed, message_id="m-9")))[0].kind is Kind.NEW, "a forgotten key is free"


def _streams(journal: Journal) -> None:
    assert journal.items(ONE, "m-1", 0).result(WAIT_S) is None, "no work, no stream: None"
    do(journal, op.Take(a_taken()))
    _refuses(UsageError, lambda: do(journal, op.Append(ONE, "m-1", 0, (b"a",))), "items of work that does not run")
    do(journal, op.Run(ONE, "m-1"))
    assert do(journal, op.Append(ONE, "m-1", 0, (b"a", b"b"))) == (2,), "append answers the next index"
    _refuses(UsageError, lambda: do(journal, op.Append(ONE, "m-1", 3, (b"d",))), "a gap in the log")
    _refuses(UsageError, lambda: do(journal, op.Append(ONE, "m-1", 1, (b"b",))), "an item twice")
    assert do(journal, op.Append(ONE, "m-1", 2, (b"", b"d")), op.Append(ONE, "m-1", 4, (b"e",))) == (4, 5)

    def read(offset: int, limit: int = 1000) -> tuple[Any, ...]:
        found = journal.items(ONE, "m-1", offset, limit).result(WAIT_S)
        assert found is not None
        return found.first, found.items, found.next_item

    assert read(0) == (0, (b"a", b"b", b"", b"d", b"e"), 5), "all items, in order"
    assert read(1, 2) == (1, (b"b", b""), 5), "offset and limit"
    assert read(5) == (5, (), 5), "nothing yet at the end"
    do(journal, op.Trim(ONE, "m-1", 3), op.Trim(ONE, "m-1", 1))
    assert read(1) == (3, (b"d", b"e"), 5), "what was trimmed is a gap, never a splice"
    do(journal, op.Finish(ONE, "m-1", b"out", 10_000))
    _refuses(UsageError, lambda: do(journal, op.Append(ONE, "m-1", 5, (b"f",))), "items after the end")
    assert read(3) == (3, (b"d", b"e"), 5), "the log must be kept until it is settled"
    do(journal, op.Settle(ONE, ("m-1",)))
    assert journal.items(ONE, "m-1", 0).result(WAIT_S) is None, "settled with its work"
    do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"), op.Append(ONE, "m-1", 0, (b"new",)))
    assert read(0) == (0, (b"new",), 1), "a new work must not see an old one's items"


def _units(journal: Journal) -> None:
    do(journal, op.Take(a_taken()), op.Submit(a_sent()))
    before = journal.gauges()
    _refuses(
        UsageError,
        lambda: do(journal, op.Run(ONE, "m-1"), op.Submit(a_sent("m-2")), op.MarkDead("absent", "x")),
        "a commit of which one part is forbidden",
    )
    row = journal.taken(ONE, "m-1").result(WAIT_S)
    assert row and row.state is TakenState.ACCEPTED, "nothing of a refused commit must be stored"
    assert journal.sent("m-2").result(WAIT_S) is None and journal.gauges().sent == before.sent
    promises = [journal.commit(op.Submit(a_sent(f"n-{i}"))) for i in range(200)]
    promises.insert(100, journal.commit(op.MarkDead("absent", "x")))
    good = [p for p in promises if p.exception(WAIT_S) is None]
    assert len(good) == 200, "a forbidden commit must fail alone"
    assert journal.gauges().sent[SentState.WAITING] == 201
    assert [r.message_id for r in journal.find_sent(after=row.seq, limit=500).result(WAIT_S)][1:] == [
        f"n-{i}" for i in range(200)
    ], "commits of one thread must be stored in order"
    assert do(journal) == (), "an empty commit"


def _bounds(journal: Journal) -> None:
    big = b"x" * ((1 << 20) + 1)
    assert do(journal, op.Submit(a_sent(payload=big)))[0].kind is Kind.REFUSED, "a body over 1 MiB"
    verdict = do(journal, op.Take(a_taken(payload=big)), op.Run(ONE, "m-1"))
    assert verdict[0].kind is Kind.REFUSED and verdict[0].why and verdict[1] is None
    do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"))
    _refuses(UsageError, lambda: do(journal, op.Finish(ONE, "m-1", big, 1)), "an outcome over 1 MiB")
    _refuses(UsageError, lambda: do(journal, op.Append(ONE, "m-1", 0, (big,))), "an item over 1 MiB")
    do(journal, op.Append(ONE, "m-1", 0, tuple(b"x" * 300_000 for _ in range(8))))
    found = journal.items(ONE, "m-1", 1).result(WAIT_S)
    assert found and found.first == 1 and 1 <= len(found.items) < 7, "an answer of items must be about 1 MiB"


def _limits(make: Make) -> None:
    journal = make(Limits(ballast=0, rows_per_peer=3))
    for i in range(3):
        do(journal, op.Take(a_taken(f"m-{i}")), op.Submit(a_sent(f"m-{i}")))
    refused = do(journal, op.Take(a_taken("m-3")))[0]
    assert refused.kind is Kind.REFUSED and refused.why, "more rows of one principal must be REFUSED (attack 47)"
    assert do(journal, op.Submit(a_sent("m-3")))[0].kind is Kind.REFUSED
    assert do(journal, op.Take(a_taken("m-3", TWO)))[0].kind is Kind.NEW, "and another principal is not touched"
    assert do(journal, op.Take(a_taken("m-1")))[0].kind is Kind.ATTACH, "a duplicate is no new row"
    do(journal, op.Finish(ONE, "m-0", b"", 1), op.Settle(ONE, ("m-0",)), op.MarkDone("m-0", b""))
    assert do(journal, op.Take(a_taken("m-3")))[0].kind is Kind.NEW, "what is settled makes room"
    assert do(journal, op.Submit(a_sent("m-3")))[0].kind is Kind.NEW, "what is done makes room"
    journal.close()

    journal = make(Limits(ballast=0, size=4 << 20))
    taken = 0
    for i in range(200):
        error = journal.commit(op.Take(a_taken(f"m-{i}", payload=b"x" * 60_000))).exception(WAIT_S)
        if error is not None:
            break
        taken += 1
    assert 10 < taken < 80 and isinstance(error, JournalError) and "disk full" in str(error), (taken, error)
    _refuses(
        JournalError, lambda: do(journal, op.Submit(a_sent("n", payload=b"x" * 60_000))), "new work on a full disk"
    )
    for i in range(taken):
        do(journal, op.Run(ONE, f"m-{i}"), op.Finish(ONE, f"m-{i}", b"x" * 15_000, 9_000))
    assert do(journal, op.Settle(ONE, tuple(f"m-{i}" for i in range(taken)))) == (taken,)
    assert do(journal, op.Take(a_taken("again")))[0].kind is Kind.NEW, "once there is room, work is taken again"
    journal.close()


def _own_sql(journal: Journal) -> None:
    def create(sql: Cursor) -> str:
        sql.execute("CREATE TABLE effects (id TEXT PRIMARY KEY, n INTEGER)")
        return "made"

    assert journal.transaction(create).result(WAIT_S) == "made", "transaction() must give what fn gives"
    do(journal, op.Take(a_taken()), op.Run(ONE, "m-1"))

    def effect(sql: Cursor) -> int:
        sql.execute("INSERT INTO effects VALUES (?, ?)", ("m-1", 1))
        return len(sql.execute("SELECT * FROM effects"))

    done = journal.transaction(effect, lambda n: [op.Finish(ONE, "m-1", b"%d" % n, 9)])
    assert done.result(WAIT_S) == 1
    row = journal.taken(ONE, "m-1").result(WAIT_S)
    assert row and (row.state, row.outcome) == (TakenState.DONE, b"1"), "effect and outcome in one commit"

    def count() -> int:
        return int(journal.transaction(lambda sql: sql.execute("SELECT count(*) FROM effects")[0][0]).result(WAIT_S))

    def boom(sql: Cursor) -> None:
        sql.execute("INSERT INTO effects VALUES ('x', 1)")
        raise ZeroDivisionError

    _refuses(ZeroDivisionError, lambda: journal.transaction(boom).result(WAIT_S), "a handler that raises")
    assert count() == 1, "nothing of a handler that raised must be stored"

    def put(sql: Cursor) -> None:
        sql.execute("INSERT INTO effects VALUES ('y', 1)")

    refused = journal.transaction(put, lambda _: [op.Finish(ONE, "m-1", b"again", 9)])
    assert isinstance(refused.exception(WAIT_S), UsageError) and count() == 1, "a refused outcome takes the effect back"

    def twice(sql: Cursor) -> str:
        try:
            sql.execute("INSERT INTO effects VALUES ('m-1', 2)")
        except sqlite3.IntegrityError:
            return "known"
        return "new"

    assert journal.transaction(twice).result(WAIT_S) == "known", "a handler may handle its constraint errors"
    for sql in ("COMMIT", "ROLLBACK", "BEGIN", "SAVEPOINT x", "PRAGMA synchronous=OFF", "ATTACH ':memory:' AS x"):
        _refuses(sqlite3.DatabaseError, lambda: journal.transaction(lambda c: c.execute(sql)).result(WAIT_S), sql)  # noqa: B023
    do(journal, op.Submit(a_sent()))
    lost = journal.transaction(
        lambda c: c.execute("INSERT OR ROLLBACK INTO effects VALUES ('m-1', 3)"), lambda _: [op.MarkDone("m-1", b"")]
    )
    beside = journal.commit(op.Submit(a_sent("beside")))
    assert lost.exception(WAIT_S) is not None and count() == 1, "a handler that rolls back fails alone"
    assert kind(beside.result(WAIT_S)) is Kind.NEW
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
    _refuses(
        JournalError,
        lambda: journal.transaction(lambda c: c.execute(slow), limit_s=0.05).result(WAIT_S),
        "SQL beyond its time limit",
    )
    assert count() == 1


async def _interactive(journal: Journal) -> None:
    try:
        await journal.commit(op.Take(a_taken()), op.Run(ONE, "m-1"))
        one = await journal.begin()
        await one.execute("CREATE TABLE effects (id TEXT)")
        await one.execute("INSERT INTO effects VALUES (?)", ("m-1",))
        other = journal.commit(op.Submit(a_sent()))
        assert await one.execute("SELECT count(*) FROM effects") == [(1,)]
        assert not other.done(), "an interactive transaction must hold the writer"
        answers = await one.commit(op.Finish(ONE, "m-1", b"out", 9))
        assert len(answers) == 1 and kind(await other) is Kind.NEW
        row = await journal.taken(ONE, "m-1")
        assert row and row.state is TakenState.DONE, "SQL and outcome in one commit"
        await _refuses_async(JournalError, one.execute("SELECT 1"), "a statement after the end")

        two = await journal.begin()
        await two.execute("INSERT INTO effects VALUES ('x')")
        await two.rollback()
        await two.rollback()
        three = await journal.begin()
        assert await three.execute("SELECT count(*) FROM effects") == [(1,)], "rolled back"
        await three.execute("INSERT INTO effects VALUES ('y')")
        await _refuses_async(UsageError, three.commit(op.MarkDead("absent", "x")), "a forbidden operation")
        four = await journal.begin(limit_s=0.05)
        await four.execute("INSERT INTO effects VALUES ('z')")
        late = journal.commit(op.Submit(a_sent("late")))
        assert kind(await late) is Kind.NEW, "after the time limit the writer must be free again"
        await _refuses_async(JournalError, four.commit(), "a commit after the time limit")
        five = await journal.begin()
        assert await five.execute("SELECT id FROM effects") == [("m-1",)], "nothing but the one commit is stored"
        waiting = asyncio.ensure_future(journal.begin())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.sleep(0)
        await five.rollback()
        await asyncio.wait_for(_wait(journal.commit(op.Discard("absent"))), 3)  # nobody holds it for who went away
    finally:
        await asyncio.to_thread(journal.close)


def kind(answers: tuple[Any, ...]) -> Any:
    return answers[0].kind


async def _wait(promise: Any) -> None:
    await promise


def _refuses(kind: type[BaseException], call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{what} must raise {kind.__name__}")


async def _refuses_async(kind: type[BaseException], call: Any, what: str) -> None:
    try:
        await call
    except kind:
        return
    raise AssertionError(f"{what} must raise {kind.__name__}")
