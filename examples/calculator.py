"""A calculator that anything can ask: `hermes-peer run examples/calculator.py --http 127.0.0.1:8000`.

No `eval`: Python's own parser reads the expression, and only numbers, + - * / // % ** and brackets are worked out, each
within limits, so that no expression can keep the agent busy or fill its memory.
"""

from __future__ import annotations

import ast
import asyncio
import math
import operator
from collections.abc import Callable
from typing import Annotated

import msgspec

from hermes_peer import CallError, Code, HermesAgent, Request

LONGEST = 500  # characters of an expression
DEEPEST = 50  # brackets and operators within each other
LARGEST = 1e300  # of any number on the way
POWER = 1000

BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}

agent = HermesAgent("calculator")


@agent.method("calculator", public=True, default=True)
async def calculator(expression: str) -> int | float:
    """Work out an expression such as 2 + 2 * 3."""
    return calculate(expression)


@agent.method("calculator.steps", public=True)
async def steps(expression: str, request: Request):
    """Work out an expression and show each step on the way."""
    nodes = [node for node in ast.walk(parsed(expression)) if isinstance(node, ast.BinOp | ast.UnaryOp)]
    for done, node in enumerate(reversed(nodes), 1):
        await request.progress(f"step {done} of {len(nodes)}")
        yield {"step": ast.unparse(node), "result": worked_out(node, 0)}


@agent.method("calculator.slowly", public=True)
async def slowly(seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)]) -> str:
    """Take so long: to see what a ttl, a cancel and a lost caller do."""
    await asyncio.sleep(seconds)
    return f"took {seconds:g} s"


@agent.method("calculator.ask", public=True)
async def ask(request: Request) -> int | float:
    """Ask the caller back for the expression; it comes by the WebSocket, or between server-sent events."""
    expression = await request.ask("expression.wanted", {"why": "there was none"})
    return calculate(str(expression))


def calculate(expression: str) -> int | float:
    """The value of an expression. Raises CallError that says what is wrong with it."""
    return worked_out(parsed(expression), 0)


def parsed(expression: str) -> ast.expr:
    """Its tree, of nothing but numbers and operators as far as it is worked out."""
    if len(expression) > LONGEST:
        raise wrong(f"it has {len(expression)} characters, at most {LONGEST} are taken")
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise wrong(f"it cannot be read{place}; write it like 2 + 2 * 3") from None


def worked_out(node: ast.expr, depth: int) -> int | float:
    """The value of one part."""
    if depth > DEEPEST:
        raise wrong(f"it nests deeper than {DEEPEST}")
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return within(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
        return within(UNARY[type(node.op)](worked_out(node.operand, depth + 1)))
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        left, right = worked_out(node.left, depth + 1), worked_out(node.right, depth + 1)
        if isinstance(node.op, ast.Pow) and (abs(right) > POWER or (left and right * math.log10(abs(left)) > 300)):
            raise CallError(
                "too_large", f"{left} ** {right} is too large for this calculator", details={"power": POWER}
            )
        try:
            value = BINARY[type(node.op)](left, right)
        except ZeroDivisionError:
            raise CallError("division_by_zero", f"{ast.unparse(node)} divides by zero") from None
        except OverflowError:
            raise CallError("too_large", f"{ast.unparse(node)} is too large for this calculator") from None
        if isinstance(value, complex):
            raise CallError("not_real", f"{ast.unparse(node)} is no real number")
        return within(value)
    raise wrong("only numbers, + - * / // % ** and brackets are taken")


def within(value: float) -> int | float:
    """`value`, unless it grew too large."""
    if not -LARGEST < value < LARGEST:
        raise CallError("too_large", f"a number on the way is over {LARGEST:g}")
    return value


def wrong(why: str) -> CallError:
    """The error for an expression that is none (the seed's third check: code 2)."""
    return CallError("invalid_expression", f"field `expression`: {why}", code=Code.ERROR_INVALID_REQUEST)


if __name__ == "__main__":
    agent.http = agent.http or "127.0.0.1:8000"
    agent.start()
