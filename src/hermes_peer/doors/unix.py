"""The door on a Unix socket: the binary form, for processes of one host; the system says who is there.

Knows: sockets' files and owners, the two lengths of a message. Refuses to know: what messages mean (talk).
Called by: the agent's life (`socket=`, `hermes-peer run --socket`), by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_peer import HermesAgent, LinkError, UsageError
from hermes_peer.doors.desk import Desk
from hermes_peer.doors.talk import Talk
from hermes_peer.wire.invoke import (
    HEADER_SIZE,
    BadMessage,
    Message,
    Meta,
    decode_payload,
    encode_binary,
    read_header,
)

PAYLOAD_MAX = 5 * 1024 * 1024
PATH_MAX = 100
REST_S = 15.0  # from a message's first byte to its last
CONNECTIONS_MAX = 256
OPTIONS = frozenset({"path", "mode", "heartbeat_s", "dead_s"})
_LENGTH_AT = 56
_SKIPPED = ("unknown_type", "reserved")  # wrong, but what follows can still be found


class UnixDoor:
    """An open door. `address` is its path."""

    def __init__(self, agent: HermesAgent, path: Path, options: Mapping[str, Any]) -> None:
        self.address = str(path)
        self._desk = Desk(agent)
        self._path = path
        self._beats = {"heartbeat_s": options.get("heartbeat_s", 30.0), "dead_s": options.get("dead_s", 90.0)}
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._open: dict[asyncio.Task[None], Talk] = {}

    async def listen(self, mode: int) -> None:
        """Raises LinkError; a living socket, or anything that is not ours, is left alone (attacks 68, 69)."""
        sock = _bind(self._path, mode)
        self._inode = os.lstat(self._path).st_ino
        self._server = await asyncio.start_unix_server(self._talk, sock=sock, limit=64 * 1024)

    async def close(self) -> None:
        """Say goodbye and end."""
        assert self._server is not None
        self._server.close()
        with contextlib.suppress(OSError):
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        for talk in list(self._open.values()):
            with contextlib.suppress(Exception):
                await talk.goodbye("the agent ends")
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid is None or len(self._open) >= CONNECTIONS_MAX:
            writer.close()
            return

        async def write(meta: Meta, payload: dict[str, Any], binary: bool) -> None:
            writer.write(encode_binary(meta, payload))
            await writer.drain()

        async def close(code: int, reason: str) -> None:
            writer.close()

        talk = Talk(self._desk, f"door:uid:{uid}", write, close, **self._beats)
        talk.binary = True
        self._open[task] = talk
        beating = asyncio.ensure_future(talk.beat())
        try:
            await self._read(talk, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # gone, or we end
        finally:
            del self._open[task]
            beating.cancel()
            await asyncio.gather(beating, talk.over(), return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, talk: Talk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while not writer.is_closing():
            head = await reader.read(1)
            if not head:
                return
            talk.heard = loop.time()
            try:
                async with asyncio.timeout(REST_S):
                    head += await reader.readexactly(HEADER_SIZE - 1)
                    message = await self._rest(head, reader)
            except TimeoutError:
                await talk.unread(BadMessage("slow_message", f"a message comes whole within {REST_S:g} s"), True)
                return
            except BadMessage as error:
                await talk.unread(error, True)
                if error.reason not in _STAYS:
                    return
            else:
                await talk.take(message, True)

    async def _rest(self, head: bytes, reader: asyncio.StreamReader) -> Message:
        try:
            meta, length = read_header(head, payload_max=PAYLOAD_MAX)
        except BadMessage as error:
            length = int.from_bytes(head[_LENGTH_AT : _LENGTH_AT + 4], "big")
            if error.reason in _SKIPPED and length <= PAYLOAD_MAX:
                await reader.readexactly(length)
            raise
        return Message(meta, decode_payload(await reader.readexactly(length), meta))


_STAYS = (*_SKIPPED, "invalid_json", "payload_not_object")


async def start(agent: HermesAgent, wanted: str | Path | Mapping[str, Any]) -> UnixDoor:
    """Open the door at a path, or by a mapping with `path`, `mode` (0o600). Raises UsageError, LinkError."""
    options: dict[str, Any] = dict(wanted) if isinstance(wanted, Mapping) else {"path": wanted}
    unknown = sorted(options.keys() - OPTIONS)
    if unknown or not options.get("path"):
        raise UsageError(f"socket= takes a path, or a mapping with {', '.join(sorted(OPTIONS))}")
    path = Path(os.path.abspath(os.path.expanduser(options["path"])))
    if len(os.fsencode(path)) > PATH_MAX:
        raise UsageError(f"the path of a socket has at most {PATH_MAX} bytes: {path} is longer")
    door = UnixDoor(agent, path, options)
    await door.listen(options.get("mode", 0o600))
    return door


def _bind(path: Path, mode: int) -> socket.socket:
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _cannot(path, error) from None
    else:
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise LinkError(f"{path} exists and is no socket of this user; move it away or choose another path")
        if _lives(path):
            raise LinkError(f"another program listens at {path}; stop it or choose another path")
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o777 & ~mode)  # no moment in which others could connect; no await until it is set back
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _cannot(path, error) from None
    return sock


def _cannot(path: Path, error: OSError) -> LinkError:
    return LinkError(f"the door cannot listen at {path}: {(error.strerror or str(error)).lower()}")


def _lives(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def peer_uid(sock: Any) -> int | None:
    """The user at the other end, by the system's word; None where it has none."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
        return int(struct.unpack_from("2I", sock.getsockopt(0, 1, 76))[1])  # macOS: LOCAL_PEERCRED, struct xucred
    except (OSError, struct.error):
        return None
