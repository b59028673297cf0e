"""Both journals against a naive model, by Hypothesis: the same answers, the same rows, across restarts."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec.structs import asdict

from hermes_peer.errors import UsageError
from hermes_peer.journal.memory import MemoryJournal
from hermes_peer.journal.values import Limits, Sent, SentState, Taken, TakenState, Verdict

from .rig import ONE, TWO, a_sent, a_taken, op, opened

IDS = st.sampled_from(["a", "b", "c"])
WHO = st.sampled_from([ONE, TWO])
DIGESTS = st.sampled_from([b"d1", b"d2"])
KEYS = st.sampled_from(["", "", "k1"])
BYTES = st.binary(max_size=6)
TIMES = st.integers(1, 9)
SIDES = {
    "open": (SentState.WAITING, SentState.ACCEPTED),
    "over": (SentState.DONE, SentState.DEAD),
}


class Model:
    """The contract in one page. Rows are plain dicts; `answer` is what commit answers, or "no"."""

    def __init__(self) -> None:
        self.sent: dict[str, dict[str, Any]] = {}
        self.taken: dict[tuple[bytes, str], dict[str, Any]] = {}
        self.log: dict[tuple[bytes, str], list[bytes]] = {}

    def commit(self, operations: list[Any]) -> list[Any] | str:
        saved = (
            [{k: dict(v) for k, v in t.items()} for t in (self.sent, self.taken)],
            {k: [*v] for k, v in self.log.items()},
        )
        answers: list[Any] = []
        for o in operations:
            answer = self.one(o)
            if answer == "no":
                (self.sent, self.taken), self.log = saved  # type: ignore[assignment]
                return "no"
            answers.append(answer)
            if isinstance(answer, str) and answer != "new":
                break
        return answers + [None] * (len(operations) - len(answers))

    def new(self, table: dict[Any, Any], key: Any, value: Any, most: int) -> str:
        row = {k: v for k, v in asdict(value).items() if k != "seq"}
        old = table.get(key)
        if old is None and row.get("idempotency_key"):
            same = ("principal", "method", "idempotency_key")
            old = next((r for r in table.values() if all(r[c] == row[c] for c in same)), None)
        if old is not None:
            return "attach" if old["digest"] == row["digest"] else "conflict"
        if most >= 2:
            return "refused"
        table[key] = row
        return "new"

    def one(self, o: Any) -> Any:
        kind = type(o)
        if kind is op.Submit:
            peers = [r for r in self.sent.values() if r["peer"] == o.sent.peer and r["state"] != SentState.DONE]
            return self.new(self.sent, o.sent.message_id, o.sent, len(peers))
        if kind is op.Take:
            mine = [r for r in self.taken.values() if r["principal"] == o.taken.principal]
            return self.new(self.taken, (o.taken.principal, o.taken.message_id), o.taken, len(mine))
        if kind is op.Settle:
            ids = [(o.principal, id) for id in o.message_ids]
            gone = [i for i in dict.fromkeys(ids) if i in self.taken and self.taken[i]["state"] == TakenState.DONE]
            return sum(self.forget(i) for i in gone)
        if kind is op.Expire:
            old = [
                i for i, r in self.sent.items() if r["state"] in SIDES["over"] and 0 < r["keep_until_ms"] <= o.now_ms
            ]
            for i in old:
                del self.sent[i]
            done = [i for i, r in self.taken.items() if r["state"] == 3 and 0 < r["keep_until_ms"] <= o.now_ms]
            return len(old) + sum(self.forget(i) for i in done)
        if kind in (op.Run, op.Finish, op.Append, op.Trim):
            return self.work(
                o, self.taken.get((o.principal, o.message_id)), self.log.setdefault((o.principal, o.message_id), [])
            )
        return self.message(o, self.sent.get(o.message_id))

    def forget(self, id: Any) -> int:
        del self.taken[id]
        self.log.pop(id, None)
        return 1

    def work(self, o: Any, row: Any, log: list[bytes]) -> Any:
        if row is None:
            return "no"
        if isinstance(o, op.Trim):
            row["first_item"] = max(row["first_item"], min(o.below, len(log)))
            return row["attempts"]
        if row["state"] == TakenState.DONE:
            return "no"
        if isinstance(o, op.Append):
            if row["state"] != TakenState.RUNNING or o.first != len(log):
                return "no"
            log += o.items
            row["next_item"] = len(log)
            return len(log)
        if isinstance(o, op.Run):
            row["state"], row["attempts"] = TakenState.RUNNING, row["attempts"] + 1
        else:
            row["state"], row["outcome"], row["keep_until_ms"] = TakenState.DONE, o.outcome, o.keep_until_ms
        return row["attempts"]

    def message(self, o: Any, row: Any) -> Any:
        if row is None:
            return 0 if isinstance(o, op.Discard) else "no"
        state, kind = row["state"], type(o)
        if kind is op.Discard:
            if state in SIDES["open"]:
                return "no"
            del self.sent[o.message_id]
            return 1
        if kind is op.Requeue:
            if state != SentState.DEAD:
                return "no"
            row.update(state=SentState.WAITING, attempts=0, why="", keep_until_ms=0, next_try_ms=o.now_ms)
            row.update(expires_ms=o.expires_ms, requeued_ms=o.now_ms, requeued_by=o.by)
        elif kind is op.MarkDone:
            if state == SentState.DONE:
                return "no"
            row.update(state=SentState.DONE, outcome=o.outcome, why="", keep_until_ms=o.keep_until_ms)
        elif kind is op.MarkConsumed:
            if state == SentState.DEAD:
                return "no"
            row["offset"] = max(row["offset"], o.offset)
        elif state not in SIDES["open"] or (kind is op.Move and state != SentState.WAITING):
            return "no"
        elif kind is op.Attempt:
            row.update(attempts=row["attempts"] + 1, next_try_ms=o.next_try_ms)
        elif kind is op.Postpone:
            row["next_try_ms"] = o.next_try_ms
        elif kind is op.Move:
            row["peer"] = o.peer
        elif kind is op.MarkAccepted:
            row.update(state=SentState.ACCEPTED, next_try_ms=o.next_try_ms)
        else:
            row.update(state=SentState.DEAD, why=o.why, keep_until_ms=o.keep_until_ms)
        return row["attempts"]


OPERATIONS = st.one_of(
    st.builds(lambda i, p, d: op.Submit(a_sent(i, p, digest=d)), IDS, WHO, DIGESTS),
    st.builds(op.Attempt, IDS, TIMES),
    st.builds(op.Postpone, IDS, TIMES),
    st.builds(op.Move, IDS, WHO),
    st.builds(op.MarkAccepted, IDS, TIMES),
    st.builds(op.MarkConsumed, IDS, TIMES),
    st.builds(op.MarkDone, IDS, BYTES, TIMES),
    st.builds(op.MarkDead, IDS, st.text(max_size=4), TIMES),
    st.builds(op.Requeue, IDS, TIMES, st.just("me"), TIMES),
    st.builds(op.Discard, IDS),
    st.builds(lambda i, p, d, k: op.Take(a_taken(i, p, digest=d, idempotency_key=k)), IDS, WHO, DIGESTS, KEYS),
    st.builds(op.Run, WHO, IDS),
    st.builds(op.Run, WHO, IDS),
    st.builds(op.Finish, WHO, IDS, BYTES, TIMES),
    st.builds(op.Append, WHO, IDS, st.integers(0, 3), st.lists(BYTES, max_size=3).map(tuple)),
    st.builds(op.Trim, WHO, IDS, st.integers(0, 4)),
    st.builds(lambda p, ids: op.Settle(p, tuple(ids)), WHO, st.lists(IDS, max_size=2)),
    st.builds(op.Expire, TIMES),
)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.limits = Limits(rows_per_peer=2, ballast=0)
        self.model = Model()
        self.disk = opened(self.folder / "j", limits=self.limits)
        self.memory = MemoryJournal(entropy=os.urandom, limits=self.limits)

    def teardown(self) -> None:
        self.disk.close()
        self.memory.close()
        shutil.rmtree(self.folder)

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def commit(self, operations: list[Any]) -> None:
        expected = self.model.commit(operations)
        for journal in (self.disk, self.memory):
            try:
                answers: Any = [
                    a.kind.value if isinstance(a, Verdict) else a for a in journal.commit(*operations).result(10)
                ]
            except UsageError:
                answers = "no"
            assert answers == expected, (type(journal).__name__, operations)

    @rule()
    def restart(self) -> None:
        self.disk.close()
        self.disk = opened(self.folder / "j", limits=self.limits)

    @rule()
    def open(self) -> None:
        rows = {id: r["next_try_ms"] for id, r in self.model.sent.items() if r["state"] in SIDES["open"]}
        for journal in (self.disk, self.memory):
            found = journal.find_sent((SentState.WAITING, SentState.ACCEPTED)).result(10)
            assert [r.seq for r in found] == sorted(r.seq for r in found)
            assert {r.message_id: r.next_try_ms for r in found} == rows

    @rule(who=WHO, id=IDS, offset=st.integers(0, 5), limit=st.integers(1, 4))
    def items(self, who: bytes, id: str, offset: int, limit: int) -> None:
        row = self.model.taken.get((who, id))
        for journal in (self.disk, self.memory):
            found = journal.items(who, id, offset, limit).result(10)
            if row is None:
                assert found is None
                continue
            start = max(offset, row["first_item"])
            log = self.model.log.get((who, id), [])
            assert found is not None
            assert (found.first, list(found.items), found.next_item) == (start, log[start : start + limit], len(log))

    @invariant()
    def same_rows(self) -> None:
        for journal in (self.disk, self.memory):
            sent, taken = journal.find_sent().result(10), journal.find_taken().result(10)
            assert [plain(r) for r in sent] == list(self.model.sent.values())
            assert [plain(r) for r in taken] == list(self.model.taken.values())
            gauges = journal.gauges()
            assert sum(gauges.sent.values()) == len(sent) and sum(gauges.taken.values()) == len(taken)


def plain(row: Sent | Taken) -> dict[str, Any]:
    return {k: v for k, v in asdict(row).items() if k != "seq"}


def test_both_journals_are_the_model() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=int(os.environ.get("HERMES_EXAMPLES", "60")),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
