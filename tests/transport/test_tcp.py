"""transport/tcp: names, ports, silence."""

from __future__ import annotations

import asyncio
import socket

import pytest

from hermes_peer.errors import LinkError
from hermes_peer.testing.contracts import _End
from hermes_peer.transport import base, tcp
from hermes_peer.transport.sockets import is_loopback
from hermes_peer.wire.address import Address
from tests.loops import until


async def test_a_free_port_is_told_and_is_one_for_all_that_the_name_stands_for() -> None:
    listener = await base.listen(Address.tcp("localhost", 0), _End)
    assert listener.address.port
    ports = {sock.getsockname()[1] for sock in listener._sockets}  # type: ignore[attr-defined]
    assert ports == {listener.address.port}
    end = _End()
    await base.dial(listener.address, lambda: end)
    assert end.pipe is not None and not end.pipe.local and end.pipe.remote in ("127.0.0.1", "::1")
    assert end.pipe.loopback
    end.pipe.close()
    await until(lambda: end.losses == 1)
    await listener.close()


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False), ("fe80::1%lo", False), ("unix", False), ("?", False), ("localhost", False),
    ],
)  # fmt: skip
def test_what_is_loopback(address: str, own: bool) -> None:
    assert is_loopback(address) is own


async def test_a_silent_address_costs_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "CONNECT_S", 0.1)
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = [socket.socket() for _ in range(4)]  # its queue is full: the kernel answers nobody
    for sock in waiting:
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
    with pytest.raises(LinkError, match=r"no answer within 0\.1 s"):
        await base.dial(Address.tcp("127.0.0.1", full.getsockname()[1]), _End)
    for sock in (*waiting, full):
        sock.close()


async def test_a_port_in_use_names_what_to_do() -> None:
    listener = await base.listen(Address.tcp("127.0.0.1", 0), _End)
    with pytest.raises(LinkError, match="stop the other program or choose another port"):
        await base.listen(listener.address, _End)
    await listener.close()
    again = await base.listen(listener.address, _End)  # at once
    await again.close()


@pytest.mark.attack(62)
@pytest.mark.parametrize(
    ("host", "number", "meant"),
    [
        ("peer.example", "203.0.113.7", True),
        ("peer.example", "10.0.0.7", True),
        ("peer.example", "127.0.0.1", False),
        ("peer.example", "::1", False),
        ("peer.example", "::ffff:127.0.0.1", False),
        ("peer.example", "169.254.169.254", False),
        ("peer.example", "::ffff:169.254.169.254", False),
        ("peer.example", "fe80::1%eth0", False),
        ("peer.example", "0.0.0.0", False),
        ("peer.example", "::", False),
        ("peer.example", "224.0.0.1", False),
        ("localhost", "127.0.0.1", True),
        ("a.localhost", "::1", True),
        ("localhost", "169.254.169.254", False),
        (socket.gethostname(), "127.0.1.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
    ],
)
def test_where_a_name_may_lead(host: str, number: str, meant: bool) -> None:
    assert tcp.is_meant(host, number) is meant


@pytest.mark.attack(62)
async def test_a_name_that_leads_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that was judged is the number that is dialled: the name is asked for once."""
    asked = []

    async def poisoned(host: str, port: int, **how: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", poisoned)
    with pytest.raises(LinkError, match=r"peer\.example resolves to this machine"):
        await base.dial(Address.tcp("peer.example", 7891), lambda pipe: None)  # type: ignore[arg-type,return-value]
    assert asked == ["peer.example"]
