"""A process that works on a journal until it is killed. `python -m tests.journal.victim PATH POINT N`.

At the N-th time that failpoint POINT is passed, it kills itself (POINT "-": it waits to be killed). What was accepted
is told on stdout, one line for each, unbuffered: what was read there was promised.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from .rig import ONE, a_sent, a_taken, op, opened


def main(path: str, point: str, n: str) -> None:
    left = int(n)

    def failpoint(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    journal = opened(Path(path), failpoint=failpoint, idle_s=0.0)
    journal.transaction(lambda sql: sql.execute("CREATE TABLE IF NOT EXISTS effects (id PRIMARY KEY)")).result()
    first = len(journal.find_taken(limit=100_000).result())
    for i in itertools.count(first):
        if "checkpoint" in point:
            time.sleep(0.002)  # the writer is idle now and then
        id = f"m-{i}"

        def effect(sql: Any, id: str = id) -> None:
            sql.execute("INSERT INTO effects VALUES (?)", (id,))

        steps = [
            ("taken", journal.commit(op.Take(a_taken(id)), op.Run(ONE, id))),
            ("items", journal.commit(op.Append(ONE, id, 0, (b"a", b"b")))),
            ("done", journal.transaction(effect, lambda _, id=id: [op.Finish(ONE, id, b"out", 9)])),  # type: ignore[misc]
            ("sent", journal.commit(op.Submit(a_sent(id)))),
        ]
        for word, promise in steps:
            promise.result(30)
            os.write(1, f"{word} {id}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
