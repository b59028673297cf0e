"""The faults of the demo: their order, one at a time, each on a real proxy.

Knows: proxies and plain sockets. Refuses to know: hermes. Called by: pytest.
"""

from __future__ import annotations

import asyncio

import pytest

from hermes_peer.cli.demo.chaos import FAULTS, Chaos
from hermes_peer.testing import FaultProxy


class Told(list[str]):
    def __call__(self, name: str) -> None:
        self.append(name)


async def ended() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_one_fault_at_a_time_and_never_while_the_line_is_down() -> None:
    async def main() -> None:
        said = Told()
        async with FaultProxy(("127.0.0.1", 1)) as proxy:
            chaos = Chaos(proxy, 900, said)
            chaos.progress(99)
            assert said == []
            chaos.progress(100)
            chaos.progress(900)  # the line is down: nothing more
            assert said == ["reset"] and chaos.done == 1
            chaos.back()
            chaos.progress(199)
            assert chaos.done == 1
            for items in range(200, 901):
                chaos.progress(items)
                chaos.back()
            assert said == [name for name, _ in FAULTS]
            chaos.progress(901)
            assert chaos.done == len(FAULTS)
            await ended()
            assert not chaos._tasks

    asyncio.run(main())


def test_a_stall_does_not_wait_for_the_line_to_come_back() -> None:
    async def main() -> None:
        said = Told()
        async with FaultProxy(("127.0.0.1", 1)) as proxy:
            chaos = Chaos(proxy, 9, said)
            stall = [name for name, _ in FAULTS].index("stalled for 0.7 s") + 1
            for items in range(1, stall + 1):
                chaos.progress(items)
                if "stalled" not in said[-1]:
                    chaos.back()
            chaos.progress(stall + 1)  # the stall ended by itself, nobody says "back"
            assert said[-1] == "cut in the middle of a frame"
            await ended()

    asyncio.run(main())


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[name for name, _ in FAULTS])
def test_each_fault_disturbs_a_real_line(number: int) -> None:
    name, strike = FAULTS[number]

    async def main() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(100):
                    writer.write(data)
            except ConnectionError:
                pass
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with asyncio.timeout(10), FaultProxy(server.sockets[0].getsockname()) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address)
            writer.write(b"before")
            assert await reader.readexactly(6) == b"before"
            await strike(proxy)
            try:
                writer.write(b"0123456789")
                async with asyncio.timeout(0.2):
                    whole = await reader.readexactly(10) == b"0123456789"
            except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
                whole = False
            assert not whole, name
            if "stalled" in name:
                assert await reader.readexactly(10) == b"0123456789"
            writer.transport.abort()
        server.close()

    asyncio.run(main())
