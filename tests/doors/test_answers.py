"""What a door says back: every step of a call as a message."""

from __future__ import annotations

from pathlib import Path

from hermes_peer import CallError
from hermes_peer.doors.answers import BY_REASON, error_payload, step
from hermes_peer.wire.invoke import Type
from tests.doors.rig import doors


async def test_steps(home: Path) -> None:
    async with doors(home) as door:
        call = door.agent.serve("door:loopback", "calculator", b'{"expression":"1"}', message_id="m")
        assert step(call, b"\x03") == (Type.TASK_ACK, {"task_id": "m", "status": "accepted"})
        assert step(call, b'\x06{"state":"x"}') == (Type.TASK_PROGRESS, {"task_id": "m", "state": "x"})
        assert step(call, b"\x07" + bytes(8) + b"ab")[1] == {"task_id": "m", "index": 0, "base64": "YWI="}
        kind, payload = step(call, b"\x02" + (7).to_bytes(8, "big") + b'"x"')
        assert kind is Type.STREAM_ITEM and payload["index"] == 7 and bytes(payload["item"]) == b'"x"'


def test_hints_by_reason_win() -> None:
    payload = error_payload(CallError("conflict", "x", code=2), "t")
    assert payload["hint"] == BY_REASON["conflict"] and payload["task_id"] == "t"
