"""The fault proxy as a broken line: resets, ends, black holes, cuts at a byte.

Knows: what a real socket shows its owner. Refuses to know: hermes.
Called by: pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import UsageError
from hermes_peer.testing.proxy import FaultProxy
from tests.testing.proxy_wires import GONE, Bench, ends, reset, silent


def test_a_reset_travels(over_wires: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, _), (_, sw) = await b.pair()
        reset(sw)
        assert await ends(cr) == (ConnectionResetError if over_wires.kind == "tcp" else b"")

    over_wires(body)


def test_a_reset_does_not_travel_through_a_black_hole(over_wires: Any) -> None:
    async def body(b: Bench) -> None:
        (_, cw), (sr, sw) = await b.pair()
        b.proxy.blackhole("up")
        reset(cw)
        sw.write(b"to nobody")
        assert await silent(sr)
        sw.write(b"to nobody")
        assert await silent(sr)
        b.proxy.heal(old=True)
        assert await ends(sr) in GONE

    over_wires(body)


def test_cut_resets_both_sides(over_wires: Any) -> None:
    async def body(b: Bench) -> None:
        (cr, _), (sr, _) = await b.pair()
        await b.proxy.cut()
        assert b.proxy.links == []
        expected = ConnectionResetError if over_wires.kind == "tcp" else b""
        assert [await ends(cr), await ends(sr)] == [expected, expected]
        (cr, cw), (sr, _) = await b.pair()  # new ones get through
        cw.write(b"x")
        assert await sr.readexactly(1) == b"x"

    over_wires(body)


def test_fin_ends_both_sides_without_reset(over_wires: Any) -> None:
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

    over_wires(body)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_half_close_ends_one_direction_only(over_wires: Any, direction: Any) -> None:
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

    over_wires(body)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_black_hole_of_one_direction(over_wires: Any, direction: Any) -> None:
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

    over_wires(body)


def test_heal_lets_new_connections_through_and_the_old_only_on_request(over_wires: Any) -> None:
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

    over_wires(body)


def test_refuse_and_accept_keep_the_address(over_wires: Any) -> None:
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

    over_wires(body)


def test_cut_after_every_offset_of_a_life(over_wires: Any) -> None:
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

    over_wires(body)


def test_cut_after_counts_from_now_on_a_live_link(over_wires: Any) -> None:
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

    over_wires(body)


def test_cut_after_for_good_and_taken_back(over_wires: Any) -> None:
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

    over_wires(body)


def test_an_exact_cut_waits_for_a_receiver_with_a_full_buffer(over_wires: Any) -> None:
    size = 300_001  # more than the receiver's kernel takes unasked, less than both sides' buffers

    async def body(b: Bench) -> None:
        b.proxy.cut_after(size, "up")
        (_, cw), (sr, sw) = await b.pair()
        sw.transport.pause_reading()
        cw.write(bytes(size + 1000))
        await b.proxy.until(lambda: b.proxy.bytes_up == size or over_wires.kind == "unix")
        for _ in range(50):  # the turns that a hasty cut would need
            await asyncio.sleep(0)
        sw.transport.resume_reading()
        assert len(await sr.readexactly(size)) == size
        assert await ends(sr) in GONE
        assert b.proxy.bytes_up == size

    over_wires(body)


def test_a_dead_target_resets_the_client_and_may_move(over_wires: Any, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        alive = b.proxy.target
        b.proxy.target = str(tmp_path / "nobody")
        cr, _ = await b.dial()
        assert await ends(cr) in GONE
        b.proxy.target = alive
        (_, cw), (sr, _) = await b.pair()
        cw.write(b"x")
        assert await sr.readexactly(1) == b"x"

    over_wires(body)


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
