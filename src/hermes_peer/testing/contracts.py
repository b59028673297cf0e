"""Contract kits: published functions that prove a stranger's back end honest. They need no pytest.

Knows: what each port promises. Refuses to know: any implementation.
Called by: our tests and anybody who writes a back end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hermes_peer.errors import LinkError, UsageError
from hermes_peer.registry.base import Registry
from hermes_peer.registry.record import BLOB_MAX, Record, sign_record
from hermes_peer.transport import base
from hermes_peer.transport.base import Pipe
from hermes_peer.wire.address import Address

if TYPE_CHECKING:
    from hermes_peer.crypto.keys import Identity


def check_registry(make: Callable[[], Registry]) -> None:
    """Asserts the contract of `registry.base.Registry`. `make()` gives a new, empty one at each call."""
    from hermes_peer.crypto.keys import Identity

    one, two = Identity.generate(os.urandom), Identity.generate(os.urandom)
    registry = make()
    assert list(registry.find()) == [], "a new registry must be empty"
    registry.withdraw(one.hex)  # withdrawing what was never announced must do nothing

    first = signed(one, "worker", ["shout"], seq=1)
    other = signed(two, "planner", ["plan", "shout"], seq=1)
    registry.announce(first, one.hex)
    registry.announce(other, two.hex)
    assert set(registry.find()) == {first, other}, "find() must give every record, byte for byte"
    assert registry.find(name="worker") == [first], "find(name=) must give the records of that agent_id only"
    assert registry.find(name="work") == [], "a name must match whole, not by its beginning"
    assert set(registry.find(capability="shout")) == {first, other}, "find(capability=) must find each holder"
    assert registry.find(name="worker", capability="plan") == [], "name and capability must both hold"
    assert registry.find(name="nobody") == [], "an unknown name must give an empty list"

    again = signed(one, "worker", ["whisper"], seq=2)
    registry.announce(again, one.hex)
    assert registry.find(name="worker") == [again], "a second record of a key must take the place of the first"
    assert registry.find(capability="whisper") == [again], "the new record's capabilities must count"
    registry.announce(again, one.hex)
    assert registry.find(name="worker") == [again], "announcing the same record twice must change nothing"

    registry.withdraw(one.hex)
    assert registry.find() == [other], "withdraw must remove that key's record and no other"
    registry.withdraw(one.hex)
    registry.announce(again, one.hex)
    assert set(registry.find()) == {again, other}, "a withdrawn key must be able to come back"

    for name in ("", "..", "../" + "a" * 61, "A" * 64, "a" * 63, "a" * 64 + "\n", "a" * 63 + "\0"):
        _refuses(partial(registry.announce, first, name), f"the malformed fingerprint {name!r}")
        _refuses(partial(registry.withdraw, name), f"withdrawing the malformed fingerprint {name!r}")
    _refuses(partial(registry.announce, b"x" * (BLOB_MAX + 1), one.hex), "a record of more than 64 KiB")
    assert set(registry.find()) == {again, other}, "a refused announcement must change nothing"
    assert list(make().find()) == [], "make() must give an empty registry each time, or this kit proves nothing"


class _End:
    """A Sink that notes what it hears."""

    def __init__(self) -> None:
        self.pipe: Pipe | None = None
        self.data = bytearray()
        self.writables = self.losses = 0
        self.writing = False

    def connected(self, pipe: Pipe) -> None:
        assert self.pipe is None, "connected() must be called once"
        self.pipe = pipe

    def received(self, data: bytes) -> None:
        assert self.pipe is not None and not self.losses, "bytes must come after connected() and before lost()"
        assert data and isinstance(data, bytes), "received() must be given bytes, and some"
        assert not self.writing, "nothing may be called from inside write()"
        self.data += data

    def writable(self) -> None:
        assert self.pipe is not None and not self.pipe.paused, "writable() must come when the pipe takes bytes again"
        self.writables += 1

    def lost(self) -> None:
        assert self.pipe is not None, "lost() must come after connected()"
        self.losses += 1

    def write(self, data: bytes) -> None:
        assert self.pipe is not None
        self.writing = True
        self.pipe.write(data)
        self.writing = False


async def check_transport(address: Address) -> None:
    """Asserts the contract of `transport.base` for the scheme of `address`, which must be free to listen at."""
    accepted: list[_End] = []

    def accept() -> _End:
        accepted.append(_End())
        return accepted[-1]

    async def pair() -> tuple[_End, _End]:
        count, end = len(accepted), _End()
        await base.dial(where, lambda: end)
        await _until(
            lambda: len(accepted) > count and accepted[-1].pipe is not None, "the listener must hear of a dial"
        )
        return end, accepted[-1]

    await _no_link(base.dial(address, _End), "dialling where nobody listens")
    listener = await base.listen(address, accept)
    where = listener.address
    assert where.scheme == address.scheme and (where.port or where.path), "the listener must tell where it is"
    await _no_link(base.listen(where, accept), "listening where somebody listens")

    one, other = await pair()
    assert one.pipe is not None and other.pipe is not None and one.pipe.local == other.pipe.local
    assert one.pipe.remote and other.pipe.remote, "a pipe must say where it leads"
    for n in range(300):  # order, both ways, whatever the slices
        one.write(b"%d," % n)
        other.write(b"%d;" % n)
    await _until(lambda: other.data.endswith(b"299,") and one.data.endswith(b"299;"), "what is written must arrive")
    assert other.data == b"".join(b"%d," % n for n in range(300)), "bytes must arrive in order, each once"

    size, written = 0, bytearray()  # back-pressure
    pipe = one.pipe
    while not pipe.paused and size < 64 << 20:
        one.write(bytes([size & 255]) * 65_536)
        written += bytes([size & 255]) * 65_536
        size += 65_536
    assert pipe.paused, "a pipe whose other end does not read must pause its writer"
    await _until(lambda: len(other.data) >= size, "all that was written must arrive, paused or not")
    await _until(lambda: one.writables > 0 and not pipe.paused, "writable() must follow a pause")
    assert other.data.endswith(written), "bytes must arrive unchanged"

    one.write(b"the last words")
    one.pipe.close()
    await _until(lambda: bool(one.losses and other.losses), "close() must be heard at both ends")
    assert other.data.endswith(b"the last words"), "close() must send what was written before"
    one.pipe.close()
    one.pipe.abort()
    other.pipe.abort()

    one, other = await pair()
    assert other.pipe is not None
    other.pipe.abort()
    await _until(lambda: bool(one.losses and other.losses), "abort() must be heard at both ends")

    one, other = await pair()
    await listener.close()
    await listener.close()
    await _no_link(base.dial(where, _End), "dialling a listener that was closed")
    one.write(b"still here")
    await _until(lambda: bytes(other.data) == b"still here", "a connection must outlive its listener")
    assert one.pipe is not None
    one.pipe.close()
    await _until(lambda: bool(one.losses and other.losses), "close() must be heard at both ends")
    again = await base.listen(where, accept)
    await again.close()
    await asyncio.sleep(0.01)
    assert all(end.losses <= 1 for end in accepted), "lost() must be called once"


async def _until(true: Callable[[], bool], what: str) -> None:
    end = asyncio.get_running_loop().time() + 5
    while not true():
        assert asyncio.get_running_loop().time() < end, what
        await asyncio.sleep(0.001)


async def _no_link(act: object, what: str) -> None:
    try:
        await act  # type: ignore[misc]
    except LinkError:
        return
    raise AssertionError(f"{what} must be refused with LinkError")


def signed(identity: Identity, name: str, capabilities: list[str], seq: int, now: float = 1e9) -> bytes:
    """A valid record for tests: lease 60 s from `now` (seconds since 1970), one address."""
    return sign_record(
        identity,
        Record(
            agent_id=name,
            instance_id=f"{name}-1",
            key=identity.public.hex(),
            addresses=["hermes://192.0.2.7:7891"],
            capabilities=capabilities,
            seq=seq,
            issued_ms=int(now * 1000),
            lease_s=60.0,
        ),
    )


def _refuses(act: Callable[[], None], what: str) -> None:
    try:
        act()
    except UsageError:
        return
    raise AssertionError(f"{what} must be refused with UsageError")
