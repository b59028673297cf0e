"""The fault proxy, on TCP and on Unix sockets, on both event loops.

Knows: what a real socket shows its owner for each fault. Refuses to know: hermes.
Called by: pytest.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import UsageError
from hermes_peer.testing.proxy import FaultProxy

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop

GONE = (b"", ConnectionResetError, BrokenPipeError)
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Bench:
    """A listener, a proxy before it, and pairs of (client, server) through them."""

    def __init__(self, proxy: FaultProxy, served: asyncio.Queue[Wire], wires: list[Wire]) -> None:
        self.proxy, self._served, self._wires = proxy, served, wires

    async def dial(self) -> Wire:
        try:
            host, port = self.proxy.address
        except UsageError:
            wire = await asyncio.open_unix_connection(self.proxy.path)
        else:
            wire = await asyncio.open_connection(host, port)
        self._wires.append(wire)
        return wire

    async def served(self) -> Wire:
        return await self._served.get()

    async def pair(self) -> tuple[Wire, Wire]:
        return await self.dial(), await self.served()


@asynccontextmanager
async def bench(target: Any, **options: Any) -> AsyncIterator[Bench]:
    queue: asyncio.Queue[Wire] = asyncio.Queue()
    wires: list[Wire] = []

    def on_wire(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wires.append((reader, writer))
        queue.put_nowait((reader, writer))

    if target == "tcp":
        server = await asyncio.start_server(on_wire, "127.0.0.1", 0)
        target = server.sockets[0].getsockname()
    else:
        server = await asyncio.start_unix_server(on_wire, target)
    before = asyncio.all_tasks()
    try:
        async with FaultProxy(target, **options) as proxy:
            yield Bench(proxy, queue, wires)
        assert asyncio.all_tasks() <= before  # nothing of the proxy is left running
    finally:
        for _, writer in wires:
            writer.transport.abort()
        server.close()


@pytest.fixture(params=[f"{loop}-{kind}" for loop in LOOPS for kind in ("tcp", "unix")])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs `await body(bench)` with a limit of ten seconds."""
    loop, kind = request.param.split("-")

    def run(body: Callable[[Bench], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            async with (
                asyncio.timeout(10),
                bench("tcp" if kind == "tcp" else str(tmp_path / "s"), **options) as b,
            ):
                await body(b)

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(main())

    run.kind = kind  # type: ignore[attr-defined]
    return run


async def ends(reader: asyncio.StreamReader) -> bytes | type[Exception]:
    """What is left to read, or how the reading failed."""
    try:
        return await reader.read()
    except ConnectionError as error:
        return type(error)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw.family != socket.AF_UNIX:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def silent(reader: asyncio.StreamReader, seconds: float = 0.05) -> bool:
    """That nothing arrives can only be watched for a while."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


def test_it_forwards_both_ways_and_counts(run: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, cw), (sr, sw) = await b.pair()
        cw.write(b"ping")
        assert await sr.readexactly(4) == b"ping"
        sw.write(b"pong!")
        assert await cr.readexactly(5) == b"pong!"
        assert (b.proxy.bytes_up, b.proxy.bytes_down, b.proxy.connections) == (4, 5, 1)
        (link,) = b.proxy.links
        assert (link.number, link.bytes_up, link.bytes_down, link.live) == (1, 4, 5, True)
        assert b.proxy.record() == b.proxy.record(1) == {"up": b"ping", "down": b"pong!"}
        assert b.proxy.record(2) == {"up": b"", "down": b""}

    run(body)


def test_ends_travel_one_by_one(run: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, cw), (sr, sw) = await b.pair()
        cw.write(b"last")
        cw.write_eof()
        assert await ends(sr) == b"last"
        sw.write(b"answer after the end")
        sw.write_eof()
        assert await ends(cr) == b"answer after the end"
        await b.proxy.until(lambda: not b.proxy.links)
        await b.proxy.until(lambda: not b.proxy._links)  # not even a dead one is kept

    run(body)


def test_a_reset_travels(run: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, _), (_, sw) = await b.pair()
        _reset(sw)
        assert await ends(cr) == (ConnectionResetError if run.kind == "tcp" else b"")

    run(body)


def test_a_reset_does_not_travel_through_a_black_hole(run: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (sr, sw) = await b.pair()
        b.proxy.blackhole("up")
        _reset(cw)
        sw.write(b"to nobody")
        assert await silent(sr)
        sw.write(b"to nobody")
        assert await silent(sr)
        b.proxy.heal(old=True)
        assert await ends(sr) in GONE

    run(body)


def test_cut_resets_both_sides(run: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, _), (sr, _) = await b.pair()
        await b.proxy.cut()
        assert b.proxy.links == []
        expected = ConnectionResetError if run.kind == "tcp" else b""
        assert [await ends(cr), await ends(sr)] == [expected, expected]
        (cr, cw), (sr, _) = await b.pair()  # new ones get through
        cw.write(b"x")
        assert await sr.readexactly(1) == b"x"

    run(body)


def test_fin_ends_both_sides_without_reset(run: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, cw), (sr, sw) = await b.pair()
        cw.write(b"before")
        assert await sr.readexactly(6) == b"before"
        await b.proxy.fin()
        assert b.proxy.links == []
        cw.write(b"thrown away")
        sw.write(b"thrown away")
        assert [await ends(cr), await ends(sr)] == [b"", b""]
        for _ in range(20):  # nobody answers these with a reset
            cw.write(b"thrown away")
            await cw.drain()
            await asyncio.sleep(0)
        assert b.proxy.bytes_up == 6

    run(body)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_half_close_ends_one_direction_only(run: Any, direction: Any) -> None:
    async def body(b: Bench) -> None:
        client, server = await b.pair()
        talker, listener = (client, server) if direction == "up" else (server, client)
        b.proxy.half_close(direction)
        assert await ends(listener[0]) == b""
        listener[1].write(b"still here")
        assert await talker[0].readexactly(10) == b"still here"
        talker[1].write(b"lost" * 1000)  # swallowed, not an error
        for _ in range(5):
            listener[1].write(b"and still")
            assert await talker[0].readexactly(9) == b"and still"
        assert len(b.proxy.links) == 1

    run(body)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_black_hole_of_one_direction(run: Any, direction: Any) -> None:
    async def body(b: Bench) -> None:
        client, server = await b.pair()
        dark, lit = (client, server) if direction == "up" else (server, client)
        b.proxy.blackhole(direction)
        dark[1].write(b"dark")
        lit[1].write(b"light")
        assert await dark[0].readexactly(5) == b"light"
        assert await silent(lit[0])
        # not even the end of it gets out
        dark[1].close()
        assert await silent(lit[0])
        assert len(b.proxy.links) == 1

    run(body)


def test_heal_lets_new_connections_through_and_the_old_only_on_request(run: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (sr, _) = await b.pair()
        b.proxy.blackhole()
        cw.write(b"held")
        during = await b.dial()
        during[1].write(b"never dialled")
        await b.proxy.until(lambda: b.proxy.connections == 2)
        b.proxy.heal()
        (_, cw2), (sr2, _) = await b.pair()
        cw2.write(b"new")
        assert await sr2.readexactly(3) == b"new"
        assert await silent(sr)
        b.proxy.heal(old=True)
        assert await sr.readexactly(4) == b"held"
        third, _ = await b.served()
        assert await third.readexactly(13) == b"never dialled"

    run(body)


def test_a_stall_holds_everything_and_then_gives_everything(run: Any) -> None:
    async def body(b: Bench) -> None:
        loop = asyncio.get_running_loop()
        (cr, cw), (sr, sw) = await b.pair()
        started = loop.time()
        b.proxy.stall(0.1)
        cw.write(b"up")
        sw.write(b"down")
        assert await sr.readexactly(2) == b"up"
        assert await cr.readexactly(4) == b"down"
        assert loop.time() - started >= 0.09

    run(body)


def test_refuse_and_accept_keep_the_address(run: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (sr, _) = await b.pair()
        for _ in range(3):
            b.proxy.refuse()
            b.proxy.refuse()
            with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
                await b.dial()
            b.proxy.accept()
            b.proxy.accept()
            (_, cw2), (sr2, _) = await b.pair()
            cw2.write(b"2")
            assert await sr2.readexactly(1) == b"2"
        cw.write(b"1")  # the one there was goes on
        assert await sr.readexactly(1) == b"1"
        assert b.proxy.connections == 4

    run(body)


def test_split_shows_every_border_to_a_reader_on_this_loop(run: Any) -> None:
    async def body(b: Bench) -> None:
        b.proxy.split(3)
        (_, cw), (sr, _) = await b.pair()
        cw.write(b"abcdefgh")
        seen = []
        while sum(map(len, seen)) < 8:
            seen.append(await sr.read(100))
        assert seen == [b"abc", b"def", b"gh"]
        b.proxy.split(None)
        cw.write(b"abcdefgh")
        assert await sr.read(100) == b"abcdefgh"

    run(body)


def test_delay_moves_time_but_not_order_or_throughput(run: Any) -> None:
    async def body(b: Bench) -> None:
        loop = asyncio.get_running_loop()
        b.proxy.delay(0.1)
        (_, cw), (sr, _) = await b.pair()
        started = loop.time()
        blob = bytes(range(256)) * 2560  # ten chunks: one delay after another would take a second
        cw.write(blob)
        assert await sr.readexactly(len(blob)) == blob
        assert 0.09 <= loop.time() - started < 0.9

    run(body)


def test_rate_bounds_the_throughput_and_can_be_lifted(run: Any) -> None:
    async def body(b: Bench) -> None:
        loop = asyncio.get_running_loop()
        b.proxy.rate(20_000)
        (_, cw), (sr, _) = await b.pair()
        started = loop.time()
        cw.write(bytes(500_000))
        await sr.readexactly(4_000)
        assert 0.15 <= loop.time() - started < 2.0
        b.proxy.rate(None)
        await sr.readexactly(496_000)
        assert loop.time() - started < 5.0

    run(body)


def test_a_slow_reader_pauses_the_writer(run: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (_, sw) = await b.pair()
        sw.transport.pause_reading()
        total = 0

        async def flood() -> None:
            nonlocal total
            while total < 64 << 20:
                cw.write(bytes(1 << 18))
                total += 1 << 18
                await cw.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flood(), 0.3)
        assert b.proxy.bytes_up < 4 << 20
        assert total < 12 << 20  # most of it in the sender's own kernel buffer

    run(body)


def test_megabytes_arrive_unharmed(run: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (sr, _) = await b.pair()
        blob = bytes(range(256)) * (16 << 12)
        cw.write(blob)
        assert await sr.readexactly(len(blob)) == blob
        assert len(b.proxy.record()["up"]) <= 1 << 20
        assert blob.endswith(b.proxy.record()["up"])

    run(body)


def test_cut_after_every_offset_of_a_life(run: Any) -> None:
    data = b"0123456789abcdef"

    async def body(b: Bench) -> None:
        for offset in range(len(data) + 1):
            b.proxy.cut_after(offset, "up")
            (cr, cw) = await b.dial()
            cw.write(data[:7])
            cw.write(data[7:])
            if offset:
                sr, _ = await b.served()
                got = b""
                while len(got) < offset:
                    got += await sr.read(100)
                assert got == data[:offset]
                assert await ends(sr) in GONE
            assert await ends(cr) in GONE
            await b.proxy.until(lambda: not b.proxy.links)
        # each order was used up
        (cr, cw), (sr, _) = await b.pair()
        cw.write(data + data)
        assert await sr.readexactly(2 * len(data)) == data + data

    run(body)


def test_cut_after_counts_from_now_on_a_live_link(run: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, cw), (_, sw) = await b.pair()
        sw.write(b"12345")
        assert await cr.readexactly(5) == b"12345"
        b.proxy.cut_after(3, "down")
        cw.write(b"the other direction does not count")
        sw.write(b"6789")
        assert await cr.readexactly(3) == b"678"
        assert await ends(cr) in GONE
        assert b.proxy.bytes_down == 8
        assert b.proxy.links == []

    run(body)


def test_cut_after_for_good_and_taken_back(run: Any) -> None:
    async def body(b: Bench) -> None:
        b.proxy.cut_after(2, "up", once=False)
        for n in range(1, 4):
            _, cw = await b.dial()
            cw.write(b"abc")
            sr, _ = await b.served()
            assert await sr.readexactly(2) == b"ab"
            await b.proxy.until(lambda: not b.proxy.links)
            assert b.proxy.bytes_up == 2 * n
        b.proxy.cut_after(None)
        (_, cw), (sr, _) = await b.pair()
        b.proxy.cut_after(0, "up")  # on a live link: now
        assert await ends(sr) in GONE

    run(body)


def test_an_exact_cut_waits_for_a_receiver_with_a_full_buffer(run: Any) -> None:
    size = 300_001  # more than the receiver's kernel takes unasked, less than both sides' buffers

    async def body(b: Bench) -> None:
        b.proxy.cut_after(size, "up")
        (_, cw), (sr, sw) = await b.pair()
        sw.transport.pause_reading()
        cw.write(bytes(size + 1000))
        await b.proxy.until(lambda: b.proxy.bytes_up == size or run.kind == "unix")
        for _ in range(50):  # the turns that a hasty cut would need
            await asyncio.sleep(0)
        sw.transport.resume_reading()
        assert len(await sr.readexactly(size)) == size
        assert await ends(sr) in GONE
        assert b.proxy.bytes_up == size

    run(body)


def test_the_hook_alters_and_drops(run: Any) -> None:
    async def body(b: Bench) -> None:
        seen: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

        def hook(direction: str, chunk: bytes) -> bytes | None:
            seen.put_nowait((direction, chunk))
            return None if chunk == b"drop" else chunk.upper()

        b.proxy.on_chunk = hook
        (cr, cw), (sr, sw) = await b.pair()
        for word in (b"keep", b"drop", b"more"):
            cw.write(word)
            assert await seen.get() == ("up", word)
        assert await sr.readexactly(8) == b"KEEPMORE"
        sw.write(b"back")
        assert await cr.readexactly(4) == b"BACK"
        assert b.proxy.bytes_up == 8

    run(body)


def test_an_error_of_the_hook_cuts_and_is_raised_at_the_end(run: Any) -> None:
    def hook(direction: str, chunk: bytes) -> bytes:
        raise AssertionError("not this")

    async def body(b: Bench) -> None:
        (cr, cw), _ = await b.pair()
        cw.write(b"x")
        assert await ends(cr) in GONE

    with pytest.raises(AssertionError, match="not this"):
        run(body, on_chunk=hook)


def test_a_dead_target_resets_the_client_and_may_move(run: Any, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        alive = b.proxy.target
        b.proxy.target = str(tmp_path / "nobody")
        cr, _ = await b.dial()
        assert await ends(cr) in GONE
        b.proxy.target = alive
        (_, cw), (sr, _) = await b.pair()
        cw.write(b"x")
        assert await sr.readexactly(1) == b"x"

    run(body)


def test_it_closes_cleanly_in_any_state(run: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (_, sw) = await b.pair()
        await b.pair()
        b.proxy.blackhole("up")
        cw.write(bytes(1 << 20))
        sw.write(bytes(1 << 20))
        await b.dial()
        await b.proxy.until(lambda: b.proxy.connections == 3)
        ending = asyncio.ensure_future(b.proxy.links[1].fin())
        await b.proxy.aclose()
        await b.proxy.aclose()
        await ending
        assert b.proxy.links == []

    run(body)


def test_tcp_before_unix_and_a_chosen_path(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench("tcp", listen=str(tmp_path / "front")) as b:
            (_, cw), (sr, _) = await b.pair()
            cw.write(b"x")
            assert await sr.readexactly(1) == b"x"
            assert b.proxy.path == str(tmp_path / "front")
        assert not (tmp_path / "front").exists()

    asyncio.run(main())


def test_misuse_is_refused() -> None:
    async def main() -> None:
        proxy = FaultProxy(("127.0.0.1", 1))
        wrongs: list[Callable[[], object]] = [
            lambda: proxy.address,
            lambda: proxy.path,
            lambda: proxy.accept(),
            lambda: proxy.split(0),
            lambda: proxy.rate(-1),
            lambda: proxy.delay(-1),
            lambda: proxy.cut_after(-1),
            lambda: proxy.cut_after(1, "sideways"),  # type: ignore[arg-type]
            lambda: proxy.blackhole("sideways"),  # type: ignore[arg-type]
        ]
        for wrong in wrongs:
            with pytest.raises(UsageError):
                wrong()
        async with proxy:
            with pytest.raises(UsageError):
                await proxy.__aenter__()

    asyncio.run(main())


def test_until_gives_up() -> None:
    async def main() -> None:
        async with FaultProxy(("127.0.0.1", 1)) as proxy:
            with pytest.raises(TimeoutError):
                await proxy.until(lambda: False, timeout=0.01)

    asyncio.run(main())
