"""The face of the journal: several loops and threads, forks."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from .rig import a_sent, do, op


def test_several_loops_at_once(make: Any) -> None:
    journal = make()

    async def caller(name: str) -> None:
        await asyncio.gather(*(wait(journal.commit(op.Submit(a_sent(f"{name}-{i}")))) for i in range(30)))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(caller(n))) for n in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(journal.find_sent().result(5)) == 90


def test_a_forked_child_is_told(make: Any) -> None:
    journal = make()
    do(journal, op.Submit(a_sent()))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            error = journal.commit(op.Discard("m-1")).exception(2)
            os.write(write, str(error).encode())
            journal.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"before this process was forked off" in os.read(read, 1000)
    os.close(read)
    os.close(write)
    do(journal, op.Submit(a_sent("m-2")))


async def wait(promise: Any) -> Any:
    return await promise
