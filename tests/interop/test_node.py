"""A second implementation, written from the spec in Node's standard library, talks to a Python agent (mission I14).

Knows: the command of examples/node and what it prints. Refuses to know: how either side works inside.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, HermesAgent
from hermes_peer.access.home import Home
from hermes_peer.access.trust import add_pin
from hermes_peer.core.config import Config
from hermes_peer.crypto import seal

NODE_FILES = Path(__file__).parents[2] / "examples" / "node"
RULE = '\n[[rule]]\ncaller = "node-client"\nagent = "*"\nmethod = "**"\nallow = true\n'
FEW = Config(unacked=64 * 1024)  # without ACKs this side falls silent after 64 KiB
LIMIT_S = 40


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **keywords: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **keywords), LIMIT_S))

    return run


async def node(*words: str, program: str = "call.mjs") -> tuple[int, list[str], str]:
    """(exit code, lines of its output, what it said of errors) of one run."""
    binary = shutil.which("node")
    assert binary is not None, "these tests need Node 20 or later on the PATH; no `node` was found there"
    process = await asyncio.create_subprocess_exec(
        binary, NODE_FILES / program, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S - 10)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, out.decode().splitlines(), err.decode().strip()


class Worker:
    """An agent that Node may call, and the words with which it does."""

    def __init__(self, agent: HermesAgent, key: Path) -> None:
        self.agent = agent
        self.key = str(key)
        (self.address,) = [a for a in agent.addresses if a.startswith("hermes://")]

    async def call(self, method: str, payload: Any = None, *options: str) -> tuple[int, list[Any], str]:
        code, lines, said = await node(*options, self.address, self.key, method, json.dumps(payload or {}))
        return code, [json.loads(line) for line in lines], said


@asynccontextmanager
async def worker(tmp: Path, *, trusted: bool = True, config: Config = FEW) -> AsyncIterator[Worker]:
    home, key = tmp / "home", tmp / "node.pem"
    code, (fingerprint,), said = await node("--show-key", str(key))
    assert (code, said) == (0, "")
    if trusted:
        opened = Home.open(home)
        add_pin(opened, fingerprint, "node-client")
        opened.policy_file.write_text(opened.policy_file.read_text() + RULE)
    agent = HermesAgent("worker", home=home, listen="hermes://127.0.0.1:0", suites=(1, 2), config=config)

    @agent.method("text.shout")
    async def shout(text: str) -> dict[str, Any]:
        return {"text": text.upper(), "length": len(text)}

    @agent.method("whoami")
    async def whoami(request: Any) -> str:
        return str(request.caller)

    @agent.method("text.repeat")
    async def repeat(text: str, times: int) -> str:
        return text * times

    @agent.method("count")
    async def count(n: int, size: int = 0, pause: float = 0.0) -> AsyncIterator[dict[str, Any]]:
        for i in range(n):
            yield {"i": i, "filler": "x" * size}
            if pause:
                await asyncio.sleep(pause)

    @agent.method("bytes")
    async def raw() -> AsyncIterator[bytes]:
        yield b"\0\xff"
        yield b""

    @agent.method("fail")
    async def fail() -> None:
        raise CallError("no_paper", "the tray is empty", details={"tray": 2}, retryable=True)

    @agent.method("sleep")
    async def sleep(request: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    stopped = asyncio.Event()
    async with agent:
        yield Worker(agent, key)
        if stopped.is_set():
            assert not agent.status()["calls"]["running"]


@in_a_loop
async def test_one_call(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        assert await w.call("text.shout", {"text": "grüß dich"}) == (0, [{"text": "GRÜSS DICH", "length": 9}], "")
        assert await w.call("whoami") == (0, ["node-client"], "")


@in_a_loop
async def test_a_stream_of_a_thousand_items_in_order(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        code, answers, said = await w.call("count", {"n": 1000})
        assert (code, said) == (0, "")
        assert [a["i"] for a in answers[:-1]] == list(range(1000)) and answers[-1] is None


@in_a_loop
async def test_two_megabytes_need_credit_and_acks(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        code, answers, said = await w.call("count", {"n": 200, "size": 10_000})
        assert (code, said, len(answers)) == (0, "", 201)
        assert all(len(a["filler"]) == 10_000 for a in answers[:-1])


@in_a_loop
async def test_a_message_longer_than_every_window_both_ways(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        text = "0123456789" * 10_000  # an argument of a process has at most 128 KiB
        assert await w.call("text.repeat", {"text": text, "times": 12}) == (0, [text * 12], "")


@in_a_loop
async def test_items_of_plain_bytes(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        assert await w.call("bytes") == (0, [{"bytes": "AP8="}, {"bytes": ""}, None], "")


@in_a_loop
async def test_errors_come_as_errors(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        code, answers, said = await w.call("text.shuot", {"text": "a"})
        assert (code, answers) == (1, []) and "ERROR_TOOL_NOT_FOUND (4)" in said and "text.shout" in said
        code, answers, said = await w.call("fail")
        assert (code, answers, said) == (1, [], "ERROR_APPLICATION (10) no_paper: the tray is empty")
        code, _, said = await w.call("text.shout", {"text": 5})
        assert code == 1 and "ERROR_INVALID_REQUEST (2)" in said and "`text`" in said


@in_a_loop
async def test_a_spent_ttl_ends_the_call_at_both_ends(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        code, _, said = await w.call("sleep", None, "--ttl", "0.3")
        assert code == 1 and "(3)" in said
        while w.agent.status()["calls"]["running"]:
            await asyncio.sleep(0.01)


@in_a_loop
async def test_an_untrusted_key_is_told_so_under_seal(tmp_path: Path) -> None:
    async with worker(tmp_path, trusted=False) as w:
        code, answers, said = await w.call("text.shout", {"text": "a"})
        _, (fingerprint,), _ = await node("--show-key", w.key)
        assert (code, answers) == (2, [])
        assert fingerprint in said and "hermes-peer trust add" in said
        assert w.agent.status()["refused_links"] == {"untrusted": 1}


@in_a_loop
async def test_a_name_that_was_not_granted_is_refused(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        code, _, said = await w.call("text.shout", {"text": "a"}, "--name", "boss")
        assert code == 2 and "node-client" in said and "name=boss" in said


@in_a_loop
async def test_another_key_than_the_one_dialled_meets_silence(tmp_path: Path) -> None:
    async with worker(tmp_path) as w:
        w.address = "hermes://" + "ab" * 32 + w.address[len("hermes://") + 64 :]
        code, _, said = await w.call("text.shout", {"text": "a"})
        assert code == 2 and said.startswith("closed without an answer")


@in_a_loop
async def test_the_agents_next_keys_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rekeys = []
    renew = seal.Sealer.rekey
    monkeypatch.setattr(seal.Sealer, "rekey", lambda self, now=None: rekeys.append(now) or renew(self, now))
    async with worker(tmp_path, config=dataclasses.replace(FEW, rekey_s=2.0)) as w:
        code, answers, said = await w.call("count", {"n": 2100, "pause": 0.002})
        assert (code, said, len(answers)) == (0, "", 2101)
    assert len(rekeys) >= 2


@in_a_loop
async def test_the_published_vectors_hold_in_node() -> None:
    code, lines, said = await node(program="vectors.mjs")
    assert (code, said) == (0, "")
    assert lines[-1].startswith("all ") and [line.split(":")[0] for line in lines[:3]] == [
        "suite_2",
        "suite_1",
        "resumed",
    ]
