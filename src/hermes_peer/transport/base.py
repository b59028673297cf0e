"""The ports of a transport, and the table from scheme to file.

Knows: what a byte pipe must do. Refuses to know: what the bytes mean. Called by: the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from hermes_peer.errors import LinkError, UsageError
from hermes_peer.wire.address import Address

WRITE_BUFFER = 64 * 1024  # above it pause: else priorities and round-trip times are fiction


class Sink(Protocol):
    """What stands above a pipe. All are called from the event loop, never from inside write()."""

    def connected(self, pipe: Pipe) -> None: ...
    def received(self, data: bytes) -> None: ...
    def writable(self) -> None: ...
    def lost(self) -> None: ...


class Pipe(Protocol):
    """One connection. `write` never blocks; after `paused` becomes true wait for `Sink.writable`."""

    paused: bool
    loopback: bool  # TCP, and both addresses are this machine's own
    remote: str  # where it leads, for people; for TCP the address without the port
    local: bool  # a Unix socket or memory: both ends are on this host

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Listener(Protocol):
    """Accepts until closed. `address` is what others may dial (without a fingerprint)."""

    address: Address

    async def close(self) -> None: ...


MakeSink = Callable[[], Sink]

# Scheme -> module with `dial(address, make_sink)` and `listen(address, make_sink)`.
SCHEMES = {
    "tcp": "hermes_peer.transport.tcp",
    "unix": "hermes_peer.transport.unix",
    "memory": "hermes_peer.transport.memory",
}


def _module(address: Address) -> Any:
    try:
        return import_module(SCHEMES[address.scheme])
    except KeyError:
        raise UsageError(f"no transport for the scheme of {address}: use hermes://HOST:PORT") from None


async def dial(address: Address, make_sink: MakeSink) -> None:
    """Connect; the sink hears `connected`. Raises LinkError with a plain sentence."""
    try:
        await _module(address).dial(address, make_sink)
    except OSError as error:
        raise LinkError(
            f"cannot connect to {address.endpoint}: {reason(error)}; check that the agent runs there"
        ) from None


async def listen(address: Address, make_sink: MakeSink) -> Listener:
    """Listen. Raises LinkError with a plain sentence."""
    try:
        listener: Listener = await _module(address).listen(address, make_sink)
        return listener
    except OSError as error:
        raise LinkError(
            f"cannot listen on {address.endpoint}: {reason(error)}; stop the other program or choose another port"
        ) from None


def reason(error: OSError) -> str:
    """The system's words for an error, without its number and address."""
    text = (error.strerror or str(error)).strip() or (
        "timed out" if isinstance(error, TimeoutError) else "no reason given"
    )
    if "Multiple exceptions" in text or "Errno" in text:
        text = text.split("] ", 1)[-1].split(",")[0].split(" (")[0]
    if "Connect call failed" in text or not text:
        text = "connection refused"
    return text[0].lower() + text[1:]
