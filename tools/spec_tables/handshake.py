"""The tables of docs/spec/handshake.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tools.spec_tables.words import KIB, matrix, table

from hermes_peer.core import bucket, config, peer, states
from hermes_peer.crypto import keys
from hermes_peer.crypto import messages as handshake
from hermes_peer.errors import ProtocolError


def contexts() -> str:
    rows = ((c.name.lower().replace("_", " "), f'`"{c.value[:-1].decode()}\\0"`') for c in keys.Context)
    return table(("what is signed", "context"), rows)


def link_states() -> str:
    return matrix("link", states.LinkState, states.LinkInput, states.LINK)


MEANING = {
    "agent": "the name it goes by; must be one that the other side grants to its key",
    "instance": "another in each process that runs under this key",
    "addr": "where it may be dialled",
    "types": "optional frame types that it understands; none exist yet",
    "frame": "largest frame body that it reads",
    "message": "largest message that it reads",
    "streams": "how many streams each side may have open",
    "window": "credit that it gives to every new stream",
    "session_window": "credit that it gives to the session",
    "resume_s": "how long it keeps a session without a link",
    "hb": "heartbeat, see session, section 5",
    "codecs": "payload encodings; one must be common",
    "tags": "free words for those who choose among agents",
    "seal": '"none" asks for an unsealed link (section 7), anything else does not',
    "host": "proof of being on one machine (section 7)",
    "keep": "never close an idle link",
    "product": "for people",
}
HB = {"idle_ms": "period without an open stream", "busy_ms": "period with one", "min_ms": "shortest that it bears"}
# As Caps.decode checks them; `checked` below holds each against it. Texts: their length.
RANGES: dict[str, tuple[int, int]] = {
    "agent": (1, 128),
    "instance": (1, 128),
    "frame": (1024, 1 << 32),
    "message": (1024, 1 << 40),
    "streams": (9, 1 << 20),
    "window": (4096, 1 << 40),
    "session_window": (48 * KIB, 1 << 50),
    "resume_s": (0, 10**9),
    "hb.idle_ms": (10, 10**9),
    "hb.busy_ms": (10, 10**9),
    "hb.min_ms": (0, 10**9),
}


def checked(name: str) -> tuple[int, int]:
    """The range of a capability, after the code was asked at both of its ends. AssertionError if it disagrees."""

    def taken(value: int) -> bool:
        caps: dict[str, Any] = {"agent": "a", "instance": "i", "session_window": 1 << 50}
        if name.startswith("hb."):
            caps["hb"] = {name[3:]: value}
        else:
            caps[name] = "x" * max(0, value) if name in ("agent", "instance") else value
        try:
            config.Caps.decode(msgspec.json.encode(caps))
        except ProtocolError:
            return False
        return True

    low, high = RANGES[name]
    assert taken(low) and taken(high) and not taken(low - 1) and not taken(high + 1), name
    return low, high


def power(n: int) -> str:
    return f"2^{n.bit_length() - 1}" if n >= 1 << 20 and n & (n - 1) == 0 else f"{n:,}"


def capabilities() -> str:
    rows = []
    members = [(f.name, f, MEANING[f.name]) for f in msgspec.structs.fields(config.Caps)]
    members += [(f"hb.{f.name}", f, HB[f.name]) for f in msgspec.structs.fields(config.Heartbeat)]
    for name, field, meaning in sorted(
        members, key=lambda m: [f.name for f in msgspec.structs.fields(config.Caps)].index(m[0].split(".")[0])
    ):
        default = field.default
        if field.required:
            shown = "required"
        elif isinstance(default, config.Heartbeat):
            shown = "{}"
        else:
            shown = f"`{msgspec.json.encode(default).decode()}`"
        low, high = checked(name) if name in RANGES else (None, None)
        bounds = "" if low is None else f"{power(low)} to {power(high or 0)}"
        if name == "session_window":
            bounds = f"`window` to {power(high or 0)}"
        rows.append((f"`{name}`", shown, bounds + (" characters" if name in ("agent", "instance") else ""), meaning))
    return table(("member", "default", "range", "meaning"), rows)


def handshake_limits() -> str:
    own = config.Config()
    rows = [
        ("body of a handshake message", f"{handshake.MAX_BODY:,} bytes"),
        ("capabilities", f"{handshake.MAX_CAPS:,} bytes"),
        ("AuthBlock body", f"a multiple of {handshake.BLOCK} bytes"),
        ("suites, best first", ", ".join(map(str, handshake.SUITES))),
        ("time for the other side, until its LINK has opened", f"{own.handshake_s:g} s"),
        (
            "unproven inbound links at once; of one address, older than a second",
            f"{own.half_open:,}; {own.half_open_address}",
        ),
        ("HELLOs whose `to` matched, of one address; at once", f"{bucket.RATE:g} in a second; {bucket.BURST:g}"),
        (
            "another instance in the place of one that is linked",
            f"at most {peer.SWAPS - 1} times in {peer.SWAPS_S:g} s",
        ),
    ]
    return table(("what", "limit"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "contexts": contexts,
    "link-states": link_states,
    "capabilities": capabilities,
    "handshake-limits": handshake_limits,
}
