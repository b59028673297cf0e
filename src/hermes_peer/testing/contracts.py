"""Contract kits: published functions that prove a stranger's back end honest. They need no pytest.

Knows: what each port promises. Refuses to know: any implementation.
Called by: our tests and anybody who writes a back end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hermes_peer.errors import UsageError
from hermes_peer.registry.base import Registry
from hermes_peer.registry.record import BLOB_MAX, Record, sign_record

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
