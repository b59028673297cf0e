"""Writes `conformance/vectors/frames.json`: `python -m tests.interop.vectors_frames` from the root of the repository.

Knows: an example of every frame, body and message, and of what must be refused. Refuses to know: how it is refused;
each bad one is shown to our own code before it is written. Called by: a person, after a change of the spec;
test_vectors_frames checks that the file is fresh.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

from hermes_peer.agent import serving
from hermes_peer.agent.calling import Outgoing
from hermes_peer.agent.inbound import Inbound
from hermes_peer.agent.streams import StreamCall
from hermes_peer.core.config import caps_of
from hermes_peer.crypto.seal import SealError
from hermes_peer.errors import CallError, Code, ProtocolError, error_body
from hermes_peer.wire import frames, messages
from hermes_peer.wire.frames import Close, CloseMode, Credit, Flag, Link, Ping, Refuse, Type, encode
from hermes_peer.wire.messages import Envelope, Kind, check_envelope, encode_open, pack_item, split_envelope
from hermes_peer.wire.objects import Party, decode_object, encode_object
from tests.core.rig import World

PATH = Path(__file__).parents[2] / "conformance" / "vectors" / "frames.json"
SESSION = bytes(range(0xC0, 0xD0))
NOTHING_KNOWN = frames.UNKNOWN_MARK
CAPS = b'{"agent":"b","instance":"b-1"}'
ERROR = error_body(CallError("no_paper", "the tray is empty", details={"tray": 2}, retryable=True, retry_after=1.5))

ABOUT = (
    "Known frames, bodies and messages (spec: frames, messages). Bytes are lower-case hex, u64 fields decimal "
    "text, since JSON readers lose digits above 2^53. A reason is a sentence for people, not a text to compare."
)
ABOUT_RECORDS = (
    "Plaintexts of one record each, as the acceptor of a new session receives them behind the dialler's LINK (which "
    "itself is not shown). Both sides announced the default capabilities, nothing was sent before, DATA counts from 0, "
    "the dialler opens odd streams. An accepted one leaves the link open; a refused one ends it with CLOSE(PROTOCOL)."
)
ABOUT_MESSAGES = (
    "`at` says who receives a bad message: `caller` waits for the answer of a stream whose next item has index 0, "
    "`called` has read an OPEN without FIN and waits for item 0, `opened` reads the first message of a stream. "
    "`ends` says what that costs: the link (CLOSE(PROTOCOL)) or the call alone (an error, of code `code`)."
)

ABOUT_OBJECTS = (
    "Messages as one JSON object each (messages, section 6), and what they say. `envelope` leaves out what has its "
    "default."
)

Json = dict[str, Any]


def plain_of(value: Any) -> Any:
    """Bytes as hex, whole numbers from 2^53 up and every u64 as text, the rest as it is."""
    return value.hex() if isinstance(value, bytes) else value


def u64(number: int) -> str:
    return str(number)


# ---------------------------------------------------------------- frames


def good_frames() -> Iterator[tuple[str, bytes, Json]]:
    yield "HELLO", encode(Type.HELLO, b"\x01\0\0\x02hi"), {"message": b"\x01\0\0\x02hi"}
    yield "WELCOME", encode(Type.WELCOME, b"\x02\0\0\x02hi"), {"message": b"\x02\0\0\x02hi"}
    yield "READY", encode(Type.READY, b"\x03\0\0\x02hi"), {"message": b"\x03\0\0\x02hi"}
    refuse = Refuse(2, (1, 258), (1, 2), 30, "no common suite")
    yield "REFUSE", refuse.encode(), fields_of(refuse)
    bare = Refuse(4)
    yield "REFUSE that lists nothing", bare.encode(), fields_of(bare)
    yield "SEALED, as a header sees it", encode(Type.SEALED, bytes(16), sequence=5), {"counter": 5}
    link = Link(SESSION, False, NOTHING_KNOWN, 0, CAPS)
    yield "LINK of an acceptor, a new session", link.encode(), link_fields(link)
    link = Link(SESSION, True, 2**32 + 7, 9)
    yield "LINK of a dialler, a resumed session", link.encode(), link_fields(link)
    yield "DATA that opens a stream", data(b"abc", Flag.SYN, 1, 0), {}
    yield "DATA that opens a stream and ends this side", data(b"abc", Flag.SYN | Flag.FIN, 1, 0), {}
    yield "DATA, a whole message", data(b"abc", 0, 0x01020304, 0x05060708), {}
    yield "DATA, a message that goes on", data(b"ab", Flag.MORE, 2, 1), {}
    yield "DATA, the last of this side", data(b"c", Flag.FIN, 2, 2), {}
    yield "DATA whose number is above 32 bits", data(b"abc", 0, 3, 2**32 + 5), {"number": u64(2**32 + 5)}
    body = msgspec.json.encode(ERROR)
    yield "DATA that aborts a stream", data(body, Flag.RST, 4, 3), {"error": ERROR}
    yield "DATA that aborts a stream without a word", data(b"", Flag.RST, 4, 4), {}
    yield "CREDIT of the session", Credit(2**40, 144).encode(0), {"limit": u64(2**40), "streams": u64(144)}
    yield "CREDIT of a stream", Credit(98_304).encode(7), {"limit": u64(98_304)}
    yield "ACK", frames.encode_ack(2**32 + 8), {"next": u64(2**32 + 8)}
    ping = Ping(3, 2, 40, True, 2**33, 1)
    yield "PING", ping.encode(Type.PING), ping_fields(ping)
    ping = Ping(2**63, 0, 0, False, 0, 1000)
    yield "PONG", ping.encode(Type.PONG), ping_fields(ping)
    yield "WARM", encode(Type.WARM, stream=5), {}
    yield "REKEY", encode(Type.REKEY), {}
    for close in (
        Close(CloseMode.DRAIN, 5),
        Close(CloseMode.END, 6, 0, 0, "this key is not trusted here"),
        Close(CloseMode.END, 13, 41, 2000, "bis später"),
    ):
        yield f"CLOSE, mode {CloseMode(close.mode).name}, code {close.code}", close.encode(), fields_of(close)
    yield "a type that nobody knows yet", encode(99, b"?", flags=0x40), {}


def data(body: bytes, flags: int, stream: int, number: int) -> bytes:
    return encode(Type.DATA, body, flags=flags, stream=stream, sequence=number)


def fields_of(value: Any) -> Json:
    return dict(value._asdict())


def link_fields(link: Link) -> Json:
    marks = {"recv_next": u64(link.recv_next), "send_next": u64(link.send_next)}
    return fields_of(link) | marks | {"caps": link.caps.decode()}


def ping_fields(ping: Ping) -> Json:
    return fields_of(ping) | {"n": u64(ping.n), "ack": u64(ping.ack)}


def bad_frames() -> Iterator[tuple[str, str, bytes, str]]:
    """(name, layer, bytes, reason): `header` is not a row of whole frames, `body` has a bad body in a good frame."""
    one = encode(Type.ACK, bytes(8))
    yield "another magic", "header", b"HRMQ" + one[4:], "the magic is not HRMP"
    yield "another version", "header", one[:4] + b"\x02" + one[5:], "the version is not 1"
    yield "half a header", "header", one[:18], "a header has 19 bytes"
    yield "half a body", "header", one[:-1], "length announces more than there is"
    yield "a frame and a half", "header", one + one[:-1], "the second frame crosses the end"
    for type, body in (
        (Type.LINK, bytes(33)),
        (Type.ACK, bytes(8)),
        (Type.PING, bytes(29)),
        (Type.PONG, bytes(29)),
        (Type.CLOSE, bytes(10)),
        (Type.REFUSE, bytes(7)),
    ):
        short = encode(type, body[:-1])
        yield f"{type.name} one byte short", "body", short, f"a {type.name} body has at least {len(body)} bytes"
    yield "CREDIT of the session, one byte short", "body", encode(Type.CREDIT, bytes(15)), "16 bytes on stream 0"
    yield "CREDIT of a stream, one byte short", "body", encode(Type.CREDIT, bytes(7), stream=3), "8 bytes on a stream"
    wrong = bytearray(frames.Link(SESSION, False, 0, 0).encode())
    wrong[19 + 16] = 2
    yield "LINK neither new nor resumed", "body", bytes(wrong), "`resumed` is 0 or 1"
    lists = encode(Type.REFUSE, b"\x02\x09\x02" + bytes(10))
    yield "REFUSE whose lists cross its end", "body", lists, "the counts announce more than there is"


DECODERS: dict[int, Callable[[frames.Frame], object]] = {
    Type.LINK: lambda f: Link.decode(f.body),
    Type.CREDIT: lambda f: Credit.decode(f.body, f.stream),
    Type.ACK: lambda f: frames.decode_ack(f.body),
    Type.PING: lambda f: Ping.decode(f.body),
    Type.PONG: lambda f: Ping.decode(f.body),
    Type.CLOSE: lambda f: Close.decode(f.body),
    Type.REFUSE: lambda f: Refuse.decode(f.body),
}


def refused_by(layer: str, raw: bytes) -> bool:
    """Whether our own code refuses it, and for that layer."""
    try:
        found = frames.split(raw)
    except ProtocolError:
        return layer == "header"
    if layer == "header":
        return False
    try:
        DECODERS[found[0].type](found[0])
    except ProtocolError:
        return layer == "body"
    return False


# ---------------------------------------------------------------- records

OPEN = encode_open(Envelope(method="m", message_id="1"), b"{}")
FULL = b"".join(data(b"x", 0 if n else Flag.SYN, 1, n) for n in range(768))  # 48 KiB of credit, in the smallest coin


def accepted_records() -> Iterator[tuple[str, bytes]]:
    first = data(OPEN, Flag.SYN, 1, 0)
    yield "a call", data(OPEN, Flag.SYN | Flag.FIN, 1, 0)
    yield "a call whose OPEN comes in two parts", data(OPEN[:9], 9, 1, 0) + data(OPEN[9:], Flag.FIN, 1, 1)
    yield "two calls at once", first + data(OPEN, Flag.SYN, 3, 1)
    yield "an id may be passed over", data(OPEN, Flag.SYN, 9, 0)
    yield "a number that was seen already is dropped", first + first
    yield "a frame of a stream that is over is counted and dropped", first + data(b"", 4, 1, 1) + data(b"x", 0, 1, 2)
    yield "an abort on top of an abort", first + data(b"", 4, 1, 1) + data(b"", 4, 1, 2)
    yield "all of the stream's credit", FULL
    yield "an unknown type", encode(99, b"?")
    yield "an unknown flag", data(OPEN, Flag.SYN | 0x40, 1, 0)
    yield "a body that is longer than today's", encode(Type.ACK, bytes(12))
    yield "a limit that is lower than before", encode(Type.CREDIT, bytes(16))
    yield "CREDIT of a stream that is over", Credit(1).encode(1)
    yield "WARM of a stream that is over", encode(Type.WARM, stream=1)
    yield "the next key", encode(Type.REKEY)
    yield "PING", Ping(1, 0, 0, True, 0).encode(Type.PING)


def refused_records() -> Iterator[tuple[str, bytes, str]]:
    first = data(OPEN, Flag.SYN, 1, 0)
    yield "half a frame", first[:-1], "a frame crosses the end of its record"
    yield "a number is missing", data(OPEN, Flag.SYN, 1, 1), "0 must come first"
    yield "no SYN", data(OPEN, 0, 1, 0), "stream 1 begins without SYN"
    yield "an abort of what never began", data(b"", Flag.RST, 1, 0), "stream 1 begins without SYN"
    yield "SYN twice", first + data(OPEN, Flag.SYN, 1, 1), "stream 1 is open"
    yield "stream 0", data(OPEN, Flag.SYN, 0, 0), "0 is no stream"
    yield "an id of the other side", data(OPEN, Flag.SYN, 2, 0), "even ids are the acceptor's, who has opened none"
    yield "an empty DATA", first + data(b"", 0, 1, 1), "DATA without RST has at least one byte"
    yield "an empty DATA that ends", first + data(b"", Flag.FIN, 1, 1), "FIN stands on the last message"
    yield "MORE and FIN", first + data(b"x", Flag.MORE | Flag.FIN, 1, 1), "a message cannot both end and go on"
    yield "DATA behind FIN", data(OPEN, 3, 1, 0) + data(b"x", 0, 1, 1), "this side's half has ended"
    yield "ACK of what was never sent", frames.encode_ack(1), "nothing was sent"
    yield "PING with such an ack", Ping(1, 0, 0, True, 1).encode(Type.PING), "nothing was sent"
    yield "a second LINK", Link(SESSION, False, 0, 0).encode(), "LINK comes once, as the first frame"
    yield "a handshake frame under seal", encode(Type.HELLO, b"x"), "types 1 to 5 stand outside of records"
    yield "type 0", encode(0), "types below 7 are never ignored"
    yield "an unknown type that is critical", encode(99, flags=Flag.CRITICAL), "CRITICAL: refuse what you do not know"
    yield "two rekeys within a second", encode(Type.REKEY) * 2, "at most one a second"
    yield (
        "more than the stream's credit",
        FULL + data(b"x", 0, 1, 768),
        "769 times 64 are over 49,152",
    )


def outcome_of(plain: bytes) -> bool:
    """Whether our own acceptor, met as ABOUT_RECORDS says, keeps the link after this record."""
    world = World().connect()
    session = world.lb.session
    assert session is not None and not session.originator
    try:
        session.receive(plain, world.now, world.lb._frame)
    except (ProtocolError, SealError):
        return False
    return True


# ---------------------------------------------------------------- messages


def good_messages() -> Iterator[tuple[str, bytes, Json]]:
    least = Envelope(method="text.shout", message_id="n-1")
    yield "OPEN, the least of it", encode_open(least, b'{"text":"a"}'), {"payload": {"text": "a"}}
    full = Envelope(
        "event", "order.paid", "n-2", 2.5, "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", 1_700_000_000_000
    )
    full.attempt, full.own_id, full.detach, full.idempotency_key = 2, True, True, "order-7"
    full.parent_id = "53995c3f42cd8ad8"
    yield "OPEN with every member", encode_open(full, b"{}"), {"payload": {}}
    unknown = b'{"method":"m","message_id":"n-3","later":[1]}'
    yield (
        "OPEN with a member that came later",
        b"\1" + len(unknown).to_bytes(4, "big") + unknown + b"{}",
        {"payload": {}},
    )
    yield "END, a result", messages.RESPONSE_HEAD + b'{"n":1}', {"payload": {"n": 1}}
    yield "END, no value", messages.RESPONSE_HEAD + b"null", {"payload": None}
    yield "END, an error", messages.ERROR_HEAD + msgspec.json.encode(ERROR), {"payload": ERROR}
    yield "ITEM", pack_item(Kind.ITEM, 0) + b'"a"', {"index": u64(0), "value": "a"}
    yield "RAW", pack_item(Kind.RAW, 2**32) + b"\0\xff", {"index": u64(2**32), "bytes": b"\0\xff"}
    yield "RAW, no bytes", pack_item(Kind.RAW, 1), {"index": u64(1), "bytes": b""}
    yield "NOMORE", messages.NOMORE_MESSAGE, {}
    progress = {"state": "reading", "tokens_used": 12, "partial": [1]}
    yield "PROGRESS", messages.PROGRESS_HEAD + msgspec.json.encode(progress), {"value": progress}


def objects_of_messages() -> Iterator[tuple[str, bytes]]:
    from_, to = Party("planner", "planner-1", "hermes://10.0.0.1:7891"), Party("worker")
    envelope = Envelope("request", "text.shout", "n-1", 2.5, "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    envelope.timestamp, envelope.parent_id = 1_700_000_000_000, "53995c3f42cd8ad8"
    yield "a request", encode_object(envelope, b'{"text":"a"}', from_=from_, to=to, version="2.1")
    answer = Envelope("error", message_id="n-1", timestamp=1_700_000_000_020)
    yield "an error, signed", encode_object(answer, msgspec.json.encode(ERROR), from_=to, to=from_, signature="…")


def bad_messages() -> Iterator[tuple[str, str, bytes, bool, str, str]]:
    """(name, at, message, fin, ends, reason)."""

    def opened(envelope: bytes) -> bytes:
        return b"\1" + len(envelope).to_bytes(4, "big") + envelope + b"{}"

    yield "no OPEN", "opened", pack_item(Kind.ITEM, 0) + b"1", False, "link", "a stream begins with OPEN"
    yield "OPEN cut short", "opened", b"\1\0\0", True, "call", "the envelope's length is missing"
    yield "OPEN with half an envelope", "opened", b"\1\0\0\0\x09{}", True, "call", "the envelope crosses the end"
    yield "an envelope that is no JSON", "opened", opened(b"{"), True, "call", "JSON"
    yield "an envelope that is no object", "opened", opened(b"[]"), True, "call", "the envelope is an object"
    yield "ttl as text", "opened", opened(b'{"method":"m","message_id":"1","ttl":"5"}'), True, "call", "a number"
    yield "no message_id", "opened", opened(b'{"method":"m"}'), True, "call", "message_id is missing"
    long = b'{"method":"m","message_id":"' + b"1" * 129 + b'"}'
    yield "a long message_id", "opened", opened(long), True, "call", "at most 128 characters"
    odd = '{"method":"m","message_id":"ä"}'.encode()
    yield "a message_id that is not ASCII", "opened", opened(odd), True, "call", "printable ASCII"
    answer = b'{"type":"response","method":"m","message_id":"1"}'
    yield "OPEN of an answer", "opened", opened(answer), True, "call", "request or event"
    never = b'{"method":"m","message_id":"1","attempt":0}'
    yield "attempt 0", "opened", opened(never), True, "call", "attempts count from 1"
    yield "an item too early", "caller", pack_item(Kind.ITEM, 1) + b"1", False, "link", "0 comes first"
    yield "half an index", "caller", b"\2\0\0\0", False, "link", "an index has 8 bytes"
    yield "FIN on an item", "caller", pack_item(Kind.ITEM, 0) + b"1", True, "link", "only END ends an answer"
    yield "END without FIN", "caller", messages.RESPONSE_HEAD + b"1", False, "link", "END ends its stream"
    yield "OPEN for an answer", "caller", OPEN, True, "link", "an answer is ITEM, RAW, PROGRESS, END"
    yield "a kind that nobody knows", "caller", b"\x63", False, "link", "kinds are never ignored"
    yield "a result that is no JSON", "caller", messages.RESPONSE_HEAD + b"{", True, "call", "JSON"
    yield "an item too early, upwards", "called", pack_item(Kind.RAW, 1) + b"1", False, "link", "0 comes first"
    yield "NOMORE without FIN", "called", messages.NOMORE_MESSAGE, False, "link", "NOMORE ends its side"
    yield "END, upwards", "called", messages.RESPONSE_HEAD + b"1", True, "link", "callers send ITEM, RAW, NOMORE"


def cost_of(at: str, message: bytes, fin: bool) -> str:
    """What our own code makes of it: "link", "call" or "nothing"."""
    session = SimpleNamespace(consumed=lambda *_: None)
    settled: list[Any] = []
    try:
        if at == "opened":
            return opened_by(message, fin, session)
        if at == "caller":
            call = SimpleNamespace(session=session, stream=None, index=0, reading=True, items=deque(), waiter=None)
            call.settle = lambda value, error: settled.append(error)
            call.end = partial(Outgoing.end, call)
            StreamCall.message(call, message, fin, 64)  # type: ignore[arg-type]
        else:
            served = SimpleNamespace(session=session, stream=None, _index_in=0, _incoming=deque(), _done=False)
            served._waiter = None
            Inbound.message(served, message, fin, 64)  # type: ignore[arg-type]
    except ProtocolError:
        return "link"
    return "call" if settled and settled[0] is not None else "nothing"


def opened_by(message: bytes, fin: bool, session: Any) -> str:
    """What the called side makes of a stream's first message; it has no method, which is found out later."""

    class Refused:
        def __init__(self, _: Any, contact: Any, session: Any, stream: Any, envelope: Any) -> None:
            self.contact, self.session, self.stream, self.envelope = contact, session, stream, envelope

        def finished(self, value: Any, error: BaseException) -> None:
            refusals.append(error)

    refusals: list[Any] = []
    server = SimpleNamespace(served=0, draining=True)  # the first thing to be asked after the envelope was read
    server._admit = partial(serving.Server._admit, server)
    server.take = partial(serving.Server.take, server)
    with patch.object(serving, "Inbound", Refused):
        serving.Server.serve(server, SimpleNamespace(session=session), SimpleNamespace(), message, fin, 64)  # type: ignore[arg-type]
    return "call" if refusals[0].code is Code.ERROR_INVALID_REQUEST else "nothing"


def fields_of_message(message: bytes, more: Json) -> Json:
    kind = Kind(message[0])
    out: Json = {"kind": int(kind)}
    if kind in (Kind.OPEN, Kind.END):
        envelope, _ = split_envelope(message)
        assert kind is Kind.END or not check_envelope(envelope)
        out["envelope"] = json.loads(message[5 : 5 + int.from_bytes(message[1:5], "big")])
    return out | more


# ---------------------------------------------------------------- the file


def build() -> Json:
    """The whole file. AssertionError where our own code disagrees with it."""
    good = []
    for name, raw, fields in good_frames():
        (one,) = frames.split(raw)
        header = {"type": one.type, "flags": one.flags, "stream": one.stream, "sequence": one.sequence}
        good.append({"name": name, "frame": raw, **header, "body": one.body, "fields": fields})
    bad = []
    for name, layer, raw, reason in bad_frames():
        assert refused_by(layer, raw), name
        bad.append({"name": name, "layer": layer, "bytes": raw, "reason": reason})
    accepted = [{"name": name, "plain": plain} for name, plain in accepted_records()]
    refused = [{"name": name, "plain": plain, "reason": reason} for name, plain, reason in refused_records()]
    for record in accepted + refused:
        assert outcome_of(record["plain"]) is ("reason" not in record), record["name"]
    talk = [{"name": n, "message": m, **fields_of_message(m, more)} for n, m, more in good_messages()]
    noise = []
    for name, at, message, fin, ends, reason in bad_messages():
        assert cost_of(at, message, fin) == ends, (name, cost_of(at, message, fin))
        one = {"name": name, "at": at, "message": message, "fin": fin, "ends": ends, "reason": reason}
        if ends == "call":
            one["code"] = int(Code.ERROR_INTERNAL if at == "caller" else Code.ERROR_INVALID_REQUEST)
        noise.append(one)
    objects = []
    for name, data in objects_of_messages():
        envelope, payload, from_, to = decode_object(data)
        told: Json = {"envelope": envelope, "payload": msgspec.Raw(payload), "from": from_, "to": to}
        objects.append({"name": name, "object": data, **json.loads(msgspec.json.encode(told))})
    whole = {
        "about": ABOUT,
        "frames": good,
        "bad_frames": bad,
        "records": {"about": ABOUT_RECORDS, "caps": default_caps(), "accepted": accepted, "refused": refused},
        "messages": talk,
        "about_bad_messages": ABOUT_MESSAGES,
        "bad_messages": noise,
        "about_objects": ABOUT_OBJECTS,
        "objects": objects,
    }
    return json.loads(json.dumps(whole, default=plain_of))  # type: ignore[no-any-return]


def default_caps() -> Json:
    from hermes_peer.core.config import Config

    caps = caps_of(Config(), "a", "a-1")
    return {"frame": caps.frame, "message": caps.message, "window": caps.window, "streams": caps.streams}


def text(whole: Json) -> str:
    """The file's text."""
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(build()))
    print(f"wrote {PATH}")
