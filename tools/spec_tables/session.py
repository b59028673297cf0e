"""The tables of docs/spec/session.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tools.spec_tables.words import comments, matrix, number, table

from hermes_peer.core import budget, config, heartbeat, peer, places, states
from hermes_peer.wire import frames


def half_states() -> str:
    rows = []
    for half in states.Half:
        for name, moves in (("sending", states.HALF), ("receiving", states.RECEIVING_HALF)):
            rows.append(
                (half.name, name, *(moves[half, i].name if (half, i) in moves else "–" for i in states.HalfInput))
            )
    return table(("half", "direction", *(i.name for i in states.HalfInput)), rows)


def session_states() -> str:
    return matrix("session", states.SessionState, states.SessionInput, states.SESSION)


def limits() -> str:
    said = comments(config.Config)
    own = {
        "frame": "frame body that is read", "message": "message that is read",
        "resume_s": "a session without a link is kept",
        "ack_frames": "ACK at the latest after so many DATA", "ack_bytes": "… after so many bytes of them",
        "ack_s": "… after so many seconds", "batch": "a record is closed at about this size within one turn",
        "handshake_s": "patience with a handshake",
    }  # fmt: skip
    skip = {"first_sequence", "half_open", "half_open_address", "handshake_s", "poll_s"}
    rows = []
    for field in dataclasses.fields(config.Config):
        if field.name not in skip:
            shown = number(field.default) if not isinstance(field.default, bool) else str(field.default).lower()
            rows.append((f"`{field.name}`", shown, own.get(field.name) or said[field.name]))
    rows.append(("`session_window`", number(config.Config().session_window), "2 × `streams` × `window` + `spare`"))
    rows.append(
        ("places kept", str(places.PLACES_KEPT), "the last places that a side keeps for calls back and `hermes.*`")
    )
    rows.append(
        (
            "under load",
            f"half for each {places.LOADED_MS} ms",
            "of the peer's `queue_ms`: how many of its `streams` a side has open at once; never fewer than "
            f"{places.CEILING_MIN}",
        )
    )
    rows.append(("least cost", str(frames.COST_MIN), "of a DATA frame in credit"))
    rows.append(("secrets kept", str(peer.GENERATIONS), "of a session's newest links, any of which the peer may offer"))
    rows.append(("attempts", str(peer.ATTEMPTS), "resume ids in turn for one secret"))
    return table(("limit", "default", "meaning"), rows)


def heartbeats() -> str:
    rows = [
        ("no stream open", "`idle`", f"{heartbeat.IDLE_MISSES} periods"),
        ("a stream open", "`busy`", f"{heartbeat.BUSY_MISSES} periods"),
    ]
    return table(("link", "period", "dead after"), rows)


def abuse() -> str:
    said = comments(budget) | {"PING": "a PING"}
    rows = [(f"{getattr(budget, name):g}", said[name]) for name in ("NOTHING", "CANCEL", "PING", "UNKNOWN", "FAULT")]
    rows.append((f"{budget.BUDGET:,.0f}", f"the budget of a session; {budget.REFILL:g} points come back each second"))
    return table(("points", "for"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "half-states": half_states,
    "session-states": session_states,
    "limits": limits,
    "heartbeats": heartbeats,
    "abuse": abuse,
}
