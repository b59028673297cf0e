"""transport/unix: whose socket it is, its mode, stale ones."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from hermes_peer.errors import LinkError
from hermes_peer.testing.contracts import _End
from hermes_peer.transport import base, unix
from hermes_peer.wire.address import Address
from tests.loops import both_loops


@both_loops
@pytest.mark.attack(68)
async def test_nobody_else_may_connect_and_the_file_goes(tmp_path: Path, loop_kind: str) -> None:
    before = os.umask(0)
    try:
        listener = await base.listen(Address.unix(str(tmp_path / "s")), _End)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o600
    await listener.close()
    assert not (tmp_path / "s").exists()
    await listener.close()


async def test_a_stale_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    listener = await base.listen(Address.unix(str(path)), _End)
    with pytest.raises(LinkError, match="another running program"):
        await base.listen(Address.unix(str(path)), _End)
    assert path.exists()
    path.unlink()
    other = await base.listen(Address.unix(str(path)), _End)
    await listener.close()  # whose file is gone: it leaves the successor's alone
    assert path.exists()
    await other.close()
    assert not path.exists()


async def test_a_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "s").symlink_to(tmp_path / "real")
    with pytest.raises(LinkError, match="is not a socket of this user"):
        await base.listen(Address.unix(str(tmp_path / "s")), _End)
    assert (tmp_path / "real").exists()


@pytest.mark.attack(69)
async def test_a_socket_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = await base.listen(Address.unix(str(tmp_path / "s")), _End)
    monkeypatch.setattr(unix.os, "getuid", lambda: 4242)
    if os.stat(tmp_path / "s").st_uid:  # root's may be dialled by anybody
        with pytest.raises(LinkError, match="belongs to user"):
            await base.dial(listener.address, _End)
    await listener.close()
