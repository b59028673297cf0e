"""Programs that are not ours: curl, requests, Node, a browser, wrk, schemathesis, nginx."""

# ruff: noqa: E501  (scripts in other languages)

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.access.tokens import add_token
from tests.doors.rig import Rig, Talk, doors, message, need, patient, run, task
from tests.loops import case

SOAK = os.environ.get("HERMES_TEST_SOAK") == "1"
TYPE = "Content-Type: application/json"


def need_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        said = f"{name} is not installed: pip install {name}"
        pytest.fail(said) if os.environ.get("CI") else pytest.skip(said)


# ---------------------------------------------------------------- curl


async def curl(*words: str, code: int | None = 0) -> str:
    return await run(need("curl", "apt-get install curl"), "-sS", "--max-time", "30", *words, code=code)


@case("HPC-052", "HPC-055", "HPC-056", "HPC-058")
@patient
async def test_curl(home: Path, tmp_path: Path) -> None:
    async with doors(home) as door:
        body = json.dumps(task())
        plain = await curl(door.url, "-H", TYPE, "-d", body)
        assert json.loads(plain)["payload"]["result"] == 4
        twice = await curl("-v", "-H", TYPE, "-d", body, door.url, "--next", "-sS", "-H", TYPE, "-d", body, door.url)
        assert twice.count('"result":4') == 2
        nowhere = ["-o", "/dev/null"] * 3
        connections = await curl("-w", "%{num_connects}\n", *nowhere, "-H", TYPE, "-d", body, *[door.url] * 3)
        assert connections.split() == ["1", "0", "0"]  # kept alive
        closing = await curl("-i", "-H", TYPE, "-H", "Connection: close", "-d", body, door.url)
        assert "connection: close" in closing and '"result":4' in closing
        chunked = await curl("-H", TYPE, "-H", "Transfer-Encoding: chunked", "-d", body, door.url)
        assert '"result":4' in chunked
        large = tmp_path / "large.json"
        large.write_text(json.dumps(message("echo", {"text": "四" * 700_000})))
        expect = await curl("-H", TYPE, "-H", "Expect: 100-continue", "-d", f"@{large}", door.url)
        assert len(json.loads(expect)["payload"]["result"]["text"]) == 700_000
        over = tmp_path / "over.json"
        over.write_text(json.dumps(message("echo", {"text": "x" * 6_000_000})))
        status = ["-o", "/dev/null", "-w", "%{http_code}"]
        assert await curl(*status, "-H", TYPE, "-d", f"@{over}", door.url) == "413"
        assert await curl(*status, "-H", TYPE, "-H", "Transfer-Encoding: chunked", "-d", f"@{over}", door.url) == "413"
        assert await curl(*status, "-I", door.base + "/hermes/v1/ready") == "200"
        assert await curl(*status, "-I", door.url) == "405"
        assert await curl(*status, "-X", "OPTIONS", door.url) == "204"
        assert await curl(*status, "-X", "PUT", "-H", TYPE, "-d", body, door.url) == "405"
        assert await curl(*status, "-d", body, door.url) == "415"  # curl's own type is that of a form
        assert await curl(*status, "-H", "Content-Type: text/plain", "-d", body, door.url) == "415"
        assert await curl(*status, "-H", TYPE + "; charset=utf-8", "-d", body, door.url) == "200"
        assert await curl(*status, "-H", TYPE + "; charset=latin-1", "-d", body, door.url) == "415"
        marked = tmp_path / "bom.json"
        marked.write_bytes(b"\xef\xbb\xbf" + body.encode())
        assert "byte order mark" in await curl("-H", TYPE, "--data-binary", f"@{marked}", door.url)
        assert await curl(*status, "--http2-prior-knowledge", "-H", TYPE, "-d", body, door.url, code=None) in (
            "000",
            "400",
        )
        assert '"result":4' in await curl("--http1.0", "-H", TYPE, "-d", body, door.url)
        stream = await curl(
            "-N", "-H", TYPE, "-H", "Accept: text/event-stream", "-d", json.dumps(message("tokens", {"n": 3})), door.url
        )
        assert re.findall(r"^event: (\w+)", stream, re.M) == [
            "task_ack",
            *["stream_item"] * 3,
            "stream_end",
            "task_result",
        ]
        assert (
            await curl(
                "--max-time", "0.3", "-H", TYPE, "-d", json.dumps(message("sleep", {"s": 60})), door.url, code=28
            )
            == ""
        )


async def test_escapes_and_raw_text_mean_the_same(home: Path) -> None:
    """Mission I16."""
    async with doors(home) as door:
        for text in ('"2+2\\u56db"', '"2+2四"'):
            body = json.dumps(message("echo", {"x": "HERE"})).replace('"HERE"', text)
            assert json.loads(await curl(door.url, "-H", TYPE, "-d", body))["payload"]["result"] == {"x": "2+2四"}


# ---------------------------------------------------------------- Python


@patient
async def test_requests(home: Path) -> None:
    need_package("requests")
    async with doors(home) as door:
        code = f"""
import requests
session = requests.Session()
for n in range(3):
    answer = session.post({door.url!r}, json={message("echo", {"n": 1})!r} | {{}}, timeout=30)
    assert answer.status_code == 200 and answer.json()["payload"]["result"] == {{"n": 1}}, answer.text
assert session.head({door.base + "/hermes/v1/ready"!r}, timeout=30).status_code == 200
assert session.post({door.url!r}, data={json.dumps(task())!r}, timeout=30).status_code == 415
assert session.post({door.url!r}, data=iter([{json.dumps(task())!r}.encode()]), headers={{"Content-Type": "application/hermes+json"}}, timeout=30).json()["payload"]["result"] == 4
print("fine")
"""
        assert await run(sys.executable, "-c", code) == "fine\n"


async def test_the_standard_library(home: Path) -> None:
    async with doors(home) as door:
        code = f"""
import json, urllib.request
request = urllib.request.Request({door.url!r}, {json.dumps(task()).encode()!r}, {{"Content-Type": "application/json"}})
print(json.load(urllib.request.urlopen(request, timeout=30))["payload"]["result"])
"""
        assert await run(sys.executable, "-c", code) == "4\n"


# ---------------------------------------------------------------- Node

NODE = """
const url = process.argv[1], ws = url.replace("http", "ws");
const message = (tool, payload = {}, msg_type = 1) => JSON.stringify({
  meta: {version: "1.2", msg_type, sender_id: "node", receiver_id: null, ttl: 30, trace_id: "node-trace"},
  payload: {...(tool ? {tool} : {}), ...payload}});
const post = (body, headers = {}) => fetch(url, {method: "POST", body, headers: {"Content-Type": "application/json", ...headers}});
const answer = await (await post(message("calculator", {expression: "2+2"}))).json();
console.log(answer.payload.result, answer.meta.trace_id);
console.log((await fetch(url, {method: "POST", body: "{}"})).status);
const events = await (await post(message("tokens", {n: 2}), {Accept: "text/event-stream"})).text();
console.log([...events.matchAll(/^event: (\\w+)/gm)].map(m => m[1]).join(" "));
const socket = new WebSocket(ws);
await new Promise((good, bad) => { socket.onopen = good; socket.onerror = bad; });
const seen = [];
await new Promise(done => {
  socket.onmessage = ({data}) => {
    const {meta, payload} = JSON.parse(data);
    seen.push(meta.msg_type);
    if (meta.msg_type === 6) socket.send(message(null, {info_id: payload.info_id, result: "blue"}, 7));
    if (meta.msg_type === 2) { console.log(payload.result.answer); done(); }
  };
  socket.send(message("ask"));
});
console.log(seen.join(" "));
await new Promise(done => { socket.onclose = done; socket.close(); });
"""


@case("HPC-062")
@patient
async def test_node(home: Path) -> None:
    node = need("node", "apt-get install nodejs")
    async with doors(home) as door:
        out = await run(node, "--no-warnings", "--experimental-websocket", "--input-type=module", "-e", NODE, door.url)
        assert out.splitlines() == [
            "4 node-trace",
            "415",
            "task_ack stream_item stream_item stream_end task_result",
            "blue",
            "3 6 5 2",
        ]


# ---------------------------------------------------------------- a browser

PAGE = """<!doctype html><title>page</title><body><script>
const url = "URL", token = "TOKEN", seen = {};
const message = JSON.stringify({meta: {version: "1.2", msg_type: 1, sender_id: "page", receiver_id: null, ttl: 30, trace_id: "page"},
  payload: {tool: "calculator", expression: "2+2"}});
const attempt = async (name, work) => { let said; try { said = await work(); } catch (error) { said = error.name; }
  seen[name] = said; };
const socket = protocols => new Promise((good, bad) => {
  const line = new WebSocket(url.replace("http", "ws"), protocols);
  line.onerror = () => bad(new TypeError());
  line.onopen = () => line.send(message);
  line.onmessage = ({data}) => { good(JSON.parse(data).payload.result); line.close(); };
});
(async () => {
  await attempt("plain", async () => (await fetch(url, {method: "POST", body: message, mode: "no-cors", headers: {"Content-Type": "text/plain"}})).type);
  await attempt("json", async () => (await fetch(url, {method: "POST", body: message, headers: {"Content-Type": "application/json"}})).status);
  await attempt("token", async () => (await (await fetch(url, {method: "POST", body: message, headers: {"Content-Type": "application/json", Authorization: "Bearer " + token}})).json()).payload.result);
  await attempt("socket", () => socket([]));
  await attempt("sockettoken", () => socket(["hermes.v1", "token." + token]));
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
})();
</script>"""


class Page:
    """A page of an origin of its own, and a browser that is shown it; the page reports what came of its attempts."""

    def __init__(self, html: str) -> None:
        self._html = html.encode()
        self._seen: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST /seen") and not self._seen.done():
                size = int(re.search(rb"content-length: (\d+)", head, re.I)[1])  # type: ignore[index]
                self._seen.set_result(json.loads(await reader.readexactly(size)))
            size = len(self._html)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n" % size)
            writer.write(b"Connection: close\r\n\r\n" + self._html)
        writer.close()

    async def __aenter__(self) -> Page:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://localhost:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def shown(self, folder: Path) -> dict[str, Any]:
        """What the page reports from a fresh browser."""
        self._seen = asyncio.get_running_loop().create_future()
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        nowhere = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            need("chromium", "apt-get install chromium"),
            *words,
            f"--user-data-dir={folder}",
            "--remote-debugging-port=0",  # else it prints the page and ends
            self.url,
            stdout=nowhere,
            stderr=nowhere,
        )
        try:
            return await asyncio.wait_for(self._seen, 60)
        finally:
            process.terminate()
            await process.wait()


@pytest.mark.attack(64, 65, 66)
@patient
async def test_a_page_of_another_origin(home: Path, tmp_path: Path) -> None:
    need("chromium", "apt-get install chromium")
    async with doors(home) as door:
        token = add_token(door.agent._life.home, "page", 0)
        policy = door.agent._life.home.policy_file
        policy.write_text(
            policy.read_text() + '\n[[rule]]\ncaller="door:page"\nagent="*"\nmethod="public"\nallow=true\n'
        )
        door.agent._life._reload()
        async with Page(PAGE.replace("URL", door.url).replace("TOKEN", token)) as other:
            seen = await other.shown(tmp_path / "evil")
            assert seen["json"] == seen["token"] == seen["socket"] == seen["sockettoken"] == "TypeError", seen
            assert door.agent.seen == []
            door.agent._life.doors[0]._app.gate.origins = frozenset({other.url})  # now it is listed
            seen = await other.shown(tmp_path / "good")
            assert seen["token"] == seen["sockettoken"] == 4, seen
            assert seen["json"] == 401 and seen["socket"] == "TypeError", seen
            assert {who for who, _, _ in door.agent.seen} == {"door:page"} and len(door.agent.seen) == 2


# ---------------------------------------------------------------- load and fuzz

LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local bodies = BODIES
local i = 0
request = function() i = i + 1; return wrk.format(nil, nil, nil, bodies[i % #bodies + 1]) end
"""


@patient
async def test_wrk(home: Path, tmp_path: Path) -> None:
    wrk = need("wrk", "apt-get install wrk")
    async with doors(home) as door:
        bodies = [
            json.dumps(message("calculator", {"expression": "2+2"})),
            json.dumps(message("echo", {"x": "é" * 500})),
            "{",
            "",
        ]
        lua = tmp_path / "post.lua"
        lua.write_text(LUA.replace("BODIES", "{" + ",".join(f"[==[{body}]==]" for body in bodies) + "}"))
        out = await run(wrk, "-t1", "-c32", "-d2s", "-s", str(lua), door.url)
        done = int(re.search(r"(\d+) requests in", out)[1])  # type: ignore[index]
        wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
        assert done > 200 and "Socket errors" not in out
        assert wrong is not None and 0.4 < int(wrong[1]) / done < 0.6  # the bad half is answered 400, no more


@patient
async def test_schemathesis(home: Path) -> None:
    need_package("schemathesis")
    async with doors(home) as door:
        for name in ("sleep", "forever", "slow", "large", "bytes", "value", "crash", "ask"):
            door.agent.remove_method(name)  # what it would call with any number at all
        program = Path(sys.executable).with_name("schemathesis")
        out = await run(
            str(program), "run", f"{door.base}/hermes/v1/openapi.json", "--max-examples", "10", "--seed", "1",
            "--generation-database", "none", "--request-timeout", "20", "--no-color",
            "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            seconds=90, code=None, HYPOTHESIS_STORAGE_DIRECTORY=str(home / "hypothesis"),
        )  # fmt: skip
        assert "No issues found" in out, out[-3000:]


# ---------------------------------------------------------------- nginx

CONF = """
daemon off; pid FOLDER/pid; error_log stderr warn; worker_processes 1;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p; fastcgi_temp_path FOLDER/f; uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  server {
    listen 127.0.0.1:PORT;
    location / {
      proxy_pass http://127.0.0.1:DOOR;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      TIMEOUTS
    }
  }
}
"""


@contextlib.asynccontextmanager
async def nginx(door: Rig, folder: Path, timeouts: str) -> AsyncIterator[Rig]:
    program = need("nginx", "apt-get install nginx-light")
    probe = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    folder.mkdir()
    conf = folder / "nginx.conf"
    words = {"FOLDER": str(folder), "PORT": str(port), "DOOR": str(door.port), "TIMEOUTS": timeouts}
    conf.write_text(re.sub("|".join(words), lambda found: words[found[0]], CONF))
    process = await asyncio.create_subprocess_exec(
        program, "-c", str(conf), "-p", str(folder), stderr=asyncio.subprocess.PIPE
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            assert process.returncode is None, await process.stderr.read()  # type: ignore[union-attr]
            await asyncio.sleep(0.02)
        behind = Rig(door.agent, f"http://127.0.0.1:{port}")
        yield behind
        for line in behind.lines:
            line.close()
    finally:
        process.terminate()
        await process.wait()


async def silent_task(behind: Rig, seconds: float) -> None:
    """A task that says nothing for so long, by WebSocket and by server-sent events at once; and a plain POST, cut."""

    async def by_socket() -> Any:
        async with behind.websocket(ping_interval=None) as socket:
            talk = Talk(socket)
            await talk.send("sleep", {"s": seconds}, ttl=seconds + 60)
            while (found := json.loads(await asyncio.wait_for(socket.recv(), seconds + 10)))["meta"]["msg_type"] != 2:
                if found["meta"]["msg_type"] == 8:
                    await talk.send(msg_type=9)
            return found["payload"]["result"]

    async def by_events() -> str:
        answer = ""
        body = json.dumps(message("sleep", {"s": seconds}, ttl=seconds + 60))
        out = await run(
            need("curl", "apt-get install curl"), "-sSN", "-H", TYPE, "-H", "Accept: text/event-stream", "-d", body,
            behind.url, seconds=seconds + 60,
        )  # fmt: skip
        answer = out.rpartition('"result":"')[2].partition('"')[0]
        return answer

    assert await asyncio.gather(by_socket(), by_events()) == ["slept", "slept"]


@patient
async def test_behind_nginx(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patience lowered to a second, our heartbeats with it."""
    monkeypatch.setattr("hermes_peer.doors.posting.BEAT_S", 0.25)
    short = "proxy_read_timeout 1s; proxy_send_timeout 1s;"
    beats = {"heartbeat_s": 0.4, "dead_s": 30}
    async with doors(home, http=beats) as door, nginx(door, tmp_path / "nginx", short) as behind:
        assert (await behind.call("calculator", {"expression": "2+2"}))["result"] == 4
        await silent_task(behind, 2)
        lasting = {"s": 2, "task_id": "n", "hermes": {"detach": True}}
        assert (await behind.post(message("sleep", lasting))).status == 504  # no plain POST outlives it
        answer = await door.post(message("sleep", lasting))  # but what said detach does
        assert answer.payload["result"] == "slept"


@pytest.mark.skipif(not SOAK, reason="three minutes: HERMES_TEST_SOAK=1")
def test_three_silent_minutes_behind_nginx_as_it_comes(home: Path, tmp_path: Path) -> None:
    async def soak() -> None:
        async with doors(home) as door, nginx(door, tmp_path / "nginx", "") as behind:
            await silent_task(behind, 180)

    asyncio.run(soak())
