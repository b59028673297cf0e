"""`hermes-peer token`, and `run --http` that heeds it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tests.cli.conftest import Place, running

AGENT = """
from hermes_peer import HermesAgent
agent = HermesAgent("doors")

@agent.method("add", public=True)
async def add(x: int, y: int) -> int:
    return x + y

agent.start()
"""
BODY = {
    "meta": {"version": "1.2", "msg_type": 1, "sender_id": "t", "receiver_id": None, "ttl": 5, "trace_id": "t"},
    "payload": {"tool": "add", "x": 1, "y": 2},
}


def post(url: str, **headers: str) -> tuple[int, Any]:
    fields = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
    request = urllib.request.Request(url, json.dumps(BODY).encode(), fields)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)["payload"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["payload"]


def test_add_list_revoke(fresh: Place) -> None:
    assert "no token was made yet" in fresh.hp("token", "list").stderr
    done = fresh.hp("token", "add", "dashboard")
    token = done.stdout.strip()
    assert token.startswith("hp_") and 'caller = "door:dashboard"' in done.stderr  # the token alone is on stdout
    listed = fresh.hp("token", "list")
    assert "door:dashboard" in listed.stdout and token not in listed.stdout
    (entry,) = map(json.loads, fresh.hp("token", "list", "--json").stdout.splitlines())
    assert entry["name"] == "dashboard" and entry.keys() == {"name", "principal", "made"}
    assert "token revoke dashboard" in fresh.refusal("token", "add", "dashboard", code=2)
    assert "cannot be an agent name" in fresh.refusal("token", "add", "No Name", code=2)
    other = json.loads(fresh.hp("token", "add", "other", "--json").stdout)
    assert other["principal"] == "door:other" and other["token"].startswith("hp_")
    assert "no token any more" in fresh.hp("token", "revoke", "dashboard").stdout
    assert "nothing was changed" in fresh.hp("token", "revoke", "dashboard", code=1).stderr
    assert "Commands" in fresh.hp("token").stdout


def test_a_door_of_the_command_line(fresh: Place) -> None:
    (fresh.folder / "doors.py").write_text(AGENT)
    path = fresh.folder / "door.sock"
    with running(fresh, "doors.py", "--http", "127.0.0.1:0", "--http-rate", "100", "--socket", str(path)) as agent:
        said = [line.split(": ", 1)[1].strip() for line in agent.lines if "a plain door is open" in line]
        url = said[0]
        assert url.startswith("http://127.0.0.1:") and url.endswith("/hermes/v1/invoke") and said[1] == str(path)

        assert post(url)[1]["result"] == 3
        token = fresh.hp("token", "add", "dashboard").stdout.strip()
        status, payload = post(url, Authorization=f"Bearer {token}")
        assert status == 200 and payload["error_code"] == 8  # it is known, and no rule speaks of it
        rule = '\n[[rule]]\ncaller = "door:dashboard"\nagent = "*"\nmethod = "public"\nallow = true\n'
        policy = fresh.home / "policy.toml"
        policy.write_text(policy.read_text() + rule)
        while post(url, Authorization=f"Bearer {token}")[1].get("result") != 3:
            pass
        fresh.hp("token", "revoke", "dashboard")
        assert post(url, Authorization=f"Bearer {token}")[0] == 401
        assert post(url, Host="evil.example")[0] == 421


def test_what_others_could_reach_does_not_open(fresh: Place) -> None:
    (fresh.folder / "doors.py").write_text(AGENT)
    said = fresh.refusal("run", "doors.py", "--http", "0.0.0.0:0", code=2, input="").splitlines()[-1]
    assert "TLS" in said and "hermes-peer token add NAME" in said
    assert "HOST:PORT" in fresh.refusal("run", "doors.py", "--http", "8080", code=2)
    assert "both files" in fresh.refusal("run", "doors.py", "--http", "127.0.0.1:0", "--http-cert", "x", code=2)


def test_policy_check_knows_the_doors(fresh: Place) -> None:
    assert "allowed" not in fresh.hp("policy", "check", "door:loopback", "doors", "add", code=4).stdout
