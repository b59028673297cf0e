"""The tools of the demo "audit these files": what they find, the plan, and the count afterwards.

Knows: files, lines, Python's syntax, Markdown's links. Refuses to know: agents, streams, screens.
Called by: the planner and the worker of `hermes-peer demo`.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hermes_peer.errors import UsageError

KINDS = ("stats", "functions", "links", "todos")
SUFFIXES = {"functions": (".py", ".pyi"), "links": (".md", ".markdown")}
SKIPPED = {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", "dist", "build", ".demo", ".hypothesis"}
LARGEST = 1 << 20
TOP = 10

ANSWERS: dict[str, Any] = {"ignore": ["*.html", "../../*"]}
"""What the planner says when a worker asks back for a parameter that its plan left out."""

_LINK = re.compile(r"\]\(\s*(?:<([^<>\n]*)>|([^()\s<]+(?:\([^()\s]*\)[^()\s]*)*))")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]+\]:\s*<?([^\s<>]+)")
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_CODE = re.compile(r"`+[^`\n]*`+")
_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b:?[ \t]*([^\n]{0,100})")


def list_files(root: str | Path) -> list[str]:
    """Text files below `root`, as sorted paths relative to it, with "/".

    Left out: folders of tools and of git, files over 1 MiB, binaries, what is no regular file, symbolic
    links that lead out of `root`, and names that are no Unicode. Unreadable folders are passed over.
    """
    top = Path(root).resolve()
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.endswith("_cache"))
        for name in names:
            path = Path(folder, name)
            if _is_unicode(str(path)) and _is_text(path) and path.resolve().is_relative_to(top):
                found.append(path.relative_to(top).as_posix())
    return sorted(found)


def word_line_stats(path: str | Path) -> dict[str, int]:
    """{"lines", "words", "blank", "longest"}: counts, and the characters of the longest line."""
    lines = _text(path).splitlines()
    return {
        "lines": len(lines),
        "words": sum(len(line.split()) for line in lines),
        "blank": sum(not line.strip() for line in lines),
        "longest": max(map(len, lines), default=0),
    }


def longest_functions(path: str | Path, top: int = TOP) -> list[dict[str, Any]]:
    """The `top` longest functions of a Python file, longest first: {"name", "line", "lines"}.

    `name` is qualified (`Class.method`, `outer.inner`). A file that does not parse has none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of "\d" in somebody's string we have nothing to say
            tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[tuple[int, int, str]] = []
    rooms: list[tuple[str, ast.AST]] = [("", tree)]
    while rooms:
        prefix, room = rooms.pop()
        for node in ast.iter_child_nodes(room):
            inner = prefix
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{prefix}{node.name}."
                if not isinstance(node, ast.ClassDef):
                    size = (node.end_lineno or node.lineno) - node.lineno + 1
                    found.append((-size, node.lineno, inner[:-1]))
            rooms.append((inner, node))
    return [{"name": name, "line": line, "lines": -size} for size, line, name in sorted(found)[:top]]


def broken_links(path: str | Path, root: str | Path) -> list[dict[str, Any]]:
    """Relative links and images of a Markdown file that lead to nothing: {"line", "target"}.

    Code is not looked at. A leading "/" means `root`; what lies outside of `root` counts as absent.
    """
    top = Path(root).resolve()
    here = Path(path).resolve().parent
    found = []
    fence = ""
    for number, line in enumerate(_text(path).splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if mark or fence:
            continue
        line = _CODE.sub("", line)
        targets = [a or b for a, b in _LINK.findall(line)] + _DEFINITION.findall(line)
        for target in targets:
            name = unquote(re.split(r"[?#]", target, maxsplit=1)[0])
            if not name or _ELSEWHERE.match(target):
                continue
            goal = os.path.normpath(f"{top}{name}" if name.startswith("/") else here / name)
            if not (Path(goal).is_relative_to(top) and os.path.exists(goal)):
                found.append({"line": number, "target": target})
    return found


def todo_lines(path: str | Path) -> list[dict[str, Any]]:
    """Lines that say TODO, FIXME, XXX or HACK: {"line", "word", "text"}, text up to 100 characters."""
    lines = enumerate(_text(path).splitlines(), 1)
    return [{"line": n, "word": m[1], "text": m[2].strip()} for n, line in lines if (m := _TODO.search(line))]


def plan(root: str | Path, *, batch: int = 25, most: int = 1000) -> list[dict[str, Any]]:
    """Steps, kinds by batches of files: {"id", "kind", "files", …}; the first `most` files at most.

    A "links" step comes without its `ignore` on purpose: whoever runs it has to ask (see `missing`).
    """
    files = list_files(root)[:most]
    of_kind = {kind: [f for f in files if f.endswith(SUFFIXES.get(kind, ("",)))] for kind in KINDS}
    steps = []
    for start in range(0, len(files), batch):
        for kind in KINDS:
            if mine := of_kind[kind][start : start + batch]:
                step = {"id": f"{kind}-{start // batch + 1}", "kind": kind, "files": mine}
                steps.append(step | {"top": TOP} if kind == "functions" else step)
    return steps


def missing(step: dict[str, Any]) -> list[str]:
    """Names of the parameters that must be known before `findings` can run this step."""
    return ["ignore"] if step["kind"] == "links" and "ignore" not in step else []


def findings(root: str | Path, step: dict[str, Any], files: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """What a step finds, in a fixed order: {"step", "n", "file", "line", "what", "text", "value"}.

    `n` counts from 1 inside the step, `line` is 0 for a whole file, `files` default to the step's own.
    Raises UsageError for an unknown kind, a missing parameter or a path that leaves `root`.
    """
    kind = step["kind"]
    if kind not in KINDS:
        raise UsageError(f"unknown kind of step {kind!r}: there are {', '.join(KINDS)}")
    if lacking := missing(step):
        raise UsageError(f"step {step['id']} needs to know {', '.join(lacking)}")
    return _numbered(Path(root).resolve(), step, list(step["files"] if files is None else files))


def check(found: Iterable[dict[str, Any]], root: str | Path, steps: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Find everything again here, and compare: {"items", "lost", "duplicated", "out_of_order", "unexpected"}.

    `found` is in the order of arrival, steps interleaved as they came. A finding that was altered on the
    way is one lost and one unexpected; a second copy is duplicated and never also out of order.
    """
    expected: Counter[str] = Counter()
    for step in steps:
        expected.update(map(_key, findings(root, {name: ANSWERS[name] for name in missing(step)} | step)))
    arrived: Counter[str] = Counter()
    newest: dict[str, int] = {}
    late = 0
    for item in found:
        key = _key(item)
        arrived[key] += 1
        if arrived[key] == 1 and key in expected:
            late += item["n"] < newest.get(item["step"], 0)
            newest[item["step"]] = max(item["n"], newest.get(item["step"], 0))
    return {
        "items": arrived.total(),
        "lost": len(expected.keys() - arrived.keys()),
        "duplicated": sum(times - 1 for times in arrived.values()),
        "out_of_order": late,
        "unexpected": len(arrived.keys() - expected.keys()),
    }


def _numbered(top: Path, step: dict[str, Any], files: list[str]) -> Iterator[dict[str, Any]]:
    n = 0
    for name in files:
        path = top / name
        if not path.resolve().is_relative_to(top):
            raise UsageError(f"{name} is not below {top}")
        try:
            rows = _rows(top, path, step)
        except OSError as error:
            rows = [(0, "unreadable", error.strerror or type(error).__name__, 0)]
        for line, what, text, value in rows:
            n += 1
            yield {
                "step": step["id"],
                "n": n,
                "file": name,
                "line": line,
                "what": what,
                "text": text,
                "value": value,
            }


def _rows(top: Path, path: Path, step: dict[str, Any]) -> list[tuple[int, str, str, int]]:
    """(line, what, text, value) for one file."""
    match step["kind"]:
        case "stats":
            return [(0, what, "", value) for what, value in word_line_stats(path).items()]
        case "functions":
            longest = longest_functions(path, int(step.get("top", TOP)))
            return [(f["line"], "function", f["name"], f["lines"]) for f in longest]
        case "links":
            gone = [link for link in broken_links(path, top) if not _ignored(link["target"], step["ignore"])]
            return [(link["line"], "broken link", link["target"], 1) for link in gone]
        case _:
            return [(t["line"], t["word"], t["text"], 1) for t in todo_lines(path)]


def _ignored(target: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(target, pattern) for pattern in patterns)


def _key(item: dict[str, Any]) -> str:
    return repr(sorted(item.items()))


def _text(path: str | Path) -> str:
    return Path(path).read_bytes().decode("utf-8-sig", errors="replace")


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(path: Path) -> bool:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return False
        with path.open("rb") as file:
            return b"\0" not in file.read(8192)
    except OSError:
        return False
