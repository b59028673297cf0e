"""Editing trust.toml keeps what its owner wrote, or refuses."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_peer.access.pins import weak_fingerprints
from hermes_peer.access.trust import Trust, add_pin, deny, remove, share_line
from hermes_peer.errors import UsageError
from hermes_peer.wire.address import Address

from .conftest import A, B, C

MINE = f"""\
# my own words
[[pin]]   # the first
fingerprint = "{A}"
name = "worker"   # who

# between

[[pin]]
name = "worker"
fingerprint = "{B.upper()}"

# last words
"""


def test_add(home):
    before = home.trust_file.read_text()
    add_pin(home, A.upper(), "worker")
    add_pin(home, A, "helper", at=f"hermes://{A}@[2001:db8::7]:1")
    add_pin(home, B, "worker", at=Address.parse("hermes://host"))
    text = home.trust_file.read_text()
    assert text.startswith(before)
    assert text.endswith(f'\n[[pin]]\nfingerprint = "{B}"\nname = "worker"\nat = "hermes://host:7891"\n')
    trust = Trust(home)
    assert trust.grant(A, 0).names == {"worker", "helper"} and len(trust.address("worker")) == 1
    assert home.trust_file.stat().st_mode & 0o777 == 0o600


def test_add_after_a_file_without_a_last_newline(home, trust_text):
    trust_text("# words")
    add_pin(home, A, "worker")
    assert home.trust_file.read_text().startswith("# words\n\n[[pin]]\n")
    home.trust_file.unlink()
    add_pin(home, A, "worker")
    assert home.trust_file.read_text().startswith("[[pin]]\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("abc", "worker"), "A fingerprint must be 64 hex digits; `hermes-peer trust show` on the other machine"),
        ((A + "0", "worker"), "A fingerprint must be 64 hex digits"),
        (("é" * 64, "worker"), "A fingerprint must be 64 hex digits"),
        ((A, "../x"), "cannot be an agent name"),
        ((A, "worker", "host:1"), "is not an address: it must start with hermes://"),
        ((A, "worker", f"hermes://{B}@host"), "The address names another key than the one to pin"),
    ],
)
def test_add_refuses(home, arguments, sentence):
    before = home.trust_file.read_bytes()
    with pytest.raises(UsageError, match=sentence):
        add_pin(home, *arguments)
    assert home.trust_file.read_bytes() == before


@pytest.mark.attack(8)
def test_weak_keys_are_refused_at_trust_add(home):
    for fingerprint in weak_fingerprints():
        with pytest.raises(UsageError, match="is weak: anybody can sign with it; the other side must make a new key"):
            add_pin(home, fingerprint, "worker")
    deny(home, next(iter(weak_fingerprints())), "weak")
    assert Trust(home).problem is None


def test_doubles_are_told(home):
    add_pin(home, A, "worker")
    with pytest.raises(UsageError, match=f"pins {A[:16]}… as worker already.*hermes-peer trust remove {A}"):
        add_pin(home, A, "worker", at="hermes://h")
    deny(home, A, 'he said "no" \\ ü')
    with pytest.raises(UsageError, match=f"denies {A[:16]}… already; nothing was changed"):
        deny(home, A)
    with pytest.raises(UsageError, match=f"a deny wins over every pin; run first: hermes-peer trust remove {A}"):
        add_pin(home, A, "other")
    assert Trust(home).denials()[0].reason == 'he said "no" \\ ü'
    assert remove(home, A) == 2 and Trust(home).grant(A, 0).reason.startswith("The key")


def test_deny_refuses(home):
    for bad in ("x", "", A[:-1]):
        with pytest.raises(UsageError, match="A fingerprint must be 64 hex digits; `hermes-peer trust list`"):
            deny(home, bad)
        with pytest.raises(UsageError):
            remove(home, bad)
    for reason in ("two\nlines", "x" * 201, "\x1b[2J", "\x7f"):
        with pytest.raises(UsageError, match="The reason must be one line of text with at most 200 characters"):
            deny(home, A, reason)


def test_remove_keeps_the_owners_words(home, trust_text):
    trust_text(MINE)
    assert remove(home, A) == 1
    assert home.trust_file.read_text() == MINE.replace(
        f'[[pin]]   # the first\nfingerprint = "{A}"\nname = "worker"   # who\n', ""
    )
    trust_text(MINE)
    assert remove(home, B) == 1
    assert home.trust_file.read_text() == MINE.replace(f'\n[[pin]]\nname = "worker"\nfingerprint = "{B.upper()}"\n', "")
    trust_text(MINE)
    assert remove(home, C) == 0 and home.trust_file.read_text() == MINE


def test_remove_of_an_agent_of_this_home(home):
    slot = home.slot("worker")
    with pytest.raises(UsageError, match=f"pins itself at each start; run instead: .* deny {slot.fingerprint}"):
        remove(home, slot.fingerprint)
    deny(home, slot.fingerprint)
    assert remove(home, slot.fingerprint) == 1


@pytest.mark.parametrize(
    "text",
    [
        f'pin = [{{fingerprint = "{A}", name = "w"}}, {{fingerprint = "{B}", name = "w"}}]\n',
        f'[[pin]]\nfingerprint = "{B}"\nname = "x"\nnote = """\\\n[[pin]] # """\n'
        f'[[pin]]\nfingerprint = "{A}"\nname = "y"\n',
    ],
)
def test_an_unusual_layout_is_never_spoilt(home, trust_text, text):
    trust_text(text)
    assert Trust(home).problem is None
    with pytest.raises(
        UsageError, match=r"cannot be edited by command; edit .*trust\.toml by hand, nothing was changed"
    ):
        remove(home, A)
    assert home.trust_file.read_text() == text


def test_a_broken_file_is_not_edited(home, trust_text):
    for text, sentence in [("[[pin", r"trust\.toml line 1: .*: repair it first, nothing was changed"), (None, "UTF-8")]:
        trust_text(text) if text else home.trust_file.write_bytes(b"\xff")
        for act in (lambda: add_pin(home, A, "w"), lambda: deny(home, A), lambda: remove(home, A)):
            with pytest.raises(UsageError, match=sentence):
                act()


def test_a_linked_file_stays_a_link(home, tmp_path):
    home.trust_file.rename(tmp_path / "real.toml")
    home.trust_file.symlink_to(tmp_path / "real.toml")
    add_pin(home, A, "worker")
    assert home.trust_file.is_symlink() and A in (tmp_path / "real.toml").read_text()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["add", "deny", "remove"]), st.sampled_from([A, B, C])), max_size=12))
def test_edits_against_a_plain_model(home, acts):
    home.trust_file.write_text("# head\n")
    pins, denied = set(), set()
    for act, key in acts:
        try:
            if act == "add":
                add_pin(home, key, "worker")
                assert key not in denied | pins
                pins.add(key)
            elif act == "deny":
                deny(home, key, "why")
                assert key not in denied
                denied.add(key)
            else:
                assert remove(home, key) == (key in pins) + (key in denied)
                pins.discard(key)
                denied.discard(key)
        except UsageError:
            assert (act == "add" and key in pins | denied) or (act == "deny" and key in denied)
    document = tomllib.loads(home.trust_file.read_text())
    assert {each["fingerprint"] for each in document.get("pin", [])} == pins
    assert {each["fingerprint"] for each in document.get("deny", [])} == denied
    assert home.trust_file.read_text().startswith("# head\n")
    trust = Trust(home)
    assert {key for key in (A, B, C) if trust.grant(key, 0).allowed} == pins - denied


def test_the_line_for_the_other_side(home, tmp_path):
    slot = home.slot("worker")
    line = f"hermes-peer trust add {slot.fingerprint} name=worker"
    assert share_line(slot) == line
    assert (
        share_line(slot, ["hermes+unix:///tmp/x.sock", "hermes://0.0.0.0:1", "hermes://[::]:1", "hermes://h:0"]) == line
    )
    assert share_line(slot, [f"hermes://{slot.fingerprint}@192.0.2.7:7891"]) == f"{line} at=hermes://192.0.2.7:7891"
    # The other side understands it.
    from hermes_peer.access.home import Home

    other = Home.open(tmp_path / "other")
    fingerprint, *words = share_line(slot, [Address.parse("hermes://192.0.2.7")]).split()[3:]
    add_pin(other, fingerprint, **dict(word.split("=", 1) for word in words))
    assert Trust(other).grant(slot.fingerprint, 0).names == {"worker"}
