"""Frames: the 19-byte header and the bodies of fixed layout.

Knows: bytes and values (spec: frames). Refuses to know: which frame is legal when.
Called by: core, the vectors, the spec's tables.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

from hermes_peer.errors import ProtocolError

MAGIC = b"HRMP"
VERSION = 1
HEADER = struct.Struct(">4sBBBIII")
HEADER_SIZE = HEADER.size
MASK32 = 0xFFFFFFFF

FRAME_BODY = 16_384  # default limit of one body
FRAME_BODY_MAX = 65_517  # a whole frame must fit into one record
RECORD_PLAIN_MAX = 65_536
RECORD_TAG = 16
HANDSHAKE_MAX = 16_388  # handshake message with its own header
COST_MIN = 64  # what a DATA frame costs in credit at least
CLOSE_TEXT_MAX = 512
RESET_BODY_MAX = 4_096
LINK_BODY_MAX = 8_192


class Type(IntEnum):
    """What a frame is. 1-5 stand on the socket, the others inside a sealed record."""

    HELLO = 1
    WELCOME = 2
    READY = 3
    REFUSE = 4
    SEALED = 5
    LINK = 6
    DATA = 16
    CREDIT = 17
    ACK = 18
    PING = 19
    PONG = 20
    WARM = 21
    REKEY = 22
    CLOSE = 23


class Flag(IntFlag):
    """Flags of a frame; CRITICAL on an unknown type means: refuse if you do not know it."""

    SYN = 1
    FIN = 2
    RST = 4
    MORE = 8
    CRITICAL = 128


class Frame(NamedTuple):
    """A frame as a value; the hot paths never build one."""

    type: int
    flags: int
    stream: int
    sequence: int
    body: bytes


def encode(type: int, body: bytes = b"", *, flags: int = 0, stream: int = 0, sequence: int = 0) -> bytes:
    """The bytes of one frame."""
    return HEADER.pack(MAGIC, VERSION, type, flags, stream, sequence & MASK32, len(body)) + body


def split(data: bytes) -> list[Frame]:
    """The whole frames of `data`, which must end with one. Raises ProtocolError."""
    frames, at = [], 0
    while at < len(data):
        if len(data) - at < HEADER_SIZE:
            raise ProtocolError("a frame header is cut short")
        magic, version, kind, flags, stream, sequence, length = HEADER.unpack_from(data, at)
        if magic != MAGIC or version != VERSION:
            raise ProtocolError("a frame does not start with HRMP version 1")
        end = at + HEADER_SIZE + length
        if end > len(data):
            raise ProtocolError("a frame crosses the end of its record")
        frames.append(Frame(kind, flags, stream, sequence, data[at + HEADER_SIZE : end]))
        at = end
    return frames


# ---------------------------------------------------------------- bodies of fixed layout
_LINK = struct.Struct(">16sBQQ")
_PING = struct.Struct(">QIIBQI")
_CLOSE = struct.Struct(">BBII")
_U64 = struct.Struct(">Q")
_2U64 = struct.Struct(">QQ")
_REFUSE = struct.Struct(">BBB")
UNKNOWN_MARK = 0xFFFFFFFFFFFFFFFF


class Link(NamedTuple):
    """First sealed frame of each side: what I have of the session. `caps` only from the acceptor."""

    session: bytes
    resumed: bool
    recv_next: int
    send_next: int
    caps: bytes = b""

    def encode(self) -> bytes:
        return encode(Type.LINK, _LINK.pack(self.session, self.resumed, self.recv_next, self.send_next) + self.caps)

    @classmethod
    def decode(cls, body: bytes) -> Link:
        _enough(body, _LINK.size, "LINK")
        session, resumed, recv_next, send_next = _LINK.unpack_from(body)
        if resumed > 1:
            raise ProtocolError("LINK says neither resumed nor new")
        return cls(session, bool(resumed), recv_next, send_next, body[_LINK.size :])


class Credit(NamedTuple):
    """Absolute limits, never lowered. `streams` (how many may ever be opened) only on stream 0."""

    limit: int
    streams: int | None = None

    def encode(self, stream: int) -> bytes:
        if self.streams is None:
            return encode(Type.CREDIT, _U64.pack(self.limit), stream=stream)
        return encode(Type.CREDIT, _2U64.pack(self.limit, self.streams))

    @classmethod
    def decode(cls, body: bytes, stream: int) -> Credit:
        if stream:
            _enough(body, 8, "CREDIT")
            return cls(_U64.unpack_from(body)[0])
        _enough(body, 16, "CREDIT")
        return cls(*_2U64.unpack_from(body))


def encode_ack(next_sequence: int) -> bytes:
    return encode(Type.ACK, _U64.pack(next_sequence))


def decode_ack(body: bytes) -> int:
    _enough(body, 8, "ACK")
    number: int = _U64.unpack_from(body)[0]
    return number


class Ping(NamedTuple):
    """PING and PONG: a rising number, the sender's load, what it has received, how many links it holds."""

    n: int
    in_flight: int
    queue_ms: int
    accepting: bool
    ack: int
    links: int = 1

    def encode(self, type: Type) -> bytes:
        n, in_flight, queue_ms, accepting, ack, links = self
        return encode(type, _PING.pack(n, in_flight & MASK32, queue_ms & MASK32, accepting, ack, links & MASK32))

    @classmethod
    def decode(cls, body: bytes) -> Ping:
        _enough(body, _PING.size, "PING")
        n, in_flight, queue_ms, accepting, ack, links = _PING.unpack_from(body)
        return cls(n, in_flight, queue_ms, bool(accepting), ack, links)


class CloseMode(IntEnum):
    DRAIN = 0
    END = 1


class Close(NamedTuple):
    """The end of a link, or its announcement. `last_stream` is the highest id that was accepted."""

    mode: int
    code: int
    last_stream: int = MASK32
    reconnect_ms: int = 0
    text: str = ""

    def encode(self) -> bytes:
        text = self.text.encode("utf-8", "replace")[:CLOSE_TEXT_MAX]
        return encode(Type.CLOSE, _CLOSE.pack(self.mode, self.code, self.last_stream, self.reconnect_ms) + text)

    @classmethod
    def decode(cls, body: bytes) -> Close:
        _enough(body, _CLOSE.size, "CLOSE")
        text = body[_CLOSE.size : _CLOSE.size + CLOSE_TEXT_MAX].decode("utf-8", "replace")
        mode, code, last_stream, reconnect_ms = _CLOSE.unpack_from(body)
        return cls(mode, code, last_stream, reconnect_ms, text)


class Refuse(NamedTuple):
    """A clear refusal before any proof: shown as unproven, never a reason to offer less."""

    code: int
    versions: tuple[int, ...] = ()
    suites: tuple[int, ...] = ()
    retry_after: int = 0
    text: str = ""

    def encode(self) -> bytes:
        head = _REFUSE.pack(self.code, len(self.versions), len(self.suites))
        lists = struct.pack(f">{len(self.versions)}H", *self.versions) + bytes(self.suites)
        text = self.text.encode("utf-8", "replace")[:CLOSE_TEXT_MAX]
        return encode(Type.REFUSE, head + lists + struct.pack(">I", self.retry_after) + text)

    @classmethod
    def decode(cls, body: bytes) -> Refuse:
        _enough(body, _REFUSE.size, "REFUSE")
        code, versions, suites = _REFUSE.unpack_from(body)
        at = _REFUSE.size + 2 * versions + suites
        _enough(body, at + 4, "REFUSE")
        text = body[at + 4 : at + 4 + CLOSE_TEXT_MAX].decode("utf-8", "replace")
        return cls(
            code,
            struct.unpack_from(f">{versions}H", body, _REFUSE.size),
            tuple(body[_REFUSE.size + 2 * versions : at]),
            struct.unpack_from(">I", body, at)[0],
            text,
        )


def _enough(body: bytes, size: int, name: str) -> None:
    # A longer body is a newer version's: its tail is ignored (spec: frames, section 3).
    if len(body) < size:
        raise ProtocolError(f"a {name} body has {len(body)} bytes, {size} are needed")
