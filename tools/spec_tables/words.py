"""What all tables are made of: rows, numbers, layouts, comments of the source, transitions."""

from __future__ import annotations

import enum
import inspect
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

KIB, MIB = 1024, 1024 * 1024


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def comments(thing: Any) -> dict[str, str]:
    """The comment behind each member or constant, as its source has it."""
    found = re.finditer(r"^ *(\w+)(?:: [^=\n]+)? = [^#\n]+#\s*(.+)$", inspect.getsource(thing), re.MULTILINE)
    return {match[1]: match[2].strip() for match in found}


def number(n: float) -> str:
    if isinstance(n, int) and n and n % MIB == 0:
        return f"{n // MIB:,} MiB"
    if isinstance(n, int) and n >= 16 * KIB and n % KIB == 0:
        return f"{n // KIB:,} KiB"
    return f"{n:,}" if isinstance(n, int) else f"{n:g}"


NAMES = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64"}


def layout(form: struct.Struct, fields: Iterable[str]) -> str:
    """`u64 n, u32 in_flight`: a struct of the code and the names of what it packs."""
    parts = re.findall(r"(\d*)([a-zA-Z])", form.format)
    return ", ".join(
        f"`{name}[{n}]`" if kind == "s" else f"`{NAMES[kind]} {name}`"
        for (n, kind), name in zip(parts, fields, strict=False)
    )


def matrix(name: str, kinds: Iterable[enum.Enum], inputs: Iterable[enum.Enum], moves: Mapping[Any, enum.Enum]) -> str:
    inputs = list(inputs)
    rows = ((s.name, *(moves[s, i].name if (s, i) in moves else "–" for i in inputs)) for s in kinds)
    return table((name, *(i.name for i in inputs)), rows)
