"""The generated tables of docs/spec: `python -m tools.spec_tables` writes them, `--check` says whether they are fresh.

Knows: which constant of the code stands in which table, a module for each page. Refuses to know: what the prose says.
Called by: `make docs`; tests/house/test_spec.py. A table stands between two comments, `begin: NAME` and `end: NAME`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tools.spec_tables import durable, frames, handshake, messages, session

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec"
MARK = re.compile(r"<!-- begin: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
TABLES: dict[str, Callable[[], str]] = (
    frames.TABLES | handshake.TABLES | session.TABLES | messages.TABLES | durable.TABLES
)


def renewed(text: str) -> str:
    """The page with its tables made anew. KeyError for a marker that names no table."""
    return MARK.sub(lambda m: f"<!-- begin: {m[1]} -->\n{TABLES[m[1]]()}<!-- end: {m[1]} -->", text)


def stale() -> list[Path]:
    return [path for path in sorted(SPEC.glob("*.md")) if path.read_text() != renewed(path.read_text())]


def main(words: list[str]) -> int:
    pages = stale()
    for path in pages:
        if "--check" not in words:
            path.write_text(renewed(path.read_text()))
        print(f"{'stale' if '--check' in words else 'wrote'} {path.relative_to(SPEC.parents[1])}")
    return bool(pages) and "--check" in words
