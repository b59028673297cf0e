"""Paths, methods, refusals, health, mounting (HPC-055; attacks 63 to 67)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from hermes_peer.access.tokens import add_token
from hermes_peer.doors import door as make_door
from tests.doors.rig import INVOKE, demo, doors, http, message, task
from tests.loops import case, until

HEALTH, READY, DESCRIBE, OPENAPI = (f"/hermes/v1/{name}" for name in ("health", "ready", "describe", "openapi.json"))


@case("HPC-055")
async def test_every_method_on_every_path(home: Path) -> None:
    async with doors(home) as door:
        for path in (HEALTH, READY, DESCRIBE, OPENAPI):
            got = await door.request("GET", path)
            head = await door.request("HEAD", path)
            assert got.status == head.status == 200 and head.body == b""
            assert {k: v for k, v in got.headers.items() if k != "date"} == {
                k: v for k, v in head.headers.items() if k != "date"
            }
            options = await door.request("OPTIONS", path)
            assert options.status == 204 and options.headers["allow"] == "GET, HEAD, OPTIONS"
            for method in ("PUT", "DELETE", "PATCH", "TRACE", "POST"):
                wrong = await door.request(method, path)
                assert wrong.status == 405 and wrong.headers["allow"] == "GET, HEAD, OPTIONS", (method, path)
                assert wrong.payload["error_code"] == 2 and wrong.payload["detail"]
        for method in ("GET", "PUT", "DELETE", "PATCH", "TRACE"):
            wrong = await door.request(method, body=message("incr", {"task_id": "x"}))
            assert wrong.status == 405 and wrong.headers["allow"] == "POST, OPTIONS"
        head = await door.request("HEAD", body=message("incr", {"task_id": "x"}))
        assert head.status == 405 and door.agent.counts == {}  # it never executes a method
        for method in ("FOO", "get"):
            assert (await door.request(method, HEALTH)).status in (400, 405)
        for path in ("/", "/nothing", INVOKE + "/", "//hermes/v1/invoke", "/hermes/v1/%2e%2e/v1/invoke", "/hermes/v1"):
            lost = await door.request("POST", path, task())
            assert lost.status == 404 and INVOKE in lost.payload["detail"], path
        absolute = await door.request("POST", f"http://127.0.0.1:{door.port}{INVOKE}", task())
        assert absolute.status == 200
        for target in ("*", "x", "http://", "/\xff"):
            line = await door.line()
            line.send(http("POST", "/", task()).replace(b"POST / ", b"POST " + target.encode("latin-1") + b" "))
            assert (await line.answer()).status in (400, 404), target
        for host in ("", " "):
            raw = http("GET", HEALTH).replace(b"Host: 127.0.0.1", b"Host:" + host.encode())
            line = await door.line()
            line.send(raw)
            assert (await line.answer()).status == 400


@case("HPC-055")
async def test_ready_says_so_while_the_agent_drains(home: Path) -> None:
    async with doors(home, drain_s=5) as door:
        waiting = asyncio.ensure_future(door.call("sleep", {"s": 0.3}))
        await door.agent.begun.wait()
        closing = asyncio.ensure_future(door.agent.aclose())
        await until(lambda: door.agent._life.server.draining)
        for method in ("GET", "HEAD"):
            ready = await door.request(method, READY)
            assert ready.status == 503
        assert (await door.request("GET", HEALTH)).status == 200
        late = await door.call("calculator", {"expression": "1"})
        assert (late["error_code"], late["reason"], late["retryable"]) == (9, "draining", True)
        assert (await waiting)["result"] == "slept"
        await closing


@case("HPC-055")
@pytest.mark.attack(64)
async def test_a_browser_s_question_before_the_question(home: Path) -> None:
    async with doors(home, http={"origins": ["https://good.example"]}) as door:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Private-Network": "true"}
        good = await door.request("OPTIONS", headers={"Origin": "https://good.example", **asked})
        assert good.status == 204 and good.headers["access-control-allow-origin"] == "https://good.example"
        assert "authorization" in good.headers["access-control-allow-headers"]
        assert good.headers["access-control-allow-private-network"] == "true"
        assert "access-control-allow-credentials" not in good.headers
        bad = await door.request("OPTIONS", headers={"Origin": "https://evil.example", **asked})
        assert bad.status == 403 and "access-control-allow-origin" not in bad.headers
        # A form of another site: no question comes before it, so the request itself must fail.
        form = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
        assert (await door.request(body=message("incr", {"task_id": "f"}), headers=form)).status == 403
        assert (await door.request(body=message("incr"), headers={"Content-Type": "text/plain"})).status == 415
        assert door.agent.counts == {}
        token = add_token(door.agent._life.home, "page", 0)
        page = {"Origin": "https://good.example", "Authorization": f"Bearer {token}"}
        answer = await door.request(body=task(), headers=page)
        assert answer.status == 200 and answer.headers["access-control-allow-origin"] == "https://good.example"
        assert "set-cookie" not in answer.headers


@pytest.mark.attack(67)
async def test_nothing_here_is_a_page(home: Path) -> None:
    async with doors(home) as door:
        for answer in (
            await door.request("GET", DESCRIBE),
            await door.post(message("<script>alert(1)</script>")),
            await door.request("GET", "/<script>"),
        ):
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_describe_tells_what_this_caller_may_call(home: Path) -> None:
    async with doors(home) as door:
        told = (await door.request("GET", DESCRIBE)).json
        assert told["principal"] == "door:loopback" and told["agent"] == "calculator"
        names = {method["name"] for method in told["methods"]}
        assert {"calculator", "tokens"} <= names and "secret" not in names
        schema = next(m for m in told["methods"] if m["name"] == "calculator")["schema_in"]
        assert schema["properties"]["expression"] == {"type": "string"}
        token = add_token(door.agent._life.home, "admin", 0)
        headers = {"Authorization": f"Bearer {token}"}
        assert (await door.request("GET", DESCRIBE, headers=headers)).json["methods"] == []
        policy = door.agent._life.home.policy_file
        rule = '\n[[rule]]\ncaller = "door:admin"\nagent = "*"\nmethod = ["secret", "read"]\nallow = true\n'
        policy.write_text(policy.read_text() + rule)
        door.agent._life._reload()
        told = (await door.request("GET", DESCRIBE, headers=headers)).json
        assert [method["name"] for method in told["methods"]] == ["secret"]
        answer = await door.post(message("secret"), **headers)
        assert answer.payload["result"] == "secret"
        described = await door.post(message("hermes.describe"), **headers)
        assert [m["name"] for m in described.payload["result"]["methods"]] == ["secret"]


async def test_methods_come_and_go_at_run_time(home: Path) -> None:
    async with doors(home) as door:
        assert (await door.call("later"))["error_code"] == 4

        async def later() -> str:
            return "now"

        door.agent.add_method("later", later, public=True)
        assert (await door.call("later"))["result"] == "now"
        door.agent.remove_method("later")
        gone = await door.call("later")
        assert gone["error_code"] == 4 and gone["requested_tool"] == "later" and "echo" in gone["available_tools"]
        door.agent.add_method("later", later)  # the same name, and no longer for everybody
        assert (await door.call("later"))["error_code"] == 4


def client(app: Any, **options: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, client=options.pop("client", ("127.0.0.1", 1)))
    return httpx2.AsyncClient(transport=transport, base_url=options.pop("base", "http://localhost"))


@contextlib.asynccontextmanager
async def lifespan_of(app: Any) -> AsyncIterator[None]:
    """What a server does around an app's life."""
    to_app: asyncio.Queue[Any] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    running = asyncio.ensure_future(app({"type": "lifespan", "asgi": {}, "state": {}}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    yield
    await to_app.put({"type": "lifespan.shutdown"})
    assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
    await running


async def test_served_alone_its_lifespan_runs_the_agent(home: Path) -> None:
    agent = demo(home)
    app = make_door(agent)
    async with lifespan_of(app):
        assert agent.running
        async with client(app) as web:
            assert (await web.post(INVOKE, json=task())).json()["payload"]["result"] == 4
    assert not agent.running


async def test_an_agent_that_runs_is_left_alone(home: Path) -> None:
    agent = demo(home)
    async with agent:
        async with lifespan_of(make_door(agent)):
            assert agent.running
        assert agent.running


async def test_mounted_in_an_app_with_its_lifespan(home: Path) -> None:
    agent = demo(home)
    plain = make_door(agent, hosts=["testserver"])

    async def hello(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    for at in ("/", "/agents/calculator"):
        app = Starlette(routes=[Route("/hello", hello), Mount(at, app=plain)], lifespan=plain.lifespan)
        async with lifespan_of(app), client(app, base="http://testserver") as web:
            assert (await web.get("/hello")).text == "hello"
            answer = await web.post(at.rstrip("/") + INVOKE, json=task())
            assert answer.json()["payload"]["result"] == 4
            assert (await web.post(at.rstrip("/") + "/nothing")).status_code == 404
        assert not agent.running


async def test_mounted_without_it_the_first_request_starts_the_agent(home: Path) -> None:
    agent = demo(home)
    app = Starlette()
    app.mount("/", make_door(agent))
    async with client(app) as web:
        answers = await asyncio.gather(*(web.post(INVOKE, json=task()) for _ in range(3)))
        assert [answer.json()["payload"]["result"] for answer in answers] == [4, 4, 4]
    assert agent.running
    await asyncio.get_running_loop().shutdown_asyncgens()  # as a server's loop does at its end
    assert not agent.running


async def test_mounted_in_fastapi(home: Path) -> None:
    fastapi = pytest.importorskip("fastapi")
    agent = demo(home)
    plain = make_door(agent)
    app = fastapi.FastAPI(lifespan=plain.lifespan)
    app.mount("/", plain)
    async with lifespan_of(app), client(app) as web:
        assert (await web.post(INVOKE, json=task())).json()["payload"]["result"] == 4
    async with client(app, client=("192.0.2.9", 1)) as web, agent:
        assert (await web.post(INVOKE, json=task())).status_code == 401


async def test_an_agent_that_was_ended_stays_so(home: Path) -> None:
    agent = demo(home)
    app = make_door(agent)
    async with client(app) as web, lifespan_of(app):
        await agent.aclose()
        answer = await web.post(INVOKE, json=task())
        assert answer.status_code == 200 and answer.json()["payload"]["reason"] == "stopped"
        assert answer.json()["payload"]["error_code"] == 9
        answer = await web.post(INVOKE, json=task(), headers={"Authorization": "Bearer hp_" + "A" * 43})
        assert answer.status_code in (401, 503)
        assert (await web.get(DESCRIBE)).status_code == 503
        assert (await web.get(READY)).json() == {"status": "stopped", "agent": "calculator"}
        assert (await web.get(READY)).status_code == 503


async def test_a_refusal_keeps_the_connection_in_step(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        for wrong in ({"Content-Type": "text/plain"}, {"Host": "evil.example"}, {"Authorization": "Bearer x"}):
            answer = await line.request(body=message("echo", {"text": "x" * 100_000}), headers=wrong)
            assert answer.status in (415, 421, 401)
            assert (await line.request(body=task())).payload["result"] == 4
