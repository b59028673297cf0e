"""docs/doors.md: every command on it is run, and says what the page says it says."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.rig import need

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "doors.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.S | re.M)
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, dict[str, str]]]:
    """A folder in which the page's calculator runs, on a port of its own."""
    folder = tmp_path_factory.mktemp("page")
    env = {**os.environ, "HERMES_PEER_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT / "src")}
    bin = folder / "bin"
    bin.mkdir()
    (bin / "hermes-peer").write_text(f'#!/bin/sh\nexec {sys.executable} -m hermes_peer "$@"\n')
    (bin / "hermes-peer").chmod(0o755)
    env["PATH"] = f"{bin}:{env['PATH']}"
    words = ["hermes-peer", "run", str(ROOT / "examples/calculator.py"), "--http", "127.0.0.1:0", "--socket", "./door"]
    process = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = ""
    while "is ready" not in (line := process.stdout.readline()):
        assert line, "the calculator did not start"
        if "http://" in line:
            port = re.search(r":(\d+)/", line)[1]  # type: ignore[index]
    try:
        yield folder, port, env
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def shell(place: tuple[Path, str, dict[str, str]], script: str) -> str:
    folder, port, env = place
    done = subprocess.run(
        ["bash", "-c", script.replace("localhost:8000", f"localhost:{port}")],
        cwd=folder, env=env, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done.stdout


def pattern(expected: str) -> str:
    """`…` stands for anything."""
    return ".*?".join(re.escape(part) for part in expected.strip().split("…"))


COMMANDS = [(text, BLOCKS[n + 1][1]) for n, (kind, text) in enumerate(BLOCKS) if kind == "sh"]


@pytest.mark.parametrize(
    ("script", "says"), COMMANDS, ids=[text.split()[0] + str(n) for n, (text, _) in enumerate(COMMANDS)]
)
def test_the_commands(place: tuple[Path, str, dict[str, str]], script: str, says: str) -> None:
    need("curl", "apt-get install curl")
    functions = "".join(re.findall(r"^(?:ask|door)\(\) .*\n", PAGE, re.M))
    out = shell(place, functions + script)
    assert re.fullmatch(pattern(says) + r"\s*", out.strip(), re.S), out


def test_the_page_shows_a_command_for_everything() -> None:
    assert len(COMMANDS) >= 10
    for word in (
        "event-stream",
        "describe",
        "openapi.json",
        "health",
        "ready",
        "Authorization",
        "token revoke",
        "Host:",
    ):
        assert any(word in text for text, _ in COMMANDS), word


PYTHON = [text for kind, text in BLOCKS if kind == "python"]


@pytest.mark.parametrize(
    "script", [text for text in PYTHON if ("localhost" in text and "router" not in text) or "AF_UNIX" in text]
)
def test_the_programs(place: tuple[Path, str, dict[str, str]], script: str) -> None:
    folder, port, _ = place
    (folder / "program.py").write_text(script.replace("localhost:8000", f"localhost:{port}"))
    out = shell(place, f"{sys.executable} program.py")
    assert out.startswith("8\n") and ("AF_UNIX" in script or out.endswith("\n42\n"))


def test_the_blocks_that_only_set_up() -> None:
    pytest.importorskip("fastapi")
    for script in PYTHON:
        if "FastAPI" in script or "router" in script:
            names: dict[str, object] = {}
            exec(compile(script, "docs/doors.md", "exec"), names)
            if "router" in script:
                asyncio.run(names["there"].aclose())  # type: ignore[attr-defined]


def test_the_page_s_javascript(place: tuple[Path, str, dict[str, str]]) -> None:
    node = need("node", "apt-get install nodejs")
    script = next(text for kind, text in BLOCKS if kind == "js")
    folder, port, _ = place
    (folder / "page.mjs").write_text(script.replace("localhost:8000", f"localhost:{port}"))
    assert shell(place, f"{node} --no-warnings --experimental-websocket page.mjs") == "8\n"


def test_the_seed_s_call_as_the_readme_has_it(place: tuple[Path, str, dict[str, str]]) -> None:
    need("curl", "apt-get install curl")
    line = next(each for each in README.splitlines() if each.startswith("curl ") and "/hermes/v1/invoke" in each)
    assert '"task_id":"x1y2z3","status":"success","result":4' in shell(place, line)


def test_the_rule_on_the_page_is_the_rule_of_a_new_home(place: tuple[Path, str, dict[str, str]]) -> None:
    rule = next(text for kind, text in BLOCKS if kind == "toml")
    assert rule.strip() in (place[0] / "home" / "policy.toml").read_text()
