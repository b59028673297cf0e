"""transport/memory: names within one event loop."""

from __future__ import annotations

import asyncio

import pytest

from hermes_peer.errors import LinkError, UsageError
from hermes_peer.testing.contracts import _End
from hermes_peer.transport import base, memory
from hermes_peer.wire.address import Address
from tests.loops import until


def test_addresses() -> None:
    key = "ab" * 32
    address = Address.parse(f"hermes+memory://{key}@worker-1")
    assert (address.scheme, address.path, address.fingerprint) == ("memory", "worker-1", key)
    assert str(address) == f"hermes+memory://{key}@worker-1"
    assert str(address.endpoint) == "hermes+memory://worker-1"
    for wrong in ("hermes+memory://", "hermes+memory://a/b", "hermes+memory://@a", "hermes+memory://" + "x" * 65):
        with pytest.raises(UsageError):
            Address.parse(wrong)


def test_another_loop_has_other_names() -> None:
    async def listen() -> None:
        await base.listen(Address.memory("one"), _End)

    asyncio.run(listen())
    asyncio.run(listen())  # never closed, and no trouble for the next loop

    async def dial() -> None:
        with pytest.raises(LinkError, match="refused"):
            await base.dial(Address.memory("one"), _End)

    asyncio.run(dial())


async def test_an_abort_drops_what_was_not_taken() -> None:
    ends: list[_End] = []

    def accept() -> _End:
        ends.append(_End())
        return ends[-1]

    listener = await base.listen(Address.memory("x"), accept)
    one = _End()
    await base.dial(listener.address, lambda: one)
    one.write(b"never seen")
    assert isinstance(one.pipe, memory.MemoryPipe)
    one.pipe.abort()
    await until(lambda: bool(one.losses and ends[0].losses))
    assert not ends[0].data
    await listener.close()
