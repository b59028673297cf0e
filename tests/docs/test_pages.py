"""The code on the pages runs: the guide's blocks in this process, the README's as a new user would run them."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)
    return [text for name, text in found if name == language]


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HERMES_PEER_HOME", str(tmp_path / "home"))
    names: dict[str, object] = {}
    for block in blocks("docs/guide.md", "python"):
        exec(compile(block, "docs/guide.md", "exec"), names)
    asyncio.run(names["main"]())  # type: ignore[operator]
    said = capsys.readouterr().out
    assert "{'sku': 'A-1', 'reserved': 2}" in said
    assert "out_of_stock {'left': 3}" in said
    assert "a\nshort\nreport\non\ntides\n{'words': 5}" in said
    asyncio.run(names["plan"]())  # type: ignore[operator]
    assert "translated two (Dutch)\n{'texts': 2}" in capsys.readouterr().out
    asyncio.run(names["survive"]())  # type: ignore[operator]
    assert capsys.readouterr().out == (
        "waiting\n{'n': 0, 'words': 2}\n{'n': 1, 'words': 1}\n{'texts': 2} done\ntides is filed\n"
    )


def test_the_readme_s_agent_and_caller_run_in_an_empty_folder(tmp_path: Path) -> None:
    agent, caller = blocks("README.md", "python")[:2]
    (tmp_path / "agent.py").write_text(agent)
    (tmp_path / "caller.py").write_text(caller)
    env = os.environ | {"HERMES_PEER_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}
    worker = subprocess.Popen([sys.executable, "agent.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        while "is ready" not in (line := worker.stdout.readline()):
            assert line, "the agent ended before it was ready"
        said = subprocess.run(
            [sys.executable, "caller.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30
        )
        assert said.stdout == "{'text': 'HI'}\na\nb\nc\n", said.stderr
        commands = next(block for block in blocks("README.md", "") if block.startswith("hermes-peer list"))
        for command in commands.strip().splitlines():
            words = shlex.split(command)[1:]
            done = subprocess.run(
                [sys.executable, "-m", "hermes_peer", *words], cwd=tmp_path, env=env, capture_output=True, text=True
            )
            assert done.returncode == 0, (command, done.stderr)
            assert "worker" in done.stdout or "HI" in done.stdout or done.stdout.split() == ["a", "b", "c"]
    finally:
        worker.terminate()
        worker.wait(30)
        worker.stdout.close()
