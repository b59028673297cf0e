"""Who is trusted: the fingerprint decides, a deny wins, a broken file changes nothing (attacks 8, 12, 58)."""

import errno
import hashlib
import os
import time

import pytest

import hermes_peer.access.trust as trust_
from hermes_peer.access.files import stamp
from hermes_peer.access.home import Home
from hermes_peer.access.pins import read_tables, weak_fingerprints
from hermes_peer.access.trust import Trust
from hermes_peer.wire.address import Address

from .conftest import A, B, C

NOW = 1_800_000_000.0  # 2027-01-15 08:00 UTC


def pin(fingerprint, name, **more):
    lines = [
        f'fingerprint = "{fingerprint}"',
        f'name = "{name}"',
        *(f'{key} = "{value}"' for key, value in more.items()),
    ]
    return "[[pin]]\n" + "\n".join(lines) + "\n\n"


def denial(fingerprint, reason=""):
    return f'[[deny]]\nfingerprint = "{fingerprint}"\nreason = "{reason}"\n\n'


def test_nobody(home, trust_text):
    for text in ("", "# only a comment\n"):
        trust_text(text)
        grant = Trust(home).grant(A, NOW)
        assert (grant.allowed, grant.names, grant.home) == (False, frozenset(), False)
        assert grant.reason == (
            f"The key {A[:16]}… is in no trust file; if you know it, run: hermes-peer trust add {A} name=NAME"
        )
    home.trust_file.unlink()
    assert not Trust(home).grant(A, NOW).allowed


def test_a_pin_grants_its_name(home, trust_text):
    trust_text(pin(A.upper(), "worker", at="hermes://192.0.2.7:7891", note="x") + pin(A, "helper") + pin(B, "worker"))
    trust = Trust(home)
    grant = trust.grant(A, NOW)
    assert grant.allowed and not grant.home and grant.names == {"worker", "helper"}
    assert grant.reason == f"trust.toml pins {A[:16]}… as helper and worker." and grant.source == "trust.toml"
    assert trust.grant(A.upper(), NOW) == grant
    assert trust.fingerprints("worker") == [A, B] and trust.fingerprints("nobody") == []
    assert trust.address("worker") == [Address.parse(f"hermes://{A}@192.0.2.7:7891")]
    assert [(each.fingerprint, each.name) for each in trust.pins()] == [(A, "worker"), (A, "helper"), (B, "worker")]


@pytest.mark.attack(58)
def test_a_name_pinned_for_one_key_says_nothing_of_another(home, trust_text):
    trust_text(pin(A, "worker") + pin(B, "helper"))
    trust = Trust(home)
    assert "worker" not in trust.grant(B, NOW).names and not trust.grant(C, NOW).allowed
    for twisted in ("", "worker", A[:-1], A + "0", A[:-1] + "\u0661", "\x1b[2J" + A, "é" * 64):
        grant = trust.grant(twisted, NOW)
        assert not grant.allowed and "\x1b" not in grant.reason


@pytest.mark.attack(12)
def test_a_deny_wins_over_all(home, trust_text):
    slot = home.slot("worker")
    trust_text(denial(slot.fingerprint.upper(), "stolen laptop") + pin(A, "x", at="hermes://h") + denial(A))
    trust = Trust(home)
    grant = trust.grant(slot.fingerprint, NOW)
    assert not grant.allowed and grant.names == frozenset()
    assert grant.reason == f"The key {slot.fingerprint[:16]}… is denied by trust.toml (stolen laptop)."
    assert trust.grant(A, NOW).reason == f"The key {A[:16]}… is denied by trust.toml."
    assert trust.address("x") == [] and trust.fingerprints("x") == [] and len(trust.denials()) == 2


@pytest.mark.attack(12)
def test_a_deny_is_seen_at_the_next_look(home, trust_text):
    trust_text(pin(A, "worker"))
    trust = Trust(home)
    assert not trust.reload_if_changed() and trust.grant(A, NOW).allowed
    trust_text(pin(A, "worker") + denial(A))  # in place, as some editors write
    assert trust.reload_if_changed() and not trust.grant(A, NOW).allowed
    home.trust_file.with_name("t").write_text(pin(A, "worker"))
    os.replace(home.trust_file.with_name("t"), home.trust_file)  # by rename, as others do
    assert trust.reload_if_changed() and trust.grant(A, NOW).allowed
    (home.trust_dir / "more.toml").write_text(denial(A))
    assert trust.reload_if_changed() and not trust.grant(A, NOW).allowed
    (home.trust_dir / "more.toml").write_text(denial(B))
    assert trust.reload_if_changed() and trust.grant(A, NOW).allowed
    (home.trust_dir / "more.toml").unlink()
    assert trust.reload_if_changed()
    trust_text("# a comment\n" + pin(A, "worker"))
    assert not trust.reload_if_changed(), "a comment changes no trust"


@pytest.mark.attack(12)
def test_a_broken_file_keeps_the_last_good_content(home, trust_text):
    trust_text(pin(A, "worker") + denial(B))
    (home.trust_dir / "c.toml").write_text(pin(C, "helper"))
    trust = Trust(home)
    trust_text(pin(A, "worker") + denial(B) + "[[pin\n")
    assert not trust.reload_if_changed()
    assert trust.problem.startswith("trust.toml line 9: ") and trust.problem.endswith(
        ": repair it; until then the last good content stays in force."
    )
    assert trust.grant(A, NOW).allowed and not trust.grant(B, NOW).allowed and trust.grant(C, NOW).allowed
    # A denial in another file still takes effect meanwhile.
    (home.trust_dir / "d.toml").write_text(denial(C))
    assert trust.reload_if_changed() and not trust.grant(C, NOW).allowed and trust.grant(A, NOW).allowed
    assert trust.problem.startswith("trust.toml line 9: ")
    trust_text("")
    assert trust.reload_if_changed() and trust.problem is None and not trust.grant(A, NOW).allowed


@pytest.mark.case("HPC-091")
def test_without_descriptors_nobody_loses_trust(home, trust_text, monkeypatch):
    trust_text(pin(A, "worker"))
    (home.trust_dir / "c.toml").write_text(pin(C, "helper"))
    trust = Trust(home)

    def full(*args):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as out_of:
        out_of.setattr(os, "scandir", full)
        out_of.setattr(os, "open", full)
        trust_text(pin(A, "worker") + pin(B, "late"))
        assert not trust.reload_if_changed() and "Too many open files" in trust.problem
        assert trust.grant(A, NOW).allowed and trust.grant(C, NOW).allowed
    assert trust.reload_if_changed() and trust.problem is None and trust.grant(B, NOW).allowed


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(trust_.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def crowd(home, count):
    for n in range(count):
        (home.trust_dir / f"n{n}.toml").write_text(pin(hashlib.sha256(b"%d" % n).hexdigest(), f"n{n}"))
    past = time.time() - 10
    os.utime(home.trust_dir, (past, past))


def test_a_patient_look_into_a_quiet_crowd_costs_two_stats(home, trust_text, clock, monkeypatch):
    trust_text(pin(A, "worker"))
    crowd(home, 200)
    trust = Trust(home)
    looked = []
    monkeypatch.setattr(trust_, "stamp", lambda path: looked.append(str(path)) or stamp(path))
    clock.now += 5.0
    assert not trust.reload_if_changed(patient=True)
    assert looked == [str(home.trust_file), str(home.trust_dir)]


@pytest.mark.attack(12)
def test_a_patient_look_sees_trust_toml_at_once_and_the_folder_in_seconds(home, trust_text, clock):
    trust_text(pin(A, "worker"))
    crowd(home, 200)
    trust = Trust(home)
    trust_text(pin(A, "worker") + denial(A))
    assert trust.reload_if_changed(patient=True) and not trust.grant(A, NOW).allowed
    (home.trust_dir / "b.toml").write_text(pin(B, "late"))
    assert not trust.reload_if_changed(patient=True)  # the whole crowd was looked at a moment ago
    clock.now += 1.1
    assert trust.reload_if_changed(patient=True) and trust.grant(B, NOW).allowed
    fresh = home.trust_dir / ".b"
    fresh.write_text(pin(C, "other"))
    os.replace(fresh, home.trust_dir / "b.toml")
    clock.now += 1.1
    assert trust.reload_if_changed(patient=True) and trust.grant(C, NOW).allowed and not trust.grant(B, NOW).allowed
    (home.trust_dir / "b.toml").unlink()
    clock.now += 1.1
    assert trust.reload_if_changed(patient=True) and not trust.grant(C, NOW).allowed
    (home.trust_dir / "n7.toml").write_text(pin(B, "edited"))  # in place: the folder does not show it
    clock.now += 1.1
    assert not trust.reload_if_changed(patient=True)
    clock.now += 10.0
    assert trust.reload_if_changed(patient=True) and trust.grant(B, NOW).names == {"edited"}
    (home.trust_dir / "n7.toml").write_text(pin(C, "again"))
    assert trust.reload_if_changed() and trust.grant(C, NOW).allowed, "who is not patient sees all"


def test_two_changes_of_a_folder_within_one_tick_of_the_disks_clock_are_both_seen(home, trust_text, clock, monkeypatch):
    trust_text("")
    crowd(home, 40)
    tick = time.time_ns()
    same = (1, 4096, tick, tick)
    monkeypatch.setattr(trust_, "stamp", lambda path: same if str(path) == str(home.trust_dir) else stamp(path))
    trust = Trust(home)
    for name in ("one", "two"):
        (home.trust_dir / f"{name}.toml").write_text(pin(A, name))
        clock.now += 0.5
        assert trust.reload_if_changed(patient=True) and name in trust.grant(A, NOW).names


def test_only_what_changed_is_read_and_once_for_all_agents_of_a_process(home, trust_text, monkeypatch):
    trust_text(pin(A, "worker"))
    crowd(home, 20)
    read = []
    monkeypatch.setattr(trust_, "read_tables", lambda path: read.append(path.name) or read_tables(path))
    trust_._read.cache_clear()
    one, two = Trust(home), Trust(home)
    assert len(read) == 21
    (home.trust_dir / "n3.toml").write_text(pin(B, "other"))
    assert one.reload_if_changed() and two.reload_if_changed()
    assert read[21:] == ["n3.toml"] and one.grant(B, NOW).allowed and two.grant(B, NOW).allowed
    home.trust_file.unlink()
    assert one.reload_if_changed() and not one.grant(A, NOW).allowed
    trust_text(pin(A, "worker"))
    assert one.reload_if_changed() and one.grant(A, NOW).allowed
    home.trust_file.unlink()
    assert one.reload_if_changed() and not one.grant(A, NOW).allowed


@pytest.mark.attack(12)
def test_what_is_read_of_a_file_that_was_not_there_a_moment_ago_is_not_remembered(home, trust_text, monkeypatch):
    trust_text(pin(A, "worker"))
    with monkeypatch.context() as early:
        early.setattr(trust_, "stamp", lambda path: None)  # it comes between the look and the reading
        assert Trust(home).grant(A, NOW).allowed
    home.trust_file.unlink()
    assert not Trust(home).grant(A, NOW).allowed


def test_broken_at_the_start(home, trust_text):
    slot = home.slot("worker")
    (home.trust_dir / "bad.toml").write_text("]")
    trust = Trust(home)
    assert trust.problem.startswith("trust.d/bad.toml line 1: ") and trust.grant(slot.fingerprint, NOW).allowed
    trust_text("]")
    trust = Trust(home)
    assert trust.problem.endswith("until then nobody is trusted.") and not trust.grant(slot.fingerprint, NOW).allowed
    trust_text("")
    assert trust.reload_if_changed() and trust.grant(slot.fingerprint, NOW).allowed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n", "trust.toml line 1: unknown word 'x'; known are [[pin]], [[deny]]"),
        ("\n[pin]\n", "trust.toml line 2: write [[pin]] with two brackets"),
        ('\n[[pin]]\nfingerprint = "abc"\n', "trust.toml line 2: a fingerprint must be 64 hex digits"),
        ("[[pin]]\nfingerprint = 7\n", "trust.toml line 1: a fingerprint must be 64 hex digits"),
        (f'[[pin]]\nfingerprint = "{A}"\n', 'trust.toml line 1: a pin needs name = "…"'),
        (pin(A, "ok") + pin(A, "Worker"), "trust.toml line 5: 'Worker' cannot be an agent name"),
        (pin(A, "home"), "trust.toml line 1: 'home' cannot be an agent name"),
        (pin(A, "w", at="http://x"), "trust.toml line 1: 'http://x' is not an address: it must start with hermes://"),
        (pin(A, "w", at=f"hermes://{B}@h"), "the fingerprint in `at` is another than the pin's"),
        (pin(A, "w", not_afer="2027-01-01"), "trust.toml line 1: unknown word 'not_afer'; known are at, fingerprint"),
        (pin(A, "w", not_after="soon"), 'trust.toml line 1: not_after must be a day such as "2027-01-01"'),
        (pin(A, "w", note="\u202e"), "note must be one line of text with at most 200 characters"),
        (pin(A, "w", slot="one"), "slot must be a number"),
        ('[[deny]]\nfingerprint = "x"\n', "trust.toml line 1: a fingerprint must be 64 hex digits"),
        ("a = [" * 3000, "trust.toml line 1: "),
        (pin(A, "w", note="x" * 201), "note must be one line"),
    ],
)
def test_every_mistake_has_a_sentence_with_its_line(home, trust_text, text, problem):
    trust_text(text)
    trust = Trust(home)
    assert problem in trust.problem and not trust.grant(A, NOW).allowed
    assert trust.problem.endswith("repair it; until then nobody is trusted.") and ".:" not in trust.problem


def test_not_utf8(home):
    home.trust_file.write_bytes(b"# one\n# \xff\n")
    assert Trust(home).problem.startswith("trust.toml line 2: not UTF-8 text")


@pytest.mark.attack(8)
def test_weak_keys_cannot_be_pinned(home, trust_text):
    for fingerprint in weak_fingerprints():
        trust_text(pin(fingerprint, "worker"))
        trust = Trust(home)
        assert not trust.grant(fingerprint, NOW).allowed and "is weak: anybody can sign" in trust.problem


def test_pins_end(home, trust_text):
    trust_text(
        pin(A, "old", not_after="2027-01-14")
        + pin(A, "today", not_after="2027-01-15")
        + pin(B, "old", not_after="2027-01-14T23:59:59")
        + pin(C, "zone", not_after="2027-01-15T10:00:00+02:00")
    )
    trust = Trust(home)
    assert trust.problem is None
    assert trust.grant(A, NOW).names == {"today"} and trust.grant(A, NOW + 57_599).allowed
    assert not trust.grant(A, NOW + 57_600).allowed, "a day holds to its end in UTC"
    assert trust.grant(B, NOW).reason == (
        "The pin of old in trust.toml ended (2027-01-14T23:59:59); "
        "give it a later not_after if you still trust the key."
    )
    assert trust.grant(C, NOW - 1).allowed and not trust.grant(C, NOW).allowed


def test_dates_of_toml_itself(home, trust_text):
    trust_text(f'[[pin]]\nfingerprint = "{A}"\nname = "w"\nnot_after = 2027-01-14\n')
    trust = Trust(home)
    assert trust.problem is None and not trust.grant(A, NOW).allowed


def test_only_whole_files_of_trust_d_count(home):
    for name in (".x.toml.new", ".x.toml", "x.toml~", "x.txt"):
        (home.trust_dir / name).write_text(pin(A, "worker"))
    assert not Trust(home).grant(A, NOW).allowed
    (home.trust_dir / "x.toml").write_text(pin(A, "worker"))
    assert Trust(home).grant(A, NOW).home


@pytest.mark.attack(69)
def test_a_file_others_can_write_is_not_believed(home, trust_text):
    trust_text(pin(A, "worker"))
    home.trust_file.chmod(0o666)
    trust = Trust(home)
    assert not trust.grant(A, NOW).allowed and "Other users can change the trust file" in trust.problem
    assert "chmod go-w" in trust.problem
    home.trust_file.chmod(0o600)
    assert trust.reload_if_changed() and trust.grant(A, NOW).allowed and trust.problem is None


def test_without_trust_d(home):
    home.trust_dir.rmdir()
    assert Trust(home).problem is None
    assert Home.open(home.path).trust_dir.is_dir()
