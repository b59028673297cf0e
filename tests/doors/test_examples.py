"""The examples: a calculator without eval, the seed's caller, the five checks (mission I11)."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hermes_peer import CallError
from tests.doors.rig import Binary, Rig, Talk, patient, run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def calculator() -> Any:
    return loaded("calculator")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2+2", 4),
        (" 2 + 2 * 3 ", 8),
        ("(2 + 2) * 3", 12),
        ("-2 ** 2", -4),
        ("7 // 2 + 7 % 2", 4),
        ("1 / 4", 0.25),
        ("2 ** 100", 2**100),
        ("1e3 + .5", 1000.5),
        ("--1", 1),
        ("0.1 + 0.2", 0.1 + 0.2),
        ("10 ** 299", 10**299),
        ("2 ** -2", 0.25),
        ("0 ** 5", 0),
    ],
)
def test_expressions(calculator: Any, expression: str, value: float) -> None:
    assert calculator.calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "invalid_expression"),
        ("2 + ", "invalid_expression"),
        ("2 + 四", "invalid_expression"),
        ("__import__('os').system('true')", "invalid_expression"),
        ("(1).__class__", "invalid_expression"),
        ("[1, 2]", "invalid_expression"),
        ("'a' * 9", "invalid_expression"),
        ("True + 1", "invalid_expression"),
        ("1j * 1j", "invalid_expression"),
        ("x", "invalid_expression"),
        ("1 if 1 else 2", "invalid_expression"),
        ("1 << 99999999", "invalid_expression"),
        ("lambda: 1", "invalid_expression"),
        ("1\n2", "invalid_expression"),
        ("\x00", "invalid_expression"),
        ("(" * 60 + "1" + ")" * 60, None),
        ("-" * 60 + "1", "invalid_expression"),
        ("1" + "+1" * 249, "invalid_expression"),
        ("1" * 501, "invalid_expression"),
        ("9 ** 9 ** 9", "too_large"),
        ("10 ** 1000", "too_large"),
        ("2 ** 99999999", "too_large"),
        ("(10 ** 200) * (10 ** 200)", "too_large"),
        ("1e400", "too_large"),
        ("1e308 * 10", "too_large"),
        ("1 / 0", "division_by_zero"),
        ("1 % 0", "division_by_zero"),
        ("0 ** -1", "division_by_zero"),
        ("(-8) ** 0.5", "not_real"),
    ],
)
def test_what_is_no_expression(calculator: Any, expression: str, reason: str | None) -> None:
    if reason is None:
        assert calculator.calculate(expression) == 1  # brackets leave no mark in the tree
        return
    with pytest.raises(CallError) as refused:
        calculator.calculate(expression)
    assert refused.value.reason == reason and refused.value.message


def test_there_is_no_eval() -> None:
    for file in EXAMPLES.glob("*.py"):
        called = {
            n.func.id
            for n in ast.walk(ast.parse(file.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        assert not called & {"eval", "exec", "compile", "__import__"}, file


@pytest.fixture
def agent(calculator: Any, home: Path) -> Any:
    agent = calculator.agent
    home.mkdir()
    agent.home, agent.listen, agent.http, agent.socket = home, False, "127.0.0.1:0", home / "s"
    return agent


async def test_the_calculator_by_every_door(agent: Any) -> None:
    async with agent:
        rig = Rig(agent, agent.doors[0].removesuffix("/hermes/v1/invoke"), agent.doors[1])
        seen = [(await rig.call("calculator", {"expression": "2+2"}))["result"]]
        async with rig.websocket() as web:
            talk = Talk(web)
            await talk.send(None, {"expression": "2+2"})  # the default method
            seen.append((await talk.result())["result"])
            await talk.send("calculator.steps", {"expression": "2 + 2 * 3"})
            steps = []
            while (found := await talk.next())["meta"]["msg_type"] != 2:
                steps += [found["payload"]["item"]] if found["meta"]["msg_type"] == 12 else []
            assert steps == [{"step": "2 * 3", "result": 6}, {"step": "2 + 2 * 3", "result": 8}]
        line = await Binary.open(rig.socket)
        line.send("calculator", {"expression": "2+2"})
        seen.append((await line.next()).payload["result"])
        await line.close()
        assert seen == [4, 4, 4]
        rig.lines[0].close()


@patient
async def test_the_caller(agent: Any) -> None:
    async with agent:
        url = agent.doors[0].removesuffix("/hermes/v1/invoke")
        out = json.loads(await run(sys.executable, str(EXAMPLES / "caller.py"), "2 + 2 * 3", url))
        assert out["status"] == "success" and out["result"] == 8 and out["latency_ms"] > 0
        wrong = json.loads(await run(sys.executable, str(EXAMPLES / "caller.py"), "2 + ", url, code=1))
        assert wrong["error_code"] == 2 and "expression" in wrong["detail"]
    gone = json.loads(await run(sys.executable, str(EXAMPLES / "caller.py"), "1", url, code=1))
    assert "no answer" in gone["message"]


@patient
async def test_the_five_checks(agent: Any) -> None:
    async with agent:
        url = agent.doors[0].removesuffix("/hermes/v1/invoke")
        words = [str(EXAMPLES / "five_checks.py"), url, "--seconds", "2", "--rate", "50"]
        out = await run(sys.executable, *words)
        assert "5 of 5 passed" in out and "FAILED" not in out and "100 requests" in out
        agent.remove_method("calculator.slowly")
        out = await run(sys.executable, *words[:2], "--seconds", "0.2", code=1)
        assert "FAILED" in out and "4 of 5 passed; failed: ttl" in out


def test_the_five_checks_start_their_own_calculator() -> None:
    async def work() -> str:
        return await run(sys.executable, str(EXAMPLES / "five_checks.py"), "--seconds", "1", "--rate", "50")

    out = asyncio.run(work())
    assert "5 of 5 passed" in out and "MiB since" in out
