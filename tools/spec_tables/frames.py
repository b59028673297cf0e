"""The tables of docs/spec/frames.md."""

from __future__ import annotations

from collections.abc import Callable

from tools.spec_tables.words import comments, layout, number, table

from hermes_peer.core import states
from hermes_peer.crypto import seal
from hermes_peer.wire import frames

WHERE = {
    "HELLO": ("socket", "a handshake message with its own header (handshake, section 3)"),
    "WELCOME": ("socket", "likewise"),
    "READY": ("socket", "likewise"),
    "REFUSE": ("socket", "section 3; unproven"),
    "SEALED": ("socket", "ciphertext of whole frames (section 4)"),
    "LINK": ("record", "section 3; the first frame of each side's first record"),
    "DATA": ("record", "part of a message, or the whole of it; with RST an error object"),
    "CREDIT": ("record", "section 3"),
    "ACK": ("record", "section 3"),
    "PING": ("record", "section 3"),
    "PONG": ("record", "section 3; `n` of the newest PING"),
    "WARM": ("record", "empty: the handler of this stream runs"),
    "REKEY": ("record", "empty; the last frame of its record"),
    "CLOSE": ("record", "section 3"),
}
FLAGS = {
    "SYN": "opens the stream (DATA)",
    "FIN": "the last message of this direction ends here (DATA)",
    "RST": "aborts both directions (DATA)",
    "MORE": "the message goes on in this stream's next DATA (DATA)",
    "CRITICAL": "on a type that is not known: refuse, do not ignore",
}


def frame_types() -> str:
    return table(("type", "name", "stands", "body"), ((t.value, t.name, *WHERE[t.name]) for t in frames.Type))


def flags() -> str:
    return table(("bit", "name", "meaning"), ((f.value, f.name, FLAGS[f.name or ""]) for f in frames.Flag))


def bodies() -> str:
    refuse = layout(frames._REFUSE, ("code", "n_versions", "n_suites"))
    rows = [
        (
            "LINK",
            layout(frames._LINK, frames.Link._fields),
            "the acceptor's capabilities (JSON); nothing from the dialler",
        ),
        ("CREDIT, stream n", layout(frames._U64, frames.Credit._fields), "ignored"),
        ("CREDIT, stream 0", layout(frames._2U64, frames.Credit._fields), "ignored"),
        ("ACK", "`u64 next`", "ignored"),
        ("PING, PONG", layout(frames._PING, frames.Ping._fields), "ignored"),
        (
            "CLOSE",
            layout(frames._CLOSE, frames.Close._fields),
            f"text, UTF-8; what is over {frames.CLOSE_TEXT_MAX} bytes is not read",
        ),
        ("REFUSE", refuse + ", then `u16` versions, `u8` suites, `u32 retry_after`", "text, as in CLOSE"),
    ]
    return table(("frame", "fixed part", "what follows"), rows)


def sizes() -> str:
    rows = [
        ("header", f"{frames.HEADER_SIZE}"),
        ("frame body, default limit", number(frames.FRAME_BODY)),
        ("frame body, most that can be agreed", number(frames.FRAME_BODY_MAX)),
        ("plaintext of a record", number(frames.RECORD_PLAIN_MAX)),
        ("tag of a record", number(frames.RECORD_TAG)),
        ("handshake message with its own header", number(frames.HANDSHAKE_MAX)),
        ("LINK body", number(frames.LINK_BODY_MAX)),
        ("error object in RST", number(frames.RESET_BODY_MAX)),
        ("text in CLOSE and REFUSE", number(frames.CLOSE_TEXT_MAX)),
    ]
    return table(("what", "bytes"), rows)


def rekey() -> str:
    rows = [
        ("a sender renews its key after", f"2^{seal.SEND_RECORDS.bit_length() - 1} records, "
         f"{seal.SEND_BYTES // 2**30} GiB or {seal.SEND_MS // 60_000} minutes, whichever comes first"),
        ("a receiver ends the link at", f"2^{seal.RECEIVE_RECORDS.bit_length() - 1} records or "
         f"{seal.RECEIVE_BYTES // 2**30} GiB under one key"),
        ("between two REKEY of one direction lie at least", f"{seal.REKEY_INTERVAL_MS:,} ms"),
    ]  # fmt: skip
    return table(("rule", "limit"), rows)


def reasons() -> str:
    said = comments(states.Reason) | {
        "NONE": "no reason, or one that this side does not know",
        "BUSY": "too much to do; later perhaps",
        "DRAINING": "it is about to stop and takes nothing new",
        "IDLE": "nothing to carry; dial again when there is",
        "SHUTDOWN": "the process ends",
    }
    rows = (
        (r.value, r.name, said[r.name], "yes" if r in states.CLEAR else "", "yes" if r in states.FINAL else "")
        for r in states.Reason
    )
    return table(("code", "name", "meaning", "may stand in REFUSE", "do not dial again by yourself"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "frame-types": frame_types,
    "flags": flags,
    "bodies": bodies,
    "sizes": sizes,
    "rekey": rekey,
    "reasons": reasons,
}
