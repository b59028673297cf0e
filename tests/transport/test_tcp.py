"""transport/tcp: names, ports, silence."""

from __future__ import annotations

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
