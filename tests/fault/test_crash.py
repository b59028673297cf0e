"""The crash programme in short: random kills of either side, and a handful of failpoints. `make crash` runs all."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
from pathlib import Path

import pytest

from tests.fault.crash.check import check
from tests.fault.crash.drive import POINTS, one_failpoint, random_kills
from tests.fault.crash.plan import call_id, item, stream_id, whole
from tests.fault.rig import FULL, show

SEED = int(os.environ.get("HERMES_CRASH_SEED", "20261130"))
SHORT = (("worker", "after-done"), ("worker", "before answer"), ("planner", "after-send"), ("planner", "after-outcome"))


def test_random_kills(tmp_path: Path) -> None:
    run = asyncio.run(random_kills(tmp_path, 12, 150, 4, 150, SEED))
    assert run.kills == 12 and len(run.recoveries) == 12
    assert run.figures["ahead"]
    show(f"seed {SEED}: recovery median {statistics.median(run.recoveries):.0f} ms, max {max(run.recoveries):.0f} ms")
    show(f"{run.figures}")


def test_orderly_ends(tmp_path: Path) -> None:
    run = asyncio.run(random_kills(tmp_path, 8, 120, 3, 100, SEED, orderly=True))
    assert run.kills == 8 and run.figures["outcomes"] == 123
    show(f"seed {SEED}: recovery median {statistics.median(run.recoveries):.0f} ms, max {max(run.recoveries):.0f} ms")


@pytest.mark.parametrize(
    ("side", "point"), [(s, p) for s, points in POINTS.items() for p in points] if FULL else SHORT, ids=str
)
def test_a_kill_at_a_failpoint(tmp_path: Path, side: str, point: str) -> None:
    asyncio.run(one_failpoint(tmp_path, side, point))


def test_every_failpoint_of_the_code_is_swept() -> None:
    source = Path(__file__).resolve().parents[2] / "src" / "hermes_peer"
    texts = [p.read_text() for room in ("agent/durable", "journal") for p in (source / room).glob("*.py")]
    named = {name for text in texts for name in re.findall(r'fail(?:point)?\("((?:before|after)[- ][a-z]+)"\)', text)}
    assert len(named) == 18
    assert named == set(POINTS["worker"]) | set(POINTS["planner"])


@pytest.mark.parametrize("harm", ["twice", "lost", "stream", "effect"])
def test_the_check_sees_what_it_should(tmp_path: Path, harm: str) -> None:
    """A check that cannot fail proves nothing."""
    import json
    import sqlite3

    outcomes = [(call_id(n), n + 1) for n in range(3)] + [(stream_id(0), {"items": 5})]
    started, effects, data = ["call-00002"], ["call-00001"], whole(stream_id(0), 5)
    if harm == "twice":
        started *= 2
    elif harm == "lost":
        outcomes.pop(0)
    elif harm == "stream":
        data = data[:-64] + item(stream_id(0), 3)
    elif harm == "effect":
        effects = []
    (tmp_path / "outcomes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in outcomes))
    (tmp_path / "once.log").write_text("".join(f"{id}\n" for id in started))
    (tmp_path / f"{stream_id(0)}.bin").write_bytes(data)
    for name in ("worker", "planner"):
        folder = tmp_path / f"home/agents/{name}/1"
        folder.mkdir(parents=True)
        with sqlite3.connect(folder / "journal.db") as db:
            db.execute("CREATE TABLE effects (id TEXT)")
            db.executemany("INSERT INTO effects VALUES (?)", [(id,) for id in effects])
            for table in ("hermes_sent", "hermes_taken", "hermes_items"):
                db.execute(f"CREATE TABLE {table} (message_id TEXT, state INTEGER)")
        db.close()
    with pytest.raises(AssertionError):
        check(tmp_path, 3, 1, 5)
