"""Reading the [[tables]] of a TOML file with errors that name the line.

Knows: TOML and where its tables start. Refuses to know: what the tables mean.
Called by: pins (trust.toml, trust.d), editing, policy.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HEADER = re.compile(r"\s*\[\[\s*([A-Za-z0-9_-]+)\s*\]\]\s*(#.*)?")
_ANY_HEADER = re.compile(r"\s*\[")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")


class TableError(ValueError):
    """A file that cannot be used; the text says which line of which file, and why, without a full stop."""


class Tables:
    """The parsed text of one file: for each allowed `kind`, its tables in order. Raises TableError."""

    def __init__(self, path: Path, data: bytes, kinds: Mapping[str, frozenset[str]]) -> None:
        self.name = path.name if path.parent.name != "trust.d" else f"trust.d/{path.name}"
        try:
            self.text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise TableError(f"{self.name} line {line}: not UTF-8 text") from None
        try:
            self.document = tomllib.loads(self.text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            found = _AT_LINE.search(str(error))
            line = int(found[1]) if found and found[1] else self.text.count("\n") + 1
            reason = _AT_LINE.sub("", str(error)).strip() or "not TOML"
            raise TableError(f"{self.name} line {line}: {reason}") from None
        for key, value in self.document.items():
            if key not in kinds:
                raise TableError(
                    f"{self.name} line {self._line_of_key(key)}: unknown word {key!r}; "
                    f"known are {', '.join(f'[[{kind}]]' for kind in kinds)}"
                )
            if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
                raise TableError(f"{self.name} line {self._line_of_key(key)}: write [[{key}]] with two brackets")
            for index, table in enumerate(value):
                for word in table:
                    if word not in kinds[key]:
                        raise self.error(
                            key,
                            index,
                            f"unknown word {word!r}; known are {', '.join(sorted(kinds[key]))}",
                        )

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The tables [[kind]], in the order of the file."""
        tables: list[dict[str, Any]] = self.document.get(kind, [])
        return tables

    def error(self, kind: str, index: int, why: str) -> TableError:
        """The error for table number `index` (from 0) of this kind."""
        return TableError(f"{self.name} line {self.line(kind, index)}: {why}")

    def line(self, kind: str, index: int) -> int:
        """The line on which that table starts, from 1."""
        starts = [
            number
            for number, text in enumerate(self.text.splitlines(), 1)
            if (found := _HEADER.fullmatch(text)) and found[1] == kind
        ]
        return starts[index] if index < len(starts) else self._line_of_key(kind)

    def span(self, kind: str, index: int) -> tuple[int, int]:
        """The lines [first, last) of that table, from 0, without the comments and blank lines after its last word."""
        lines = self.text.splitlines()
        first = self.line(kind, index) - 1
        last = first + 1
        for number in range(first + 1, len(lines)):
            if _ANY_HEADER.match(lines[number]):
                break
            if lines[number].strip() and not lines[number].lstrip().startswith("#"):
                last = number + 1
        return first, last

    def _line_of_key(self, key: str) -> int:
        for number, text in enumerate(self.text.splitlines(), 1):
            if re.match(rf"\s*\[*\s*[\"']?{re.escape(key)}\b", text):
                return number
        return 1


def words(value: Any) -> tuple[str, ...] | None:
    """`value` as texts: one text, or a list of at least one text; None if it is neither."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return tuple(value)
    return None
