"""A short conversation whose line is cut after every single byte, in either direction: always the same result.

Knows: the recorded length of the conversation, which is all that a cut needs. Refuses to know: what is in the bytes.

Each run tries every STEP-th offset, another set each day; HERMES_FAULT_FULL=1 tries all of them (some minutes).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.core.states import Reason
from hermes_peer.testing.relay import Direction

from .rig import FULL, Pair, pair, quick_redials, run, settled, show

STEP = 1 if FULL else 7
PAIRS = 8
ITEMS = 5
EXPECTED = ({"x": 1}, list(range(1, ITEMS + 1)), {"n": ITEMS}, {"answer": {"name": "caller", "of": 7}})


async def conversation(two: Pair) -> tuple[Any, ...]:
    """A handshake, a call, a stream of a few items, an ask back; one after another."""
    echoed = await two.a.call(two.to, "demo.echo", {"x": 1})
    async with two.a.stream(two.to, "demo.tokens", {"n": ITEMS}) as tokens:
        items = [item async for item in tokens]
    return echoed, items, await tokens.result(), await two.a.call(two.to, "demo.asks", {})


async def anew(two: Pair) -> None:
    """Forget the session at both ends, so that the next call begins with a first handshake."""
    await two.a.call(two.to, "demo.instance")  # a last ACK that was cut off waits for whoever needs the line next
    await settled(two.a, two.b)
    for agent in (two.a, two.b):
        endpoint = agent._running().endpoint
        for contact in list(endpoint.contacts.values()):
            contact.backoff.reset()
            if contact.session is not None:
                endpoint.end_session(contact, Reason.SHUTDOWN, "the next offset begins anew")
    await two.p.until(lambda: not two.p.links)


async def one_offset(two: Pair, offset: int, way: Direction) -> bool:
    """Whether the offset lay inside of the conversation."""
    ran = dict(two.offered.ran)
    two.p.cut_after(offset, way)
    try:
        result = await conversation(two)
    except Exception as error:
        raise AssertionError(f"cut after {offset} bytes {way}: {error!r}") from error
    assert result == EXPECTED, f"cut after {offset} bytes {way}"
    for name in ("echo", "tokens", "asks"):
        assert two.offered.ran[name] == ran.get(name, 0) + 1, f"{name} did not run once, cut after {offset} bytes {way}"
    assert two.p._cut is not None
    reached = two.p._cut.used
    two.p.cut_after(None)
    await anew(two)
    return reached


async def slice_of(home: Path, offsets: list[tuple[int, Direction]]) -> int:
    reached = 0
    async with pair(home, keep=1) as two:
        for offset, way in offsets:
            reached += await one_offset(two, offset, way)
    return reached


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_cut_after_any_byte_changes_nothing(tmp_path: Path, way: Direction) -> None:
    begin = time.perf_counter()

    async def scenario() -> None:
        async with pair(tmp_path / "recorded") as two:
            assert await conversation(two) == EXPECTED
            await settled(two.a, two.b)
            length = len(two.p.record()[way])
        start = 0 if FULL else int(time.time() // 86_400) % STEP
        offsets: list[tuple[int, Direction]] = [(n, way) for n in range(start, length + 40, STEP)]
        slices = [offsets[n::PAIRS] for n in range(PAIRS)]
        reached = sum(await asyncio.gather(*(slice_of(tmp_path / str(n), part) for n, part in enumerate(slices))))
        show(f"{len(offsets)} offsets of {length} bytes {way}, {reached} cuts, {time.perf_counter() - begin:.1f} s")
        assert reached >= len(offsets) * 0.9  # nearly every cut fell inside: the conversation was the recorded one

    with quick_redials(0.03):
        run(scenario, limit=600 if FULL else 60)
