"""The tokens of the plain door: hashes in a file that only this user reads."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hermes_peer.access.home import Home
from hermes_peer.access.tokens import FILE, SHAPE, Tokens, add_token, revoke_token, tokens
from hermes_peer.errors import UsageError


@pytest.fixture
def opened(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "tokens-home")


def test_a_token_is_shown_once_and_kept_as_a_hash(opened: Home) -> None:
    token = add_token(opened, "dashboard", 86_400 * 365)
    file = opened.path / FILE
    assert SHAPE.fullmatch(token) and token not in file.read_text() and token[3:] not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (kept,) = tokens(opened)
    assert (kept.name, kept.made, len(kept.sha256)) == ("dashboard", "1971-01-01", 64)
    assert Tokens(opened).name_of(token) == "dashboard"
    assert add_token(opened, "other", 0) != token


def test_what_is_no_token(opened: Home) -> None:
    token = add_token(opened, "a", 0)
    found = Tokens(opened)
    sha = tokens(opened)[0].sha256
    for wrong in ("", "hp_", token[:-1], token + "A", token.upper(), " " + token, token + "\n", sha, f"hp_{sha[:43]}"):
        assert found.name_of(wrong) is None, wrong


def test_coming_and_going_is_seen_at_once(opened: Home) -> None:
    found = Tokens(opened)
    assert len(found) == 0 and found.name_of("hp_" + "A" * 43) is None
    a, b = add_token(opened, "a", 0), add_token(opened, "b", 0)
    assert (found.name_of(a), found.name_of(b), len(found)) == ("a", "b", 2)
    assert revoke_token(opened, "a") is True and revoke_token(opened, "a") is False
    assert (found.name_of(a), found.name_of(b)) == (None, "b")
    again = add_token(opened, "a", 0)
    assert found.name_of(again) == "a" and found.name_of(a) is None


@pytest.mark.parametrize("bad", ["", "A", "a b", "../x", "x" * 65, "home", "loopback", "uid", "é", 'a"'])
def test_names(opened: Home, bad: str) -> None:
    with pytest.raises(UsageError):
        add_token(opened, bad, 0)
    assert tokens(opened) == []


def test_a_name_is_taken_once(opened: Home) -> None:
    add_token(opened, "a", 0)
    with pytest.raises(UsageError, match="hermes-peer token revoke a"):
        add_token(opened, "a", 0)


GOOD = f'[[token]]\nname = "a"\nsha256 = "{"a" * 64}"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "line 1"),
        ("[[tokn]]\n", "unknown word"),
        ('[[token]]\nname = "a"\n', "sha256"),
        ('[[token]]\nname = "a"\nsha256 = "xyz"\n', "64 hex digits"),
        (GOOD.replace('"a"', '"A B"'), "agent name"),
        (GOOD.replace('"a"', '"loopback"'), "cannot be used"),
        (GOOD + GOOD, "stands twice"),
        (GOOD + GOOD.replace('"a"', '"b"'), "stands twice"),
        (GOOD + "admin = true\n", "unknown word"),
    ],
)
def test_a_broken_file_lets_nobody_in(opened: Home, text: str, says: str) -> None:
    token = add_token(opened, "good", 0)
    found = Tokens(opened)
    assert found.name_of(token) == "good"
    file = opened.path / FILE
    file.write_text(text)
    file.chmod(0o600)
    assert found.name_of(token) is None and says in (found.problem or "")
    with pytest.raises(UsageError, match=r"repair|cannot be an agent"):
        tokens(opened)
    with pytest.raises(UsageError):
        add_token(opened, "more", 0)
    assert file.read_text() == text


def test_a_file_that_others_read_or_that_is_a_link(opened: Home) -> None:
    token = add_token(opened, "a", 0)
    file = opened.path / FILE
    file.chmod(0o644)
    found = Tokens(opened)
    assert found.name_of(token) is None and "chmod 600" in (found.problem or "")
    file.chmod(0o600)
    assert found.name_of(token) == "a" and found.problem is None
    moved = opened.path / "elsewhere"
    os.rename(file, moved)
    file.symlink_to(moved)
    assert found.name_of(token) is None and "symbolic link" in (found.problem or "")


def test_many_at_once(opened: Home) -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda n=n: made.append(add_token(opened, f"t{n}", 0))) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Tokens(opened)
    assert sorted(found.name_of(token) or "" for token in made) == sorted(f"t{n}" for n in range(12))
