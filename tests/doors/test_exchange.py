"""How answers and events are read, cut anywhere; how a request is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer import CallError, Code
from hermes_peer.doors.exchange import Caller, Events, link_error, outcome, read_answer
from hermes_peer.doors.posting import event
from hermes_peer.wire.invoke import Meta, Type

META = Meta(Type.STREAM_ITEM, "a", None, 5, "t")
STREAM = b": still here\n\n" + b"".join(event(META, {"index": i, "item": f"é\u2028{i}\n\n"}) for i in range(3))


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_cut_anywhere(cuts: list[int]) -> None:
    events, found, last = Events(), [], 0
    for cut in [*sorted(cuts), len(STREAM)]:
        found += events.feed(STREAM[last:cut])
        last = cut
    assert [payload["item"] for _, payload in found] == [f"é\u2028{i}\n\n" for i in range(3)]


def test_events_with_other_line_ends() -> None:
    assert len(Events().feed(STREAM.replace(b"\n", b"\r\n"))) == 3


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"meta":1,"payload":{}}', b'{"payload":{}}', b"\xff"])
def test_what_no_door_says(body: bytes) -> None:
    with pytest.raises(CallError) as wrong:
        read_answer(body, 502)
    assert wrong.value.reason == "not_a_door" and "502" in wrong.value.message


def test_an_unknown_code_is_unknown() -> None:
    with pytest.raises(CallError) as odd:
        outcome({}, {"status": "error", "error_code": 99})
    assert odd.value.code is Code.ERROR_UNKNOWN


def test_an_order() -> None:
    made = Caller("http://x/", token="secret").order("t", {"a": 1}, None, "", "", detach=True, durable=False)
    assert made.meta.ttl == 30 and len(made.meta.trace_id) == 32 and made.meta.msg_type == Type.TASK_REQUEST
    assert made.payload["tool"] == "t" and made.payload["a"] == 1 and made.payload["hermes"] == {"detach": True}
    assert len(made.payload["task_id"]) == 32
    assert "tool" not in Caller("http://x").order("", None, 5, "", "id").payload


def test_an_error_of_the_way_is_a_sentence() -> None:
    error = link_error("http://x", OSError(111, "[Errno 111] Connection refused"))
    assert "http://x" in str(error) and "Errno" not in str(error).replace("[errno 111]", "")
