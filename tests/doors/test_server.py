"""The door that an agent opens by itself: what it may be bound to, TLS, its end (attack 63)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import HermesAgent, LinkError, UsageError
from hermes_peer.access.home import Home
from hermes_peer.access.tokens import FILE, add_token
from hermes_peer.doors.server import is_loopback, split
from tests.doors.rig import Rig, demo, doors, http, message, task
from tests.loops import fds


async def opened(home: Path, options: Any) -> str:
    agent = HermesAgent("x", home=home, listen=False, http=options)
    async with agent:
        return agent.doors[0]


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder = tmp_path_factory.mktemp("pem")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


@pytest.mark.attack(63)
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("token", [False, True])
async def test_what_others_can_reach_needs_tls_and_a_token(
    home: Path, pem: tuple[Path, Path], host: str, tls: bool, token: bool
) -> None:
    if token:
        add_token(Home.open(home), "page", 0)
    options = {"bind": f"{host}:0"} | ({"cert": pem[0], "key": pem[1]} if tls else {})
    if tls and token:
        assert (await opened(home, options)).startswith("https://")
        return
    with pytest.raises(UsageError) as refused:
        await opened(home, options)
    said = str(refused.value)
    assert ("TLS" in said) is not tls and ("hermes-peer token add" in said) is not token
    assert "other machines could reach" in said and "127.0.0.1" in said


async def test_a_loopback_door_needs_neither(home: Path) -> None:
    for bind in ("127.0.0.1:0", "localhost:0", "[::1]:0", "127.0.0.5:0"):
        try:
            assert (await opened(home, bind)).startswith("http://")
        except LinkError:
            assert "::1" in bind, "this machine has no IPv6"


async def test_a_broken_token_file_opens_nothing(home: Path, pem: tuple[Path, Path]) -> None:
    (Home.open(home).path / FILE).write_text("nonsense")
    with pytest.raises(UsageError, match=r"0644|not TOML|Other users can read"):
        await opened(home, {"bind": "0.0.0.0:0", "cert": pem[0], "key": pem[1]})


@pytest.mark.parametrize("bad", ["", "8080", ":", "host:", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:-1", "a:b:c:"])
def test_what_is_no_address(bad: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        split(bad)


def test_hosts() -> None:
    assert split("[::1]:80") == ("::1", 80)
    assert is_loopback("localhost") and is_loopback("127.3.4.5") and is_loopback("::1")
    assert not is_loopback("0.0.0.0") and not is_loopback("") and not is_loopback("192.0.2.1")
    with pytest.raises(UsageError, match="no such host"):
        is_loopback("no.such.host.invalid")


async def test_mistakes_are_told_plainly(home: Path, pem: tuple[Path, Path], tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for options, says in (
        ({"bind": "127.0.0.1:0", "prot": 1}, "has no 'prot'"),
        ({"bind": "127.0.0.1:0", "cert": pem[0]}, "both files"),
        ({"bind": "127.0.0.1:0", "cert": pem[0], "key": tmp_path / "none"}, "there is no file"),
        ({"bind": "127.0.0.1:0", "cert": junk, "key": junk}, "cannot be used for TLS"),
    ):
        with pytest.raises(UsageError, match=says):
            await opened(home, options)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(LinkError, match="stop the other program or choose another port"):
            await opened(home, f"127.0.0.1:{taken.getsockname()[1]}")


async def test_over_tls(home: Path, pem: tuple[Path, Path]) -> None:
    agent = demo(home, http={"bind": "127.0.0.1:0", "cert": pem[0], "key": pem[1]})
    async with doors(home, agent) as door:
        assert door.base.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(pem[0]))
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=context, server_hostname="localhost")
        writer.write(http("POST", "/hermes/v1/invoke", task(), {"Connection": "close"}))
        assert b'"result":4' in await reader.read()
        writer.close()
        plain = await door.line()
        plain.send(http("POST", "/hermes/v1/invoke", task()))
        assert await plain.ended() == b""


async def test_two_starts_leave_nothing(home: Path) -> None:
    before = fds()
    for _ in range(2):
        async with doors(home) as door:
            assert (await door.call("calculator", {"expression": "1"}))["result"] == 1
    left = {each for each in fds() - before if "socket" in each}
    assert not left


async def test_the_end_is_quick_with_streams_open(home: Path) -> None:
    async with doors(home) as door:
        line = await door.line()
        line.send(http("POST", "/hermes/v1/invoke", message("forever"), {"Accept": "text/event-stream"}))
        await door.agent.begun.wait()
        idle = await door.line()
        await idle.request(body=task())
        async with door.websocket():
            begun = time.monotonic()
            await door.agent.aclose()
            assert time.monotonic() - begun < 1.0
        seen = await line.ended()
        assert b"task_result" in seen and b'"shutdown"' in seen  # its last word, and not a cut
        assert await idle.ended() == b""


async def test_the_same_agent_by_every_way(home: Path) -> None:
    """Natively, by POST, WebSocket and Unix socket: one result, one trace, one set of rules."""
    from tests.agent.rig import planner
    from tests.doors.rig import Binary, Talk

    agent = demo(home, http="127.0.0.1:0", socket=home.parent / "s")
    agent.listen = None
    trace = "feedfeedfeedfeedfeedfeedfeedfeed"
    async with agent, planner(home) as me:
        rig = Rig(agent, agent.doors[0].removesuffix("/hermes/v1/invoke"), agent.doors[1])
        results = [await me.call("calculator", "calculator", {"expression": "2+2"}, trace_id=trace)]
        results.append((await rig.call("calculator", {"expression": "2+2"}, trace_id=trace))["result"])
        async with rig.websocket() as web:
            await Talk(web).send("calculator", {"expression": "2+2"}, trace_id=trace)
            results.append((await Talk(web).result())["result"])
        line = await Binary.open(rig.socket)
        line.send("calculator", {"expression": "2+2"}, trace_id=trace)
        results.append((await line.next()).payload["result"])
        await line.close()
        assert results == [4, 4, 4, 4]
        assert {seen for _, seen, _ in agent.seen} == {trace}
        assert [who.partition(":uid")[0] for who, _, _ in agent.seen] == [
            "planner",
            "door:loopback",
            "door:loopback",
            "door",
        ]
        for each in rig.lines:
            each.close()


def test_the_floor_below_knows_no_door() -> None:
    """agent/ loads doors by name and only on demand: without the extra, everything else works."""
    code = (
        "import sys; sys.modules['starlette'] = sys.modules['uvicorn'] = None\n"
        "from hermes_peer import HermesAgent, UsageError\n"
        "import asyncio, tempfile\n"
        "async def main():\n"
        "    home = tempfile.mkdtemp()\n"
        "    async with HermesAgent('x', home=home, listen=False): pass\n"
        "    try:\n"
        "        async with HermesAgent('x', home=home, listen=False, http='127.0.0.1:0'): pass\n"
        "    except UsageError as error: print(error)\n"
        "asyncio.run(main())\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'hermes-peer[http]'" in done.stdout
