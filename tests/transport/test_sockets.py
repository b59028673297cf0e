"""transport/sockets: a listener that outlives a full table of descriptors."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import time
from collections.abc import Iterator

import pytest

from hermes_peer.testing.contracts import _End
from hermes_peer.transport import base, sockets
from hermes_peer.wire.address import Address
from tests.loops import both_loops, case, until


@pytest.fixture
def few() -> Iterator[int]:
    """So many descriptors are left."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    limit = max(used + 60, 80)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@case("HPC-091")
@both_loops
@pytest.mark.parametrize("reserve", [True, False])
async def test_descriptors_run_out(
    few: int, loop_kind: str, reserve: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "PAUSE_S", 0.1)
    if not reserve:  # the table is really full: accept() fails
        monkeypatch.setattr(sockets, "_most_descriptors", lambda: 1 << 30)
    caplog.set_level(logging.INFO)
    ends: list[_End] = []

    def accept() -> _End:
        ends.append(_End())
        return ends[-1]

    listener = await base.listen(Address.tcp("127.0.0.1", 0), accept)
    where = ("127.0.0.1", listener.address.port)
    child = os.fork()
    if not child:  # the crowd has a table of its own
        crowd = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * few + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for _ in range(few + 30):
            sock = socket.socket()
            sock.settimeout(1)
            sock.connect(where)
            crowd.append(sock)
        time.sleep(30)
        os._exit(0)
    try:
        await until(lambda: "no descriptors are left" in caplog.text)
        if reserve:  # our own files still open
            with open("/dev/null") as file:
                assert file.fileno() < few
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.sleep(0.6)
        assert (time.process_time() - cpu) / (time.monotonic() - began) < 0.2
        assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1  # one line
        living = sum(not end.losses for end in ends)
        assert living > 10
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    await until(lambda: all(end.losses for end in ends))
    while True:  # it serves again, once it has seen off those of the crowd that still queue
        one = _End()
        await base.dial(listener.address, lambda one=one: one)
        one.write(b"hello")
        await until(lambda: one.losses or any(bytes(end.data) == b"hello" for end in ends))  # noqa: B023
        if not one.losses:
            break
    assert one.pipe is not None
    one.pipe.close()
    await until(lambda: one.losses == 1 and all(end.losses for end in ends if end.pipe))
    await listener.close()


@both_loops
async def test_thousands_of_connections_leave_no_descriptor(loop_kind: str) -> None:
    listener = await base.listen(Address.tcp("127.0.0.1", 0), _End)
    before = 0
    for round in range(20):
        ends = [_End() for _ in range(50)]
        await asyncio.gather(*[base.dial(listener.address, lambda end=end: end) for end in ends])
        for end in ends:
            assert end.pipe is not None
            end.pipe.abort()
        await until(lambda: all(end.losses == 1 for end in ends))  # noqa: B023
        if not round:  # what a loop opens once, for itself
            await asyncio.sleep(0.05)
            before = len(os.listdir("/proc/self/fd"))
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    await listener.close()


@both_loops
async def test_closing_while_somebody_knocks(loop_kind: str) -> None:
    for _ in range(20):
        ends: list[_End] = []

        def accept(ends: list[_End] = ends) -> _End:
            ends.append(_End())
            return ends[-1]

        listener = await base.listen(Address.tcp("127.0.0.1", 0), accept)
        with socket.create_connection(("127.0.0.1", listener.address.port)):
            await asyncio.sleep(0)
            await listener.close()
        await until(lambda: all(end.losses for end in ends))  # noqa: B023
