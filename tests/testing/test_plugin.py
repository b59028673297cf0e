"""testing/plugin: its fixtures, as a user's test would have them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import hermes_peer.testing

ROOT = Path(__file__).resolve().parents[2]
FILE = """
import asyncio, os

def test_pair(hermes_pair, hermes_home):
    async def main():
        async with hermes_pair() as (worker, me):
            async def shout(text: str) -> str:
                return text.upper()
            worker.add_method("shout", shout)
            assert await me.call("worker", "shout", {"text": "hi"}) == "HI"
            assert worker.addresses[0].startswith("hermes+memory://")
            assert [str(worker._life.home.path), str(hermes_home)] == [os.environ["HERMES_PEER_HOME"]] * 2
    asyncio.run(main())

def test_names(hermes_pair):
    async def main():
        async with hermes_pair("a", "b", capabilities=["x"]) as (a, b):
            assert await b.call("a", "hermes.ping")
            assert len(await a.find(capability="x")) == 2
    asyncio.run(main())

def test_proxy(fault_proxy, hermes_home):
    from hermes_peer import HermesAgent
    async def main():
        async with HermesAgent("worker", listen="hermes://127.0.0.1:0") as worker, HermesAgent("me") as me:
            for address in worker.addresses:
                async with fault_proxy(address) as proxy:
                    if "unix" in address:
                        assert proxy.path
                        continue
                    host, port = proxy.address
                    assert await me.call(f"hermes://{worker.fingerprint}@{host}:{port}", "hermes.ping")
                    assert proxy.connections == 1
    asyncio.run(main())
"""


def test_as_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(FILE)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "test_user.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


def test_nothing_loads_before_it_is_asked_for() -> None:
    code = "import sys, hermes_peer.testing.plugin, hermes_peer.testing; print('cryptography' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "False\n"


def test_the_names_of_the_package(tmp_path: Path) -> None:
    for name in hermes_peer.testing.__all__:
        assert getattr(hermes_peer.testing, name) is not None

    async def main() -> None:
        async with hermes_peer.testing.agent_pair(tmp_path / "home") as (worker, me):
            assert (await me.call("worker", "hermes.ping"))["agent"] == worker.name

    asyncio.run(main())
