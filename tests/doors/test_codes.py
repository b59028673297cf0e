"""Each of the 12 codes by a real situation, with a payload that says what to do; each of the 16 types, both forms."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import Code
from hermes_peer.doors.answers import HINTS, error_payload
from hermes_peer.wire.invoke import Type
from tests.doors.rig import Rig, doors, message
from tests.loops import until


def said(payload: Any, code: Code, reason: str, *words: str) -> None:
    """The whole shape of an error, and what it must speak of."""
    assert payload["status"] == "error" and payload["error_code"] == code and payload["name"] == code.name
    assert payload["reason"] == reason
    assert isinstance(payload["retryable"], bool)
    assert len(payload["detail"]) > 5 and len(payload["hint"]) > 20
    for word in words:
        assert word in str(payload), f"{word} is not in {payload}"


async def test_success_0(home: Path) -> None:
    async with doors(home) as door:
        payload = await door.call("calculator", {"expression": "2+2"})
        assert payload["status"] == "success" and "error_code" not in payload


async def test_unknown_1(home: Path) -> None:
    """An outcome too large to be kept: asked again by its id, nobody can give it any more."""
    async with doors(home) as door:
        body = {"task_id": "big", "n": 100_000}
        assert (await door.call("large", body))["status"] == "success"
        said(await door.call("large", body), Code.ERROR_UNKNOWN, "outcome_unknown", "too large to be kept")


async def test_invalid_request_2(home: Path) -> None:
    async with doors(home) as door:
        answer = await door.post(message(version="1.3"))
        assert answer.status == 400 and answer.meta["msg_type"] == 15 and answer.meta["receiver_id"] == "tester"
        said(answer.payload, Code.ERROR_INVALID_REQUEST, "unsupported_version", "1.3")
        assert answer.payload["details"]["expected"] == ["1.2"]
        wrong = await door.call("calculator", {"expression": 5})
        said(wrong, Code.ERROR_INVALID_REQUEST, "invalid_payload", "`expression`: expected str, got int")


async def test_task_timeout_3(home: Path) -> None:
    async with doors(home) as door:
        late = await door.call("sleep", {"s": 70, "task_id": "slow"}, ttl=0.1)
        said(late, Code.ERROR_TASK_TIMEOUT, "ttl", "hermes-peer ttl")
        assert late["task_id"] == "slow" and late["details"] == {"timer": "ttl", "timeout_ms": 100}
        assert door.agent.ended == ["cancelled"]
        said(await door.call("calculator", {"expression": "1"}, ttl=0), Code.ERROR_TASK_TIMEOUT, "expired")
        said(await door.call("slow", ttl=2), Code.ERROR_TASK_TIMEOUT, "min_ttl", "needs 5 s")


async def test_tool_not_found_4(home: Path) -> None:
    async with doors(home) as door:
        payload = await door.call("calculater")
        said(payload, Code.ERROR_TOOL_NOT_FOUND, "unknown_method", "did you mean `calculator`?")
        assert payload["requested_tool"] == "calculater" and "calculator" in payload["available_tools"]
        assert "secret" not in str(payload)
        hidden = await door.call("secret")
        said(hidden, Code.ERROR_TOOL_NOT_FOUND, "unknown_method", "public=True")
        assert hidden["available_tools"] == payload["available_tools"]


async def test_auth_failed_5(home: Path) -> None:
    async with doors(home) as door:
        answer = await door.post(message(), Authorization="Bearer nonsense")
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer")
        said(answer.payload, Code.ERROR_AUTH_FAILED, "unauthorised", "hermes-peer token add")
        assert answer.payload["details"] == {"auth_method": "bearer", "error": "unknown token"}


async def test_resource_exhausted_6(home: Path) -> None:
    async with doors(home, http={"body_max": 4096}) as door:
        payload = await door.call("tokens", {"n": 10, "size": 1000})
        said(payload, Code.ERROR_RESOURCE_EXHAUSTED, "items_too_large", "text/event-stream")
        too_large = await door.post(message("echo", {"x": "y" * 5000}))
        assert too_large.status == 413
        said(too_large.payload, Code.ERROR_RESOURCE_EXHAUSTED, "body_too_large", "4096")


async def test_internal_7(home: Path, caplog: Any) -> None:
    async with doors(home) as door:
        payload = await door.call("crash")
        said(payload, Code.ERROR_INTERNAL, "internal", "reference")
        assert "secret" not in str(payload) and "Zero" not in str(payload)
        reference = payload["detail"].rpartition(" ")[2]
        assert reference in caplog.text  # what the detail names is in the log, with the traceback
        caplog.clear()


@pytest.mark.attack(56)  # whom the door speaks for is judged, not the door's agent
async def test_permission_denied_8(home: Path) -> None:
    async with doors(home) as door:
        policy = door.agent._life.home.policy_file
        deny = '\n[[rule]]\ncaller = "door:loopback"\nagent = "*"\nmethod = "incr"\nallow = false\n'
        policy.write_text(policy.read_text() + deny)
        door.agent._life._reload()
        said(
            await door.call("incr"), Code.ERROR_PERMISSION_DENIED, "policy", "door:loopback may not call", "policy.toml"
        )
        answer = await door.request(body=message("calculator"), headers={"Origin": "https://evil.example"})
        assert answer.status == 403
        said(answer.payload, Code.ERROR_PERMISSION_DENIED, "foreign_origin", "evil.example")


async def test_agent_unavailable_9(home: Path) -> None:
    async with doors(home, drain_s=5) as door:
        running = asyncio.ensure_future(door.call("sleep", {"s": 0.2}))
        await door.agent.begun.wait()
        closing = asyncio.ensure_future(door.agent.aclose())
        await until(lambda: door.agent._life.server.draining)
        said(await door.call("calculator"), Code.ERROR_AGENT_UNAVAILABLE, "draining", "another instance")
        await running
        await closing


async def test_application_10(home: Path) -> None:
    async with doors(home) as door:
        payload = await door.call("fail")
        said(payload, Code.ERROR_APPLICATION, "out_of_stock", "none are left")
        assert payload["details"] == {"left": 0}


async def test_rate_limit_exceeded_11(home: Path) -> None:
    async with doors(home, http={"rate": 0.5}) as door:
        assert (await door.call("calculator", {"expression": "1"}))["status"] == "success"
        answer = await door.post(message("calculator", {"expression": "1", "task_id": "r"}))
        said(answer.payload, Code.ERROR_RATE_LIMIT_EXCEEDED, "rate", "0.5 tasks a second")
        assert answer.status == 200 and 0 < answer.payload["retry_after"] <= 2 and answer.headers["retry-after"] == "2"
        assert answer.payload["task_id"] == "r"


async def test_an_application_s_own_limit_11(home: Path) -> None:
    async with doors(home) as door:
        answer = await door.post(message("limited"))
        said(answer.payload, Code.ERROR_RATE_LIMIT_EXCEEDED, "quota")
        assert answer.payload["retry_after"] == 7 and answer.headers["retry-after"] == "7"


def test_every_code_has_a_hint() -> None:
    assert set(HINTS) == set(Code) - {Code.SUCCESS}
    for code in HINTS:
        payload = error_payload({"code": int(code), "reason": "x", "message": "y"})
        assert payload["name"] == code.name and payload["hint"] == HINTS[code]


async def test_all_that_a_door_says_is_of_the_types(home: Path) -> None:
    seen: set[int] = set()

    async def heard(door: Rig, *args: Any, **meta: Any) -> None:
        seen.add((await door.post(message(*args, **meta))).meta["msg_type"])

    async with doors(home) as door:
        await heard(door, "calculator", {"expression": "1"})
        for kind in (Type.HEARTBEAT, Type.CAPABILITY_QUERY, Type.GOODBYE, Type.TASK_RESULT):
            await heard(door, None, {}, msg_type=kind)
        await heard(door, "changed", {"what": "x"}, msg_type=Type.EVENT)
    assert seen == {2, 5, 9, 11, 15, 16}  # 3, 6, 8, 12, 13 are heard where there is a way for them: test_talk
