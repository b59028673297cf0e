"""The tools of the audit demo, on small trees made for the purpose.

Knows: odd files. Refuses to know: how findings travel.
Called by: pytest.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.cli.demo import audit
from hermes_peer.errors import UsageError


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Sixty modules and ten pages: enough for several batches of each kind."""
    files: dict[str, str | bytes] = {}
    for i in range(60):
        files[f"src/m{i:02}.py"] = (
            f"def one():\n    pass\n\n\nclass C:\n    def two(self):\n        return {i}  # TODO: {i}\n"
        )
    for i in range(10):
        files[f"docs/p{i}.md"] = f"[gone](nothing{i}.md) [here](p0.md) [page](made.html)\n"
    return write(tmp_path, files)


def everything(root: Path, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for step in steps for item in audit.findings(root, audit.ANSWERS | step)]


# list_files


def test_list_files_takes_text_and_leaves_the_rest(tmp_path: Path) -> None:
    root = write(
        tmp_path / "root",
        {
            "b.txt": "b",
            "a/é.md": "é",
            "empty": "",
            ".github/ci.yml": "on: push",
            "exact": b"x" * (1 << 20),
            "large": b"x" * ((1 << 20) + 1),
            "binary": b"GIF\0",
            ".git/config": "x",
            ".venv/lib/x.py": "x",
            "a/__pycache__/x.py": "x",
            ".ruff_cache/x": "x",
        },
    )
    write(tmp_path, {"outside/secret.txt": "s"})
    (root / "inside").symlink_to(root / "b.txt")
    (root / "out").symlink_to(tmp_path / "outside" / "secret.txt")
    (root / "outdir").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to(root)
    (root / "dangling").symlink_to(root / "nothing")
    os.mkfifo(root / "fifo")  # opening it would wait for ever
    assert audit.list_files(root) == [".github/ci.yml", "a/é.md", "b.txt", "empty", "exact", "inside"]


def test_list_files_leaves_names_that_json_cannot_carry(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("this file system takes no such name")
    assert audit.list_files(tmp_path) == []


# word_line_stats


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", (0, 0, 0, 0)),
        (b"one two\n\nthree", (3, 3, 1, 7)),
        (b"\xef\xbb\xbfabc\n", (1, 1, 0, 3)),
        (b"caf\xe9 \xff\xff\r\n", (1, 2, 0, 7)),
        ("日本 語\n".encode(), (1, 2, 0, 4)),
    ],
)
def test_word_line_stats(tmp_path: Path, content: bytes, expected: tuple[int, ...]) -> None:
    write(tmp_path, {"f": content})
    assert tuple(audit.word_line_stats(tmp_path / "f").values()) == expected
    assert list(audit.word_line_stats(tmp_path / "f")) == ["lines", "words", "blank", "longest"]


# longest_functions


def test_longest_functions_are_qualified_and_sorted(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "m.py": "class A:\n    async def long(self):\n"
            "        def inner():\n            return 1\n        return inner\n"
            "def b(): pass\ndef a(): pass\nif True:\n    def c(\n        x,\n    ): return x\n"
        },
    )
    assert audit.longest_functions(tmp_path / "m.py", 4) == [
        {"name": "A.long", "line": 2, "lines": 4},
        {"name": "c", "line": 9, "lines": 3},
        {"name": "A.long.inner", "line": 3, "lines": 2},
        {"name": "b", "line": 6, "lines": 1},
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"def (",
        b"def f():\n  \xff",
        b"# coding: nonsense\n",
        b"x\0y",
        b"(" * 5000,
        b"a." * 20000 + b"b",
        b"-" * 9999 + b"1",
    ],
)
def test_longest_functions_of_odd_files(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, {"m.py": content})
    assert audit.longest_functions(tmp_path / "m.py", 10) == []


def test_longest_functions_follow_the_coding_line(tmp_path: Path) -> None:
    write(tmp_path, {"m.py": "# coding: latin-1\ndef é(): return '\\d'\n".encode("latin-1")})
    assert audit.longest_functions(tmp_path / "m.py", 10)[0]["name"] == "é"


# broken_links


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("[a](here.md)", []),
        ("[a](gone.md)", ["gone.md"]),
        ("[a](here.md#part) [b](here.md?x=1) [c](#part) [d]()", []),
        ("[a](gone.md#part)", ["gone.md#part"]),
        ("![image](gone.png 'title')", ["gone.png"]),
        ("[a](https://x.y/z) [b](mailto:a@b) [c](//x.y/z)", []),
        ("[a](<with space.md>) [b](with%20space.md)", []),
        ("[a](<no such.md>)", ["no such.md"]),
        ("[a](/docs/here.md) [b](../docs/here.md) [c](..)", []),
        ("[a](/gone.md)", ["/gone.md"]),
        ("[a](../../root/docs/here.md)", []),
        ("[a](../../outside.md)", ["../../outside.md"]),
        ("[a](brackets(1).md)", []),
        ("[a](gone(1).md)", ["gone(1).md"]),
        ("[id]: gone.md", ["gone.md"]),
        ("[id]: <here.md> 'title'", []),
        ("`[a](gone.md)` and ``[b](gone.md)``", []),
        ("[![inner](gone.png)](gone.md)", ["gone.png", "gone.md"]),
        ("[a](" + "x" * 5000 + ")", ["x" * 5000]),
        ("[a](nul%00l.md)", ["nul%00l.md"]),
    ],
)
def test_broken_links(tmp_path: Path, line: str, broken: list[str]) -> None:
    root = tmp_path / "root"
    write(
        root, {"docs/here.md": "", "docs/with space.md": "", "docs/brackets(1).md": "", "docs/page.md": f"\n{line}\n"}
    )
    write(tmp_path, {"outside.md": ""})
    found = audit.broken_links(root / "docs" / "page.md", root)
    assert found == [{"line": 2, "target": target} for target in broken]


def test_links_in_fenced_code_do_not_count(tmp_path: Path) -> None:
    page = "[a](1.md)\n````md\n[a](2.md)\n```\n[a](3.md)\n````\n[a](4.md)\n~~~\n[a](5.md)\n```\n~~~\n[a](6.md)\n"
    write(tmp_path, {"p.md": page})
    assert [f["target"] for f in audit.broken_links(tmp_path / "p.md", tmp_path)] == ["1.md", "4.md", "6.md"]


# todo_lines


def test_todo_lines(tmp_path: Path) -> None:
    text = "x = 1  # TODO: tidy up \n# todo\n# FIXME\nMASTODON\n# HACK " + "y" * 200 + "\n"
    write(tmp_path, {"f": text})
    assert audit.todo_lines(tmp_path / "f") == [
        {"line": 1, "word": "TODO", "text": "tidy up"},
        {"line": 3, "word": "FIXME", "text": ""},
        {"line": 5, "word": "HACK", "text": "y" * 100},
    ]


# plan and findings


def test_a_plan_covers_every_file_once_per_kind(tree: Path) -> None:
    steps = audit.plan(tree)
    files = audit.list_files(tree)
    assert len({step["id"] for step in steps}) == len(steps) > len(audit.KINDS)
    assert {step["kind"] for step in steps} == set(audit.KINDS)
    for kind, expected in {
        "stats": files,
        "todos": files,
        "functions": [f for f in files if f.endswith(".py")],
        "links": [f for f in files if f.endswith(".md")],
    }.items():
        assert [f for step in steps if step["kind"] == kind for f in step["files"]] == expected
    assert len(everything(tree, steps)) > 400


def test_a_plan_is_bounded(tree: Path) -> None:
    assert sum(len(s["files"]) for s in audit.plan(tree, batch=7, most=20) if s["kind"] == "stats") == 20
    assert max(len(s["files"]) for s in audit.plan(tree, batch=7)) == 7


def test_only_links_lack_a_parameter_and_say_which(tree: Path) -> None:
    for step in audit.plan(tree):
        assert audit.missing(step) == (["ignore"] if step["kind"] == "links" else [])
        if audit.missing(step):
            with pytest.raises(UsageError, match="ignore"):
                audit.findings(tree, step)
            assert audit.missing(audit.ANSWERS | step) == []


def test_ignore_is_obeyed(tree: Path) -> None:
    step = {"id": "links-1", "kind": "links", "files": ["docs/p1.md"]}
    assert [f["text"] for f in audit.findings(tree, step | {"ignore": []})] == ["nothing1.md", "made.html"]
    assert [f["text"] for f in audit.findings(tree, step | {"ignore": ["*.html"]})] == ["nothing1.md"]


def test_findings_have_one_shape_and_count_from_one(tree: Path) -> None:
    for step in audit.plan(tree):
        items = list(audit.findings(tree, audit.ANSWERS | step))
        assert [item["n"] for item in items] == list(range(1, len(items) + 1))
        for item in items:
            assert list(item) == ["step", "n", "file", "line", "what", "text", "value"]
            assert item["step"] == step["id"]
            assert item["file"] in step["files"]
            assert [type(item[k]) for k in ("line", "what", "text", "value")] == [int, str, str, int]


def test_findings_are_the_same_each_time(tree: Path) -> None:
    steps = audit.plan(tree)
    assert everything(tree, steps) == everything(tree, audit.plan(tree))


def test_findings_of_chosen_files(tree: Path) -> None:
    step = {"id": "s", "kind": "todos", "files": ["src/m01.py", "src/m02.py"]}
    assert [f["file"] for f in audit.findings(tree, step, ["src/m02.py"])] == ["src/m02.py"]


@pytest.mark.parametrize("kind", audit.KINDS)
def test_a_file_that_went_away_is_a_finding(tree: Path, kind: str) -> None:
    step = {"id": "s", "kind": kind, "files": ["src/gone.py"], "ignore": []}
    (item,) = audit.findings(tree, step)
    assert (item["what"], item["value"]) == ("unreadable", 0)
    assert item["text"]


def test_findings_refuse_what_is_outside_and_unknown_kinds(tree: Path) -> None:
    with pytest.raises(UsageError, match="below"):
        list(audit.findings(tree, {"id": "s", "kind": "stats", "files": ["../../etc/passwd"]}))
    with pytest.raises(UsageError, match="kind"):
        audit.findings(tree, {"id": "s", "kind": "poetry", "files": []})


# check


def shuffled_in(parts: list[list[dict[str, Any]]], seed: int = 7) -> list[dict[str, Any]]:
    """Steps side by side: any order between them, their own order inside."""
    dice = random.Random(seed)
    parts = [list(part) for part in parts if part]
    out = []
    while parts:
        part = dice.choice(parts)
        out.append(part.pop(0))
        parts = [p for p in parts if p]
    return out


def test_check_is_clean_whatever_way_steps_interleave(tree: Path) -> None:
    steps = audit.plan(tree)
    found = shuffled_in([everything(tree, [step]) for step in steps])
    assert audit.check(found, tree, steps) == {
        "items": len(found),
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "unexpected": 0,
    }


def test_check_counts_each_harm_on_its_own(tree: Path) -> None:
    steps = audit.plan(tree)
    whole = everything(tree, steps)

    def harm(found: list[dict[str, Any]]) -> dict[str, int]:
        result = audit.check(iter(found), tree, steps)
        return {k: v for k, v in result.items() if v and k != "items"}

    assert harm(whole[:10] + whole[13:]) == {"lost": 3}
    assert harm([]) == {"lost": len(whole)}
    assert harm([*whole[:10], *whole[5:]]) == {"duplicated": 5}
    assert harm([*whole, whole[0], whole[0]]) == {"duplicated": 2}
    assert harm([whole[1], whole[0], *whole[2:]]) == {"out_of_order": 1}
    assert harm([*whole[1:20], whole[0], *whole[20:]]) == {"out_of_order": 1}
    altered = [whole[0] | {"value": -1}, *whole[1:]]
    assert harm(altered) == {"lost": 1, "unexpected": 1}
    assert harm([*whole, whole[0] | {"step": "of nobody"}]) == {"unexpected": 1}


def test_check_knows_the_answers_that_were_given(tree: Path) -> None:
    (step,) = [s for s in audit.plan(tree, batch=100) if s["kind"] == "links"]
    answered = step | {"ignore": ["*"]}
    assert audit.check([], tree, [answered])["lost"] == 0
    assert audit.check([], tree, [step])["lost"] == 10
