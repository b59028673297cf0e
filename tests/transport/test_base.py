"""transport/base: the contract, for every scheme, on both loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_peer.errors import LinkError, UsageError
from hermes_peer.testing.contracts import _End, check_transport
from hermes_peer.transport import base
from hermes_peer.wire.address import Address
from tests.loops import both_loops


@both_loops
@pytest.mark.parametrize("scheme", ["tcp", "tcp6", "unix", "memory"])
async def test_the_contract(scheme: str, loop_kind: str, tmp_path: Path) -> None:
    address = {
        "tcp": Address.tcp("127.0.0.1", 0),
        "tcp6": Address.tcp("::1", 0),
        "unix": Address.unix(str(tmp_path / "s")),
        "memory": Address.memory("here"),
    }[scheme]
    if address.scheme == "tcp":
        import socket

        with socket.create_server(
            (address.host, 0), family=socket.AF_INET6 if ":" in address.host else socket.AF_INET
        ) as s:
            address = Address.tcp(address.host, s.getsockname()[1])
    await check_transport(address)


def test_the_systems_words() -> None:
    assert base.reason(OSError(111, "Connection refused")) == "connection refused"
    several = OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1)")
    assert base.reason(several) == "connection refused"
    assert base.reason(OSError()) == "no reason given"
    assert base.reason(TimeoutError()) == "timed out"


async def test_a_scheme_of_nobody() -> None:
    with pytest.raises(UsageError, match="no transport"):
        await base.dial(Address("carrier-pigeon"), _End)  # type: ignore[arg-type]


async def test_sentences(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=r"cannot connect to hermes://127.0.0.1:1: connection refused"):
        await base.dial(Address.tcp("127.0.0.1", 1), _End)
    with pytest.raises(LinkError, match=r"cannot connect to hermes://no\.such.host.invalid"):
        await base.dial(Address.tcp("no.such.host.invalid", 1), _End)
    with pytest.raises(LinkError, match="no such file"):
        await base.dial(Address.unix(str(tmp_path / "none")), _End)
    (tmp_path / "file").write_text("x")
    with pytest.raises(LinkError, match="is not a socket"):
        await base.listen(Address.unix(str(tmp_path / "file")), _End)
