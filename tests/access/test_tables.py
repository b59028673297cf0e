"""Lines and spans of tables."""

from pathlib import Path

import pytest

from hermes_peer.access.tables import TableError, Tables, words

KINDS = {"pin": frozenset({"a"}), "deny": frozenset({"a"})}
TEXT = b"# x\n[[pin]]\na = 1\n\n# y\n[[ deny ]] # z\na = 2\n\n[[pin]]\n# w\na = 3\n# end\n"


def test_lines_and_spans():
    tables = Tables(Path("t.toml"), TEXT, KINDS)
    assert [each["a"] for each in tables.of("pin")] == [1, 3] and tables.of("deny") == [{"a": 2}]
    assert [tables.line("pin", 0), tables.line("deny", 0), tables.line("pin", 1)] == [2, 6, 9]
    assert [tables.span("pin", 0), tables.span("deny", 0), tables.span("pin", 1)] == [(1, 3), (5, 7), (8, 11)]
    assert str(tables.error("pin", 1, "no")) == "t.toml line 9: no"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[[pin]]\na = \n", 2),
        (b"[[pin]]\na = 1\na = 2\n", 3),
        (b"[[pin]]\nb = 1\n", 1),
        (b"\n\n[[pin", 3),
        (b"\npin = 1", 2),
    ],
)
def test_the_line_of_an_error(data, line):
    with pytest.raises(TableError, match=rf"^t\.toml line {line}: "):
        Tables(Path("t.toml"), data, KINDS)


def test_words():
    assert words("a") == ("a",) and words(["a", "b"]) == ("a", "b")
    assert words([]) is None and words(1) is None and words(["a", 1]) is None
