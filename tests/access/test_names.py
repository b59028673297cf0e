"""Names are ASCII, exact, and never a path (attacks 53, 54)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.access.names import check_agent_name, check_method_name, is_method_name, shown
from hermes_peer.errors import UsageError

PATHS = [
    *("", ".", "..", "../x", "a/b", "a\\b", "a..b", "x" * 65, "a\0b", "a\n", ".hidden", "-rf", "_x", "~"),
    *("CON:", "a b", "Worker", "wörker", "ａgent", "a\u200bb"),
]


@pytest.mark.parametrize("name", ["a", "worker", "order-worker", "a.b_c-1", "0", "x" * 64])
def test_agent_names(name):
    assert check_agent_name(name) == name


@pytest.mark.attack(53)
@pytest.mark.parametrize("name", PATHS)
def test_path_like_agent_names_are_refused(name):
    with pytest.raises(UsageError, match=r"cannot be an agent name: use 1 to 64 of a-z.*example: order-worker"):
        check_agent_name(name)


@pytest.mark.attack(53)
@pytest.mark.parametrize("name", PATHS)
def test_a_refused_name_touches_no_disk(home, name):
    before = sorted(home.path.rglob("*"))
    with pytest.raises(UsageError):
        home.slot(name)
    assert sorted(home.path.rglob("*")) == before


def test_policy_words_are_no_names():
    with pytest.raises(UsageError, match="every agent of this home; choose another"):
        check_agent_name("home")
    for word in ("read", "operate"):
        with pytest.raises(UsageError, match=rf"a group of methods; give it a prefix.*file\.{word}"):
            check_method_name(word)
    assert check_method_name("file.read") == "file.read"


@pytest.mark.parametrize("bad", [None, 7, b"a"])
def test_only_text_is_a_name(bad):
    for check in (check_agent_name, check_method_name):
        with pytest.raises(UsageError):
            check(bad)


# What Unicode folds, strips or shows as ASCII: long s, Kelvin sign, fullwidth, dotless i, zero widths, Cyrillic a.
CONFUSABLE = {"s": "ſ", "k": "\u212a", "i": "ı", "a": "а", "t": "ｔ", ".": "．", "e": "e\u0301", "_": "＿"}


@pytest.mark.attack(54)
@given(st.from_regex(r"[a-z0-9_]{1,8}(\.[a-z0-9_]{1,8}){0,3}", fullmatch=True), st.data())
def test_no_confusable_of_a_method_is_a_method(method, data):
    at = data.draw(st.integers(0, len(method) - 1))
    kind = data.draw(st.sampled_from(["confusable", "zero width", "upper", "fullwidth"]))
    letter = method[at]
    if kind == "zero width":
        twisted = method[:at] + data.draw(st.sampled_from("\u200b\u200d\u2060\ufeff\u00ad")) + method[at:]
    elif kind == "upper":
        twisted = method[:at] + letter.upper() + method[at + 1 :]
    elif kind == "fullwidth":
        twisted = method[:at] + chr(ord(letter) + 0xFEE0) + method[at + 1 :]
    else:
        twisted = method[:at] + CONFUSABLE.get(letter, letter) + method[at + 1 :]
    if twisted != method:
        assert not is_method_name(twisted)
        with pytest.raises(UsageError):
            check_method_name(twisted)


@given(st.text(max_size=140))
def test_the_method_grammar_against_a_naive_one(text):
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_")
    naive = len(text) <= 128 and all(part and set(part) <= allowed for part in text.split("."))
    assert is_method_name(text) == naive


def test_what_is_shown_is_escaped_and_short():
    assert "\n" not in shown("a\nb") and "\x1b" not in shown("\x1b[2J")
    assert len(shown("x" * 10_000)) <= 80
