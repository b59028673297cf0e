"""The generated tables of docs/spec: `python tools/spec_tables.py` writes them, `--check` says whether they are fresh.

Knows: which constant of the code stands in which table. Refuses to know: what the prose around it says.
Called by: `make docs`; tests/house/test_spec.py. A table stands between two comments, `begin: NAME` and `end: NAME`.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes_peer.agent import calling, outcomes
from hermes_peer.agent.durable import entry, inbox, lane, outbox, retry
from hermes_peer.core import bucket, budget, config, heartbeat, peer, places, states
from hermes_peer.crypto import keys, seal
from hermes_peer.crypto import messages as handshake
from hermes_peer.errors import BY_CODE, Code, ProtocolError
from hermes_peer.journal import operations as op
from hermes_peer.journal import rules, values
from hermes_peer.wire import frames, messages

SPEC = Path(__file__).resolve().parents[1] / "docs" / "spec"
MARK = re.compile(r"<!-- begin: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
KIB, MIB = 1024, 1024 * 1024


# ---------------------------------------------------------------- words


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def comments(thing: Any) -> dict[str, str]:
    """The comment behind each member or constant, as its source has it."""
    found = re.finditer(r"^ *(\w+)(?:: [^=\n]+)? = [^#\n]+#\s*(.+)$", inspect.getsource(thing), re.MULTILINE)
    return {match[1]: match[2].strip() for match in found}


def number(n: float) -> str:
    if isinstance(n, int) and n and n % MIB == 0:
        return f"{n // MIB:,} MiB"
    if isinstance(n, int) and n >= 16 * KIB and n % KIB == 0:
        return f"{n // KIB:,} KiB"
    return f"{n:,}" if isinstance(n, int) else f"{n:g}"


NAMES = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64"}


def layout(form: struct.Struct, fields: Iterable[str]) -> str:
    """`u64 n, u32 in_flight`: a struct of the code and the names of what it packs."""
    parts = re.findall(r"(\d*)([a-zA-Z])", form.format)
    return ", ".join(
        f"`{name}[{n}]`" if kind == "s" else f"`{NAMES[kind]} {name}`"
        for (n, kind), name in zip(parts, fields, strict=False)
    )


# ---------------------------------------------------------------- frames


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


# ---------------------------------------------------------------- handshake


def contexts() -> str:
    rows = ((c.name.lower().replace("_", " "), f'`"{c.value[:-1].decode()}\\0"`') for c in keys.Context)
    return table(("what is signed", "context"), rows)


def matrix(name: str, kinds: Iterable[enum.Enum], inputs: Iterable[enum.Enum], moves: Mapping[Any, enum.Enum]) -> str:
    inputs = list(inputs)
    rows = ((s.name, *(moves[s, i].name if (s, i) in moves else "–" for i in inputs)) for s in kinds)
    return table((name, *(i.name for i in inputs)), rows)


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


# ---------------------------------------------------------------- session


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
    skip = {"first_sequence", "half_open", "half_open_address", "handshake_s"}
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


# ---------------------------------------------------------------- messages


KINDS = {
    "OPEN": ("caller", "the first message of a stream"),
    "ITEM": ("both", "one item"),
    "ACCEPTED": ("called", "the work is on the called side's disk (durable, section 2)"),
    "END": ("called", "the answer; the last message of its direction"),
    "NOMORE": ("caller", "no more items; the last message of its direction"),
    "PROGRESS": ("called", "a sign of how far it is; may be passed over"),
    "RAW": ("both", "one item of plain bytes, counted with the others"),
}
FORMS = {
    "OPEN": "`u32 n`, envelope (n bytes), payload (a JSON object)",
    "ITEM": "`u64 index`, JSON",
    "ACCEPTED": "–",
    "END": "`u32 n`, envelope (n bytes), payload (JSON)",
    "NOMORE": "–",
    "PROGRESS": "JSON: `state`, `tokens_used`, `partial`",
    "RAW": "`u64 index`, bytes",
}


def kinds() -> str:
    rows = ((k.value, k.name, KINDS[k.name][0], FORMS[k.name], KINDS[k.name][1]) for k in messages.Kind)
    return table(("kind", "name", "from", "after the kind byte", "meaning"), rows)


ENVELOPE = {
    "type": "request or event in OPEN, response or error in END",
    "method": "what is called; empty: the default method of the called agent",
    "message_id": "required in OPEN; unique per caller",
    "ttl": "seconds left; null or absent: the default; 0 or less: spent",
    "trace_id": "handed on unchanged by whoever calls in turn",
    "span_id": "this call within the trace",
    "timestamp": "Unix time in ms, for people; nothing is decided by it",
    "attempt": "counts from 1",
    "own_id": "the application chose `message_id` (section 5)",
    "detach": "the handler goes on without its caller",
    "delivery": "volatile, or durable (durable, section 1)",
    "idempotency_key": "durable work only (durable, section 1)",
    "round": "durable work only (durable, section 5)",
    "items": "durable work only, in END (durable, section 4)",
    "parent_id": "`span_id` of the call whose handler makes this one, of the same trace; empty at its root",
}


def envelope() -> str:
    rows = []
    for field in msgspec.structs.fields(messages.Envelope):
        rows.append((f"`{field.name}`", f"`{msgspec.json.encode(field.default).decode()}`", ENVELOPE[field.name]))
    return table(("member", "default", "meaning"), rows)


CODES = {
    "SUCCESS": "never stands in an error object",
    "ERROR_UNKNOWN": "nobody can say; also: given up, outcome unknown",
    "ERROR_INVALID_REQUEST": "envelope or payload do not fit",
    "ERROR_TASK_TIMEOUT": "the time ran out",
    "ERROR_TOOL_NOT_FOUND": "no such method",
    "ERROR_AUTH_FAILED": "no proof of who calls",
    "ERROR_RESOURCE_EXHAUSTED": "too large, too many",
    "ERROR_INTERNAL": "the handler failed; its log has more",
    "ERROR_PERMISSION_DENIED": "the permission matrix says no",
    "ERROR_AGENT_UNAVAILABLE": "draining, full, or something that it needs is away",
    "ERROR_APPLICATION": "the application's own error; `reason` says which",
    "ERROR_RATE_LIMIT_EXCEEDED": "too often; see `retry_after`",
}


def codes() -> str:
    rows = (
        (c.value, c.name, CODES[c.name], f"`{BY_CODE[c].__name__}`" if c in BY_CODE else "`CallError`")
        for c in Code
        if c
    )
    return table(("code", "name", "meaning", "in the SDK"), rows)


def message_limits() -> str:
    rows = [
        ("`message_id`, `span_id`, `parent_id`, `idempotency_key`", f"{messages.ID_MAX} characters of printable ASCII"),
        ("`trace_id`", f"{messages.ID_MAX} characters"),
        ("`ttl` when absent", f"{calling.TTL_DEFAULT:g} s"),
        ("`ttl` at most; more is taken as this", f"{calling.TTL_MAX:,.0f} s"),
        ("an outcome is kept for", f"{outcomes.KEEP_S:g} s at least"),
        ("an outcome that is kept has at most", number(outcomes.ANSWER_MAX)),
        ("outcomes kept for one caller", number(outcomes.PEER_MAX)),
    ]
    return table(("what", "limit"), rows)


# ---------------------------------------------------------------- durable


_AGAIN = "above that of the stored outcome: run it again if that was"
DURABLE = {
    "delivery": ("OPEN", '"durable"'),
    "message_id": ("OPEN", "names the work for good, with the fingerprint of its submitter"),
    "own_id": ("OPEN", "the application chose `message_id`"),
    "idempotency_key": ("OPEN", "with submitter and method, a second name of the work"),
    "ttl": ("OPEN", "seconds that are left, anew whenever it is sent"),
    "attempt": ("OPEN", f"{_AGAIN} a retryable error"),
    "round": ("OPEN", f"{_AGAIN} any error; rises when an operator replays"),
    "items": ("END", "how many items the work has"),
}


def durable_envelope() -> str:
    known = {field.name for field in msgspec.structs.fields(messages.Envelope)}
    assert set(DURABLE) <= known
    return table(("member", "in", "meaning"), ((f"`{name}`", *said) for name, said in DURABLE.items()))


SENT_EVENTS = {
    "SENT": op.Attempt("m", 0),
    "MOVED": op.Move("m", b""),
    "ACCEPTED": op.MarkAccepted("m", 0),
    "RESULT": op.MarkDone("m", b""),
    "GIVEN UP": op.MarkDead("m", ""),
    "REPLAYED": op.Requeue("m", 0, "", 0),
}
TAKEN_EVENTS = {
    "BEGUN": op.Run(b"", "m"),
    "ITEMS": op.Append(b"", "m", 0, ()),
    "ENDED": op.Finish(b"", "m", b"", 0),
}


def sent_states() -> str:
    empty: dict[str, Any] = dict.fromkeys(("peer", "envelope", "payload", "digest"), b"")
    one = values.Sent(message_id="m", target="", method="", created_ms=0, expires_ms=0, **empty)
    rows = []
    for state in values.SentState:
        row = msgspec.structs.replace(one, state=state)
        cells = [
            rules.next_sent(row, o, values.Limits()).state.name if state in rules.SENT_RULES[type(o)] else "–"
            for o in SENT_EVENTS.values()
        ]
        rows.append((state.name, *cells, "yes" if state in rules.SENT_RULES[op.Discard] else "no"))
    return table(("submitter", *SENT_EVENTS, "may be forgotten"), rows)


def taken_states() -> str:
    empty: dict[str, Any] = dict.fromkeys(("principal", "envelope", "payload", "digest"), b"")
    none = values.Contract.NONE
    one = values.Taken(message_id="m", method="", contract=none, taken_ms=0, expires_ms=0, **empty)
    rows = []
    for state in values.TakenState:
        row = msgspec.structs.replace(one, state=state)
        cells = [
            rules.next_taken(row, o, values.Limits()).state.name if state in rules.TAKEN_RULES[type(o)] else "–"
            for o in TAKEN_EVENTS.values()
        ]
        rows.append((state.name, *cells, "yes" if state not in rules.OPEN_TAKEN else "no"))
    return table(("receiver", *TAKEN_EVENTS, "may be forgotten"), rows)


CONTRACTS = {
    values.Contract.NONE: (
        "nothing, so it is started at most once",
        "it is not run again; its outcome is `outcome_unknown`",
    ),
    values.Contract.IDEMPOTENT: ("running it twice does no more than running it once", "it is run again"),
    values.Contract.TRANSACTIONAL: (
        "its effects are written in one transaction with its outcome",
        "it is run again; what was not committed is not there",
    ),
}


def contracts() -> str:
    rows = ((f'"{c.value}"' if c else "none", *CONTRACTS[c]) for c in values.Contract)
    return table(("contract", "what its method promises", "RUNNING when its process dies"), rows)


def retries() -> str:
    spaced = f"{retry.FIRST_S:g} s, doubled each time up to {retry.LONGEST_S:g} s, and up to half of it more"
    rows = [
        ("no line, or line or session lost", "yes", f"within the ttl; {spaced}"),
        (
            "refused before it was accepted, retryable (draining, full)",
            "yes",
            f"within the ttl; at once if another instance is there, else {lane.AGAIN_S:g} s, or `retry_after`",
        ),
        (
            "ended with a retryable error",
            "yes, as a new attempt",
            f"{retry.TRIES} attempts in all; {spaced}, or `retry_after` if that is longer",
        ),
        ("refused, or ended with an error, that is not retryable", "no", ""),
        ("the ttl is spent", "no", f"what was accepted has {entry.LATE_S:g} s more to bring its answer"),
    ]
    return table(("what happened", "sent again", "how often, and when"), rows)


def durable_limits() -> str:
    bounds = values.Limits()
    rows = [
        (
            "`ttl` that a submitter gives if nothing is said; at most",
            f"{outbox.TTL_DEFAULT:,.0f} s; {outbox.TTL_MAX:,.0f} s",
        ),
        ("an outcome is kept, unless settled", f"{inbox.RETENTION_S:,.0f} s, and never less than the ttl"),
        ("envelope and payload; an outcome; an item", f"{number(bounds.body)} each"),
        ("open and dead works of one peer, either side", f"{bounds.rows_per_peer:,}"),
        ("the journal's file", number(bounds.size)),
        ("handlers of durable work at a time; more wait, accepted", f"{inbox.AT_ONCE}"),
        ("works on the way to one peer at a time", f"{lane.WINDOW}"),
    ]
    return table(("what", "limit"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "frame-types": frame_types,
    "flags": flags,
    "bodies": bodies,
    "sizes": sizes,
    "rekey": rekey,
    "reasons": reasons,
    "contexts": contexts,
    "link-states": link_states,
    "capabilities": capabilities,
    "handshake-limits": handshake_limits,
    "half-states": half_states,
    "session-states": session_states,
    "limits": limits,
    "heartbeats": heartbeats,
    "abuse": abuse,
    "kinds": kinds,
    "envelope": envelope,
    "codes": codes,
    "message-limits": message_limits,
    "durable-envelope": durable_envelope,
    "sent-states": sent_states,
    "taken-states": taken_states,
    "contracts": contracts,
    "retries": retries,
    "durable-limits": durable_limits,
}


# ---------------------------------------------------------------- the pages


def renewed(text: str) -> str:
    """The page with its tables made anew. KeyError for a marker that names no table."""
    return MARK.sub(lambda m: f"<!-- begin: {m[1]} -->\n{TABLES[m[1]]()}<!-- end: {m[1]} -->", text)


def stale() -> list[Path]:
    return [path for path in sorted(SPEC.glob("*.md")) if path.read_text() != renewed(path.read_text())]


def main(words: list[str]) -> int:
    pages = stale()
    for path in pages:
        if "--check" not in words:
            path.write_text(renewed(path.read_text()))
        print(f"{'stale' if '--check' in words else 'wrote'} {path.relative_to(SPEC.parents[1])}")
    return bool(pages) and "--check" in words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
