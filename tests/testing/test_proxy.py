"""The fault proxy as a relay: forwarding, timing, sizes, hooks, closing.

Knows: what a real socket shows its owner. Refuses to know: hermes.
Called by: pytest.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.testing.proxy import FaultProxy
from tests.testing.proxy_wires import GONE, Bench, bench, ends


def test_it_forwards_both_ways_and_counts(over_wires: Any) -> None:
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

    over_wires(body)


def test_ends_travel_one_by_one(over_wires: Any) -> None:
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

    over_wires(body)


def test_a_stall_holds_everything_and_then_gives_everything(over_wires: Any) -> None:
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

    over_wires(body)


def test_split_shows_every_border_to_a_reader_on_this_loop(over_wires: Any) -> None:
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

    over_wires(body)


def test_delay_moves_time_but_not_order_or_throughput(over_wires: Any) -> None:
    async def body(b: Bench) -> None:
        loop = asyncio.get_running_loop()
        b.proxy.delay(0.1)
        (_, cw), (sr, _) = await b.pair()
        started = loop.time()
        blob = bytes(range(256)) * 2560  # ten chunks: one delay after another would take a second
        cw.write(blob)
        assert await sr.readexactly(len(blob)) == blob
        assert 0.09 <= loop.time() - started < 0.9

    over_wires(body)


def test_rate_bounds_the_throughput_and_can_be_lifted(over_wires: Any) -> None:
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

    over_wires(body)


def test_a_slow_reader_pauses_the_writer(over_wires: Any) -> None:
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

    over_wires(body)


def test_megabytes_arrive_unharmed(over_wires: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (sr, _) = await b.pair()
        blob = bytes(range(256)) * (16 << 12)
        cw.write(blob)
        assert await sr.readexactly(len(blob)) == blob
        assert len(b.proxy.record()["up"]) <= 1 << 20
        assert blob.endswith(b.proxy.record()["up"])

    over_wires(body)


def test_the_hook_alters_and_drops(over_wires: Any) -> None:
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

    over_wires(body)


def test_an_error_of_the_hook_cuts_and_is_raised_at_the_end(over_wires: Any) -> None:
    def hook(direction: str, chunk: bytes) -> bytes:
        raise AssertionError("not this")

    async def body(b: Bench) -> None:
        (cr, cw), _ = await b.pair()
        cw.write(b"x")
        assert await ends(cr) in GONE

    with pytest.raises(AssertionError, match="not this"):
        over_wires(body, on_chunk=hook)


def test_it_closes_cleanly_in_any_state(over_wires: Any) -> None:
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

    over_wires(body)


def test_tcp_before_unix_and_a_chosen_path(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench("tcp", listen=str(tmp_path / "front")) as b:
            (_, cw), (sr, _) = await b.pair()
            cw.write(b"x")
            assert await sr.readexactly(1) == b"x"
            assert b.proxy.path == str(tmp_path / "front")
        assert not (tmp_path / "front").exists()

    asyncio.run(main())


def test_until_gives_up() -> None:
    async def main() -> None:
        async with FaultProxy(("127.0.0.1", 1)) as proxy:
            with pytest.raises(TimeoutError):
                await proxy.until(lambda: False, timeout=0.01)

    asyncio.run(main())
