"""What one side accepts (Config) and what both agreed on (Settings).

Knows: limits and their defaults (spec: session, section 2). Refuses to know: frames, peers.
Called by: everything in core; the SDK fills a Config.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from hermes_peer.errors import ProtocolError
from hermes_peer.wire.frames import FRAME_BODY, FRAME_BODY_MAX

KIB, MIB = 1024, 1024 * 1024
CAPS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Config:
    """Our own limits. Sizes in bytes, times in seconds unless the name says otherwise."""

    frame: int = FRAME_BODY
    message: int = 5 * MIB
    window: int = 48 * KIB  # receive window a stream starts with
    window_max: int = 4 * MIB  # up to which it grows
    streams: int = 128  # how many each side may have open
    spare: int = 4 * MIB  # what growing windows share
    permits: int = 2  # messages longer than their window, reassembled at once
    budget: int = 256 * MIB  # unread and unacknowledged bytes of all sessions of the process
    unacked: int = 32 * MIB  # what one peer may leave unconfirmed, however much it grants
    resume_s: float = 600.0
    idle_s: float = 15.0  # heartbeat without an open stream
    busy_s: float = 5.0  # heartbeat with one
    rest_s: float = 30.0  # after which an idle link rests
    close_s: float = 45.0  # after which a resting link closes
    keep: bool = False  # never close an idle link (no listener, subscriptions, keep_links)
    handshake_s: float = 5.0
    ack_frames: int = 32
    ack_bytes: int = 256 * KIB
    ack_s: float = 0.02
    batch: int = 8 * KIB
    rekey_s: float = 3600.0  # a direction's key is renewed at the latest, looked at every 64 records
    poll_s: float = 0.0002  # polled for an answer before the loop sleeps, where answers are that quick; 0: never
    half_open: int = 1024  # unproven inbound links at once
    half_open_address: int = 64  # of one address, once they are a second old
    first_sequence: int = 0  # tests start near 2^32

    @property
    def session_window(self) -> int:
        """Never less than all stream windows together: both sides' streams, and the spare (section 2)."""
        return 2 * self.streams * self.window + self.spare

    @property
    def min_s(self) -> float:
        return min(1.0, self.idle_s, self.busy_s)


class Heartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    idle_ms: int = 15_000
    busy_ms: int = 5_000
    min_ms: int = 1_000


class Caps(msgspec.Struct, frozen=True, omit_defaults=False):
    """What a side announces in the handshake (spec: handshake, section 5). Unknown members are ignored."""

    agent: str
    instance: str
    addr: tuple[str, ...] = ()
    types: tuple[int, ...] = ()
    frame: int = FRAME_BODY
    message: int = 5 * MIB
    streams: int = 128
    window: int = 48 * KIB
    session_window: int = 16 * MIB
    resume_s: float = 600.0
    hb: Heartbeat = Heartbeat()
    codecs: tuple[str, ...] = ("json",)
    tags: tuple[str, ...] = ()
    seal: str = "required"
    host: str = ""
    keep: bool = False
    product: str = ""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Caps:
        """Raises ProtocolError naming the member that cannot be used."""
        if len(data) > CAPS_MAX:
            raise ProtocolError(f"capabilities of {len(data)} bytes, at most {CAPS_MAX} are read")
        try:
            caps = _CAPS.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ProtocolError(f"capabilities cannot be read: {error}") from None
        for name, value, low, high in (
            ("agent", len(caps.agent), 1, 128),
            ("instance", len(caps.instance), 1, 128),
            ("frame", caps.frame, 1024, 1 << 32),
            ("message", caps.message, 1024, 1 << 40),
            ("streams", caps.streams, 9, 1 << 20),
            ("window", caps.window, 4096, 1 << 40),
            ("session_window", caps.session_window, caps.window, 1 << 50),
            ("resume_s", caps.resume_s, 0, 1e9),
            ("hb.idle_ms", caps.hb.idle_ms, 10, 10**9),
            ("hb.busy_ms", caps.hb.busy_ms, 10, 10**9),
            ("hb.min_ms", caps.hb.min_ms, 0, 10**9),
        ):
            if not low <= value <= high:
                raise ProtocolError(f"capability {name} = {value} lies outside {low} to {high}")
        return caps


_CAPS = msgspec.json.Decoder(Caps)


def caps_of(config: Config, agent: str, instance: str, **more: object) -> Caps:
    """The Caps that announce `config`."""
    return Caps(
        agent,
        instance,
        frame=config.frame,
        message=config.message,
        streams=config.streams,
        window=config.window,
        session_window=config.session_window,
        resume_s=config.resume_s,
        hb=Heartbeat(int(config.idle_s * 1000), int(config.busy_s * 1000), int(config.min_s * 1000)),
        keep=config.keep,
        **more,  # type: ignore[arg-type]
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """What two Caps agree on, seen from one side. Fixed by a session's first handshake."""

    frame: int
    message: int
    send_window: int  # the window that the peer gives a new stream
    send_session_window: int
    send_streams: int  # how many streams we may have open
    resume_s: float
    idle_s: float
    busy_s: float

    @classmethod
    def agree(cls, mine: Caps, theirs: Caps) -> Settings:
        """Sizes take the minimum, heartbeats the larger proposal. Raises ProtocolError naming both values."""
        idle = max(mine.hb.idle_ms, theirs.hb.idle_ms)
        busy = max(mine.hb.busy_ms, theirs.hb.busy_ms)
        floor = max(mine.hb.min_ms, theirs.hb.min_ms)
        if not set(mine.codecs) & set(theirs.codecs):
            raise ProtocolError(f"no common codec: {mine.codecs} here, {theirs.codecs} there")
        return cls(
            frame=min(mine.frame, theirs.frame, FRAME_BODY_MAX),
            message=min(mine.message, theirs.message),
            send_window=theirs.window,
            send_session_window=theirs.session_window,
            send_streams=min(mine.streams, theirs.streams),
            resume_s=min(mine.resume_s, theirs.resume_s),
            idle_s=max(idle, floor) / 1000,
            busy_s=max(busy, floor) / 1000,
        )
