"""POST: bodies, types, answers, streams, who leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.doors.rig import INVOKE, TRACE, doors, http, message, task
from tests.loops import case, until


async def test_the_seed_s_message_is_answered(home: Path) -> None:
    async with doors(home) as door:
        body = (
            b'{"meta":{"version":"1.2","msg_type":1,"sender_id":"a1b2c3","receiver_id":"d4e5f6","ttl":300,'
            b'"trace_id":"t7u8v9"},"payload":{"task_id":"x1y2z3","tool":"calculator","expression":"2+2"}}'
        )
        answer = await door.post(body, Content_Type="application/hermes+json")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/hermes+json"
        assert answer.payload == {"task_id": "x1y2z3", "status": "success", "result": 4}
        meta = answer.meta
        assert meta == {
            "version": "1.2",
            "msg_type": 2,
            "sender_id": meta["sender_id"],
            "receiver_id": "a1b2c3",
            "ttl": 300,
            "trace_id": "t7u8v9",
        }
        assert door.agent.seen == [("door:loopback", "t7u8v9", "x1y2z3")]


async def test_without_a_tool_the_default_method_answers(home: Path) -> None:
    async with doors(home) as door:
        assert (await door.call(None, {"expression": "1+2"}))["result"] == 3


async def test_a_task_id_is_handled_once(home: Path) -> None:
    async with doors(home) as door:
        first = await door.call("incr", {"task_id": "once"})
        again = await door.call("incr", {"task_id": "once"})
        assert first == again and door.agent.counts == {"once": 1}
        other = await door.call("incr", {"task_id": "once", "more": 1})
        assert (other["error_code"], other["reason"]) == (2, "conflict") and "new task_id" in other["hint"]
        made = await door.call("incr")
        assert made["task_id"] and made["result"] == 1


async def test_a_post_of_a_stream_has_all_items(home: Path) -> None:
    async with doors(home) as door:
        payload = await door.call("tokens", {"n": 3})
        assert payload["items"] == [0, 1, 2] and payload["result"] == {"n": 3}
        assert (await door.call("bytes", {"n": 3}))["items"] == [{"base64": "AAAA"}]
        large = await door.call("tokens", {"n": 100, "size": 100_000})
        assert (large["error_code"], large["reason"]) == (6, "items_too_large") and "event-stream" in large["detail"]


async def events(door: Any, tool: str, payload: Any = None, **meta: Any) -> list[tuple[str, Any]]:
    answer = await door.post(message(tool, payload, **meta), Accept="text/event-stream")
    assert answer.headers["content-type"].startswith("text/event-stream"), answer
    return parsed(answer.body)


def parsed(body: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and not line.startswith(b":"))
        if b"data" in lines:
            found.append((lines[b"event"].decode(), json.loads(lines[b"data"])))
    return found


async def test_server_sent_events(home: Path) -> None:
    async with doors(home) as door:
        found = await events(door, "tokens", {"n": 2, "task_id": "s1"})
        assert [name for name, _ in found] == ["task_ack", "stream_item", "stream_item", "stream_end", "task_result"]
        assert found[1][1]["payload"] == {"task_id": "s1", "index": 0, "item": 0}
        assert found[3][1]["payload"] == {"task_id": "s1", "items": 2}
        assert found[4][1]["payload"] == {"task_id": "s1", "status": "success", "result": {"n": 2}}
        assert {each["meta"]["trace_id"] for _, each in found} == {TRACE}
        plain = await events(door, "calculator", {"expression": "1"})
        assert [name for name, _ in plain] == ["task_ack", "task_result"]
        failed = await events(door, "fail")
        assert failed[-1][1]["payload"]["reason"] == "out_of_stock"


async def test_an_event_stream_can_be_asked_back(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        line.send(http("POST", INVOKE, message("ask"), {"Accept": "text/event-stream"}))
        seen = b""
        while b"info_request" not in seen or not seen.endswith(b"\n\n\r\n"):
            seen += await line.reader.read(65536)
        raw = b"".join(part for part in seen.partition(b"\r\n\r\n")[2].split(b"\r\n")[1::2])
        question = dict(parsed(raw))["info_request"]["payload"]
        assert question["tool"] == "what.colour" and question["payload"] == {"of": "sky"}
        heard = await door.call(None, {"info_id": question["info_id"], "result": "blue"}, msg_type=7)
        assert heard["status"] == "success"
        while b"task_result" not in seen:
            seen += await line.reader.read(65536)
        assert b'"answer":"blue"' in seen
        again = await door.call(None, {"info_id": question["info_id"], "result": "red"}, msg_type=7)
        assert (again["error_code"], again["reason"]) == (2, "unknown_question")


async def test_a_plain_post_cannot_be_asked_back(home: Path) -> None:
    async with doors(home) as door:
        payload = await door.call("ask")
        assert payload["reason"] == "no_answer" and "WebSocket" in payload["hint"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_who_leaves_cancels(home: Path, accept: str) -> None:
    async with doors(home) as door:
        for tool in ("sleep", "forever"):
            door.agent.begun.clear()
            door.agent.ended.clear()
            line = await door.line()
            line.send(http("POST", INVOKE, message(tool, {"s": 60} if tool == "sleep" else {}), {"Accept": accept}))
            await door.agent.begun.wait()
            line.writer.transport.abort()
            await until(lambda: door.agent.ended)


async def test_who_said_detach_leaves_it_running_and_finds_the_answer(home: Path) -> None:
    async with doors(home) as door:
        body = message("sleep", {"s": 0.2, "task_id": "d", "hermes": {"detach": True}})
        line = await door.line()
        line.send(http("POST", INVOKE, body))
        await door.agent.begun.wait()
        line.writer.transport.abort()
        answer = await door.post(body)
        assert answer.payload["result"] == "slept" and door.agent.ended == []


async def test_a_running_task_is_cancelled_by_its_id(home: Path) -> None:
    async with doors(home) as door:
        waiting = asyncio.ensure_future(door.call("sleep", {"s": 60, "task_id": "c"}))
        await door.agent.begun.wait()
        answer = await door.post(message(None, {"task_id": "c"}, msg_type=4))
        assert answer.meta["msg_type"] == 5 and answer.payload == {"task_id": "c", "status": "success"}
        ended = await waiting
        assert (ended["error_code"], ended["reason"]) == (1, "cancelled")
        unknown = await door.call(None, {"task_id": "c"}, msg_type=4)
        assert unknown["reason"] == "unknown_task"
        missing = await door.post(message(None, {}, msg_type=4))
        assert missing.status == 400 and "payload.task_id" in missing.payload["detail"]


async def test_an_event_is_acknowledged_when_it_was_handled(home: Path) -> None:
    async with doors(home) as door:
        answer = await door.post(message("changed", {"what": "stock"}, msg_type=14))
        assert answer.meta["msg_type"] == 5 and answer.payload["status"] == "success"
        assert door.agent.ended == ["stock"]


async def test_messages_without_a_task(home: Path) -> None:
    async with doors(home) as door:
        beat = await door.post(message(None, {}, msg_type=8))
        assert beat.meta["msg_type"] == 9 and beat.payload == {"agent": "calculator", "state": "ready"}
        query = await door.post(message(None, {}, msg_type=10))
        names = [m["name"] for m in query.payload["methods"]]
        assert query.meta["msg_type"] == 11 and "calculator" in names and "secret" not in names
        assert (await door.post(message(None, {}, msg_type=16))).meta["msg_type"] == 16
        for kind in (2, 3, 5, 6, 9, 11, 12, 13, 15):
            answer = await door.post(message(None, {}, msg_type=kind))
            assert answer.status == 400 and answer.payload["reason"] == "unexpected_type", kind


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"tool": 1}, "payload.tool"),
        ({"task_id": ""}, "payload.task_id"),
        ({"task_id": "x" * 129}, "payload.task_id"),
        ({"task_id": "é"}, "payload.task_id"),
        ({"task_id": 5}, "payload.task_id"),
        ({"hermes": 1}, "payload.hermes"),
        ({"hermes": {"detach": 1}}, "payload.hermes"),
        ({"hermes": {"other": True}}, "payload.hermes"),
    ],
)
async def test_the_door_s_own_members_are_checked(home: Path, payload: Any, field: str) -> None:
    async with doors(home) as door:
        answer = await door.post(message(None, payload))
        assert answer.status == 400 and answer.payload["error_code"] == 2
        assert answer.payload["details"]["field"] == field and field in answer.payload["detail"]
        assert answer.meta["trace_id"] == TRACE


async def test_a_uuid_means_one_agent(home: Path) -> None:
    async with doors(home) as door:
        mine = (await door.post(task())).meta["sender_id"]
        body = task()
        body["meta"]["receiver_id"] = mine
        assert (await door.post(body)).payload["result"] == 4
        body = task()
        body["meta"]["receiver_id"] = "a1b2c3d4-e5f6-4789-a0b1-c2d3e4f5a6b7"
        answer = await door.post(body)
        assert answer.status == 200 and answer.payload["error_code"] == 9
        assert answer.payload["details"] == {"agent": "calculator", "agent_id": mine}


@case("HPC-052")
async def test_chunked_bodies(home: Path) -> None:
    async with doors(home) as door:
        body = json.dumps(message("echo", {"text": "四é"}), ensure_ascii=False).encode()
        middle = body.index("四".encode()) + 1  # inside a character
        parts = [body[:10], body[10:middle], body[middle:]]
        chunks = b"".join(b"%X;name=value\r\n%b\r\n" % (len(part), part) for part in parts)
        head = {"Transfer-Encoding": "chunked", "Content-Length": "", "Content-Type": "application/json"}
        for name in ("Transfer-Encoding", "tRANSFER-eNCODING"):
            line = await door.line()
            fields = {name: "chunked", "Content-Length": "", "Content-Type": "application/json"}
            line.send(http("POST", INVOKE, None, fields) + chunks + b"0\r\nX-Trailer: 1\r\nHost: evil\r\n\r\n")
            answer = await line.answer()
            assert answer.status == 200 and answer.payload["result"] == {"text": "四é"}
            assert (await line.request(body=task())).status == 200  # the connection is in step
        for bad in (b"zz\r\n", b"-1\r\n", b"1" * 17 + b"\r\n"):
            line = await door.line()
            line.send(http("POST", INVOKE, None, head) + bad)
            assert (await line.answer()).status == 400, bad
            assert await line.ended() == b""
        for fields in (
            {"Content-Length": "0", "Content-Type": "application/json"},
            {"Content-Type": "application/json"},
        ):
            answer = await door.request(headers=fields)
            assert answer.status == 400 and "empty" in answer.payload["detail"], answer
        # A body that ends early calls nothing.
        line = await door.line()
        short = http("POST", INVOKE, message("incr", {"task_id": "early"}))
        line.send(short[:-5])
        line.writer.write_eof()
        await line.ended()
        line = await door.line()
        line.send(http("POST", INVOKE, None, head) + b"5\r\n{")
        line.writer.transport.abort()
        # Shorter than announced: the rest is missing, no handler; longer: the tail is another request, and none.
        line = await door.line()
        data = json.dumps(message("incr", {"task_id": "longer"})).encode()
        line.send(http("POST", INVOKE, data, {"Content-Length": str(len(data) - 1)}))
        assert (await line.answer()).status == 400
        both = http("POST", INVOKE, data, {"Transfer-Encoding": "chunked", "Content-Length": str(len(data))})
        line = await door.line()
        line.send(both)
        assert (await line.answer()).status == 400
        assert door.agent.counts == {}


@case("HPC-052")
async def test_a_body_that_is_too_large_is_refused_before_it_has_come(home: Path) -> None:
    async with doors(home, http={"body_max": 10_000}) as door:
        line = await door.line()
        line.send(http("POST", INVOKE, None, {"Content-Length": "20000", "Content-Type": "application/json"}))
        answer = await line.answer()
        assert answer.status == 413 and answer.payload["error_code"] == 6
        assert answer.payload["details"] == {"resource": "body", "used_bytes": 20000, "total_bytes": 10000}
        line = await door.line()
        head = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
        line.send(http("POST", INVOKE, None, head) + b"3000\r\n" + b"x" * 0x3000 + b"\r\n")
        assert (await line.answer()).status == 413
        line.send(b"0\r\n\r\n")
        await line.ended()
        fits = message("echo", {"text": "x" * 9000})
        assert (await door.post(fits)).status == 200


@case("HPC-058")
async def test_lengths_are_counted_in_bytes(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        for text in ("é", "四", "😀", "\\u56db", "a\u2028b"):
            answer = await line.request(body=message("echo", {"text": text}))
            assert len(answer.body) == int(answer.headers["content-length"])
            assert answer.payload["result"] == {"text": text}
        error = await line.request(body=message("é四"))
        assert len(error.body) == int(error.headers["content-length"]) and error.payload["error_code"] == 4


TYPES = [
    ("application/json", 200),
    ("application/json; charset=utf-8", 200),
    ('APPLICATION/JSON;Charset="UTF-8"', 200),
    ("application/hermes+json; charset=utf8", 200),
    ("application/vnd.demo+json", 415),
    ("application/json; charset=latin-1", 415),
    ("application/json; charset=utf-16", 415),
    ("application/x-www-form-urlencoded", 415),
    ("text/plain", 415),
    ("", 415),
]


@case("HPC-058")
@pytest.mark.parametrize(("given", "status"), TYPES)
async def test_content_types(home: Path, given: str, status: int) -> None:
    async with doors(home) as door:
        answer = await door.request(body=task(), headers={"Content-Type": given})
        assert answer.status == status
        assert "charset" not in answer.headers["content-type"]  # JSON has one encoding
        if status == 415:
            assert answer.payload["error_code"] == 2 and answer.payload["details"]["expected"]
            assert answer.payload["reason"] in ("charset", "content_type")


@case("HPC-058")
async def test_other_encodings_are_refused(home: Path) -> None:
    async with doors(home) as door:
        data = json.dumps(task()).encode()
        packed = await door.post(data, Content_Encoding="gzip")
        assert packed.status == 415 and packed.payload["reason"] == "content_encoding"
        mark = await door.post(b"\xef\xbb\xbf" + data)
        assert mark.status == 400 and "byte order mark" in mark.payload["detail"]
        assert (await door.post(data.decode().encode("utf-16"))).status == 400
        assert "UTF-8" in (await door.post(data.replace(b"2+2", b"\xff"))).payload["detail"]
        line = await door.line()
        raw = http("POST", INVOKE, data).replace(b"\r\n\r\n", b"\r\nContent-Type: text/plain\r\n\r\n", 1)
        line.send(raw)
        twice = await line.answer()
        assert twice.status == 400 and "twice" in twice.payload["detail"]


@case("HPC-048")
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("NaN", "NaN is not JSON"),
        ("Infinity", "Infinity is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("1e999", "out of range"),
        ("1" * 5000, "5000 digits"),
        ('1, "x": 2', "appears twice"),
        ("[" * 70 + "]" * 70, "deeper than 64"),
        ('"\\ud800"', "surrogate"),
        ("[" + "1," * 100_001 + "1]", "100000 values"),
    ],
)
async def test_what_no_json_is_good_for(home: Path, value: str, says: str) -> None:
    async with doors(home) as door:
        body = json.dumps(message("echo", {"x": "HERE"})).replace('"HERE"', value).encode()
        answer = await door.post(body)
        assert answer.status == 400 and answer.payload["error_code"] == 2
        assert says in answer.payload["detail"]


@case("HPC-048")
async def test_what_a_handler_returns_must_be_json(home: Path) -> None:
    async with doors(home) as door:
        for what, path in (("nan", "result"), ("inf", "result[1]")):
            payload = await door.call("value", {"what": what})
            assert payload["error_code"] == 7 and path in payload["detail"]
        assert (await door.call("value", {"what": "big"}))["result"] == 2**53 + 1
        assert (await door.call("echo", {"n": 2**53 + 1}))["result"] == {"n": 2**53 + 1}


@case("HPC-050")
async def test_sizes_up_to_the_limit_pass_both_ways(home: Path) -> None:
    async with doors(home) as door:
        empty = len(json.dumps(message("echo", {"text": ""})).encode())
        limit = 5 * 1024 * 1024
        line = await door.line()
        for size in (65_535, 65_536, 65_537, 1024 * 1024 - 1, limit):
            room = size - empty
            text = "😀" * (room // 4) + "x" * (room % 4)
            body = json.dumps(message("echo", {"text": text}), ensure_ascii=False).encode()
            assert len(body) == size
            answer = await line.request(body=body)
            assert answer.status == 200 and answer.payload["result"]["text"] == text
        over = await door.post(json.dumps(message("echo", {"text": "x" * (limit - empty + 1)})).encode())
        assert over.status == 413 and str(limit) in over.payload["detail"]
        result = await door.call("large", {"n": limit + 1})
        assert (result["error_code"], result["reason"]) == (6, "result_too_large")


@case("HPC-050")
async def test_a_body_in_single_bytes(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        for byte in http("POST", INVOKE, task()):
            line.send(bytes([byte]))
            await line.writer.drain()
            await asyncio.sleep(0)
        assert (await line.answer()).payload["result"] == 4
        line.send(http("POST", INVOKE, task("1+1")) + http("POST", INVOKE, task("1+2")))  # two in one write
        assert [(await line.answer()).payload["result"] for _ in range(2)] == [2, 3]
