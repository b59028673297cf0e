"""agent/taps: what a tap tells of frames, what it holds back, and that nothing is tapped while nobody listens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hermes_peer import HermesAgent, PermissionDenied
from hermes_peer.access.home import Home
from hermes_peer.agent.taps import HELD_MAX, Listener, told_frame
from hermes_peer.wire import frames, messages
from hermes_peer.wire.frames import Flag, Frame, Type


def test_messages_tell_their_headers_and_only_then_their_payload() -> None:
    envelope = messages.Envelope(method="echo", message_id="m", ttl=3.0, trace_id="t", span_id="s", parent_id="p")
    body = messages.encode_open(envelope, b'{"secret":1}')
    told = told_frame(Frame(Type.DATA, Flag.SYN | Flag.FIN, 1, 7, body), True, False)
    assert told == {
        "type": "DATA",
        "flags": ["SYN", "FIN"],
        "stream": 1,
        "sequence": 7,
        "length": len(body),
        "body": {
            "message": "OPEN",
            "type": "request",
            "method": "echo",
            "message_id": "m",
            "trace_id": "t",
            "span_id": "s",
            "parent_id": "p",
            "ttl": 3.0,
        },
    }
    assert told_frame(Frame(Type.DATA, 0, 1, 7, body), True, True)["payload"] == '{"secret":1}'
    item = messages.pack_item(messages.ITEM, 4) + b'"x"'
    assert told_frame(Frame(Type.DATA, 0, 1, 7, item), True, True) | {"length": 0} == {
        "type": "DATA", "flags": [], "stream": 1, "sequence": 7, "length": 0,
        "body": {"message": "ITEM", "index": 4}, "payload": '"x"',
    }  # fmt: skip
    assert told_frame(Frame(Type.DATA, 0, 1, 8, b"rest"), False, False)["body"] == {"message": "goes on"}


@pytest.mark.parametrize(
    ("frame", "body"),
    [
        (frames.Credit(9, 2).encode(0), {"limit": 9, "streams": 2}),
        (frames.encode_ack(5), {"next": 5}),
        (frames.Ping(1, 2, 3, True, 4).encode(Type.PING), {"n": 1, "in_flight": 2, "links": 1}),
        (frames.Close(1, 13, 0, 0, "bye").encode(), {"code": 13, "text": "bye"}),
        (frames.encode(Type.ACK, b"short"), {"problem": "a ACK body has 5 bytes, 8 are needed"}),
    ],
)
def test_frames_of_the_link(frame: bytes, body: dict[str, Any]) -> None:
    told = told_frame(frames.split(frame)[0], True, True)["body"]
    assert {name: told[name] for name in body} == body


def test_a_slow_listener_holds_no_more_than_its_share() -> None:
    own: Any = object()
    listener = Listener(own, "planner")
    listener.hear(object(), "somebody", "in", b"x")  # type: ignore[arg-type]
    listener.hear(own, "planner", "out", b"x")  # to tell of it would be one more frame to tell of
    assert not listener.held
    for _ in range(6):
        listener.hear(object(), "planner", "in", bytes(HELD_MAX // 4))  # type: ignore[arg-type]
    assert len(listener.held) == 4 and listener.lost == 2


async def test_links_are_tapped_while_somebody_listens_and_only_then(tmp_path: Any) -> None:
    worker = HermesAgent("worker", home=tmp_path)
    worker.add_method("echo", echo)
    async with worker, HermesAgent("cli", home=tmp_path, listen=False) as me:
        async with me.stream("worker", "hermes.tap", {"peer": "planner"}) as seen:
            assert await anext(seen) == {"tapped": "worker", "links": []}
            async with HermesAgent("planner", home=tmp_path, listen=False) as planner:
                await planner.call("worker", "echo", {"a": 1})
            told = []
            async for frame in seen:
                told.append(frame)
                if frame["type"] == "CLOSE":
                    break
            links = worker._running().endpoint.pumps
            assert all(link.tap is not None for link in links)
        assert {frame["peer"] for frame in told if frame["type"] == "DATA"} == {"planner"}
        assert [f["body"]["method"] for f in told if f.get("body", {}).get("message") == "OPEN"] == ["echo"]
        assert not any("payload" in frame for frame in told)
        async with asyncio.timeout(2):
            while any(link.tap is not None for link in worker._running().endpoint.pumps):
                await asyncio.sleep(0.01)
        assert worker._running().endpoint.linked is None


async def test_a_tap_needs_operate(tmp_path: Any) -> None:
    Home.open(tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\ncaller = "home"\nagent = "*"\nmethod = ["**", "read"]\nallow = true\n')
    async with HermesAgent("worker", home=tmp_path), HermesAgent("cli", home=tmp_path, listen=False) as me:
        assert (await me.call("worker", "hermes.status"))["agent"] == "worker"
        with pytest.raises(PermissionDenied):
            await anext(me.stream("worker", "hermes.tap"))


async def echo(a: int) -> int:
    return a
