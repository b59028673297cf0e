"""Patterns match whole segments only (attack 55)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.access.patterns import check_pattern, matches
from hermes_peer.access.tables import TableError

SEGMENTS = ["admin", "administrator", "a", "hermes", "hermes_", "status", "read"]
METHODS = [".".join(parts) for n in (1, 2, 3) for parts in itertools.product(SEGMENTS, repeat=n)]


def naive(want, have):
    """The rule of the spec, word for word, on lists of segments."""
    if not want:
        return not have
    if len(want) == 1 and want[0] in ("*", "**"):
        return len(have) >= 1
    return bool(have) and (want[0] == "*" or want[0] == have[0]) and naive(want[1:], have[1:])


@st.composite
def patterns(draw):
    parts = draw(st.lists(st.sampled_from([*SEGMENTS, "*"]), max_size=3))
    tail = draw(st.sampled_from([[], ["**"]])) if parts else ["**"]
    return ".".join([*parts, *tail])


@pytest.mark.attack(55)
@given(patterns(), st.sampled_from(METHODS), st.booleans())
def test_against_a_naive_model(pattern, method, product):
    assert check_pattern(pattern) == pattern
    if pattern == "read":
        assert matches(pattern, method, product=product) == (method == "hermes.status")
        return
    want, have = pattern.split("."), method.split(".")
    shut = not product and have[0] == "hermes" and want[0] != "hermes"
    assert matches(pattern, method, product=product) == (naive(want, have) and not shut)


@pytest.mark.attack(55)
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("admin.*", ["admin.x", "admin.x.y"], ["admin", "administrator", "administrator.x", "x.admin.y", "admin..x"]),
        ("admin.**", ["admin.x", "admin.x.y"], ["admin", "administrator.x"]),
        ("admin", ["admin"], ["admin.x", "administrator", "Admin", "admin.", ".admin"]),
        ("*.get", ["a.get", "b.get"], ["get", "a.b.get", "a.get.x", "a.gets"]),
        ("a.*.c", ["a.b.c"], ["a.c", "a.b.b.c", "a..c"]),
        ("*.*", ["a.b", "a.b.c"], ["a"]),
        ("*", ["a", "a.b"], ["hermes.status", "a..b", "", "."]),
        ("**", ["a", "a.b"], ["hermes.status", "hermes", "hermes.x.y"]),
        ("hermes.*", ["hermes.status", "hermes.x.y"], ["hermes", "hermes_.x"]),
        (
            "read",
            ["hermes.describe", "hermes.status", "hermes.watch", "hermes.trace"],
            ["hermes.tap", "read", "a.read"],
        ),
        (
            "operate",
            ["hermes.dead", "hermes.settle", "hermes.resume", "hermes.cancel", "hermes.tap"],
            ["hermes.status", "operate", "hermes.dead.x"],
        ),
    ],
)
def test_by_example(pattern, yes, no):
    check_pattern(pattern)
    assert [each for each in yes if not matches(pattern, each, product=False)] == []
    assert [each for each in no if matches(pattern, each, product=False)] == []


@pytest.mark.attack(54)
@given(st.text(max_size=20), st.sampled_from(["**", "*", "*.*", "text.*", "read"]), st.booleans())
def test_what_is_no_method_name_never_matches(text, pattern, product):
    legal = set("abcdefghijklmnopqrstuvwxyz0123456789_")
    if not all(part and set(part) <= legal for part in text.split(".")):
        assert not matches(pattern, text, product=product)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a*",
        "*a",
        "a.b*",
        "text.sh*t",
        "**.a",
        "a.**.b",
        "***",
        "A",
        "te xt",
        "ｔext",
        "a\n",
        "x" * 257,
    ],
)
def test_what_is_no_pattern(bad):
    with pytest.raises(TableError, match="is no method pattern: write whole segments joined by single dots"):
        check_pattern(bad)
