"""Sealed both ways, the next key in mid-stream, bare if both want it."""

from __future__ import annotations

from typing import Any

import pytest

import hermes_peer.crypto.seal as seal
from hermes_peer.core.config import Config
from hermes_peer.core.records import Records
from hermes_peer.core.states import LinkState, Reason
from hermes_peer.crypto.seal import SealError
from hermes_peer.wire.frames import RECORD_PLAIN_MAX

from .rig import A, B, World, drain, eat, node, unsealed


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A direction is due for its next key after one record; it looks every 64."""
    monkeypatch.setattr(seal, "SEND_RECORDS", 1)


@pytest.mark.usefixtures("early")
@pytest.mark.attack(26)
def test_attack_26_rekey_in_mid_stream_loses_nothing_and_restarts_the_counter() -> None:
    w = World().connect()
    stream = w.sa.open()
    got = []
    for n in range(500):
        w.sa.send(stream, b"%d" % n)
        w.now += 0.02
        w.pump()
        got += eat(w.sb)
    assert got == [b"%d" % n for n in range(500)]
    assert w.la._records is not None
    assert w.la._records._sealer.records < 128 < w.la._records.written


@pytest.mark.attack(26)
@pytest.mark.parametrize(("rekey_s", "keys"), [(3600.0, 1), (20.0, 4), (0.0, 16)])
def test_attack_26_a_key_serves_no_longer_than_configured(rekey_s: float, keys: int) -> None:
    w = World(a=node(A, "a", Config(rekey_s=rekey_s))).connect()
    assert w.la._records is not None
    stream, sealer, seen = w.sa.open(), w.la._records._sealer, set()
    for n in range(1000):
        w.sa.send(stream, b"%d" % n)
        w.now += 0.08
        w.pump()
        seen.add(sealer._iv)
        assert eat(w.sb) == [b"%d" % n] and not w.lb.done
    assert abs(len(seen) - keys) <= 1


@pytest.mark.usefixtures("early")
@pytest.mark.attack(26)
def test_attack_26_new_keys_too_often_end_the_link() -> None:
    w = World().connect()
    stream = w.sa.open()
    for n in range(500):
        w.sa.send(stream, b"%d" % n)
        w.pump()
        if w.lb.done:
            break
    assert 64 < n < 200 and "rekey" in w.lb.unproven_reason


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("size", [0, 1, RECORD_PLAIN_MAX - 19, RECORD_PLAIN_MAX - 18, RECORD_PLAIN_MAX])
def test_the_next_key_goes_behind_a_full_record_too(size: int) -> None:
    w = World().connect()
    one, two = w.la._records, w.lb._records
    assert one is not None and two is not None
    while one._sealer.records & 63 != 63:
        unsealed(two, one.wrap(b"x", 1.0))
    data = one.wrap(b"y" * size, 1.0)
    assert one._sealer.records == 0
    first = 19 + int.from_bytes(data[15:19], "big")
    assert unsealed(two, data[:first]).startswith(b"y" * size)
    if data[first:]:
        unsealed(two, data[first:])
    two.rekeyed(1.0)
    assert unsealed(two, one.wrap(b"under the next key", 1.0)) == b"under the next key"


class Recorder:
    """AESGCM that remembers every (key, nonce) that ever sealed anything."""

    used: set[tuple[bytes, bytes]]
    real = seal.AESGCM

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.cipher = self.real(key)
        self.decrypt = self.cipher.decrypt

    def encrypt(self, nonce: bytes, data: bytes, aad: bytes) -> bytes:
        assert (self.key, nonce) not in self.used, "a nonce twice under one key"
        self.used.add((self.key, nonce))
        return self.cipher.encrypt(nonce, data, aad)


@pytest.mark.usefixtures("early")
@pytest.mark.attack(24)
def test_attack_24_no_nonce_twice_over_resumes_and_rekeys(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder.used = set()
    monkeypatch.setattr(seal, "AESGCM", Recorder)
    w = World()
    records = 0
    for turn in range(8):
        w.connect(by_a=turn % 2 == 0)
        stream = w.sa.open()
        for n in range(150):
            w.sa.send(stream, b"%d" % n)
            w.now += 0.02
            w.pump()
            eat(w.sb)
        assert w.la._records is not None and w.lb._records is not None
        records += w.la._records.written + w.lb._records.written
        w.cut()
        w.sa.send(w.sa.open(), b"to be replayed")
        w.now += 1
    assert w.sa.links == 8
    assert len(Recorder.used) >= records > 1200


@pytest.mark.attack(22)
@pytest.mark.parametrize("to_new", [True, False])
def test_attack_22_records_of_an_old_link_or_of_before_open_nothing(to_new: bool) -> None:
    w = World().connect()
    w.sa.send(w.sa.open(), b"pay")
    record = drain(w.la, w.now)
    w.lb.receive(record, w.now)
    assert eat(w.sb) == [b"pay"]
    if to_new:
        w.cut()
        w.now += 1
        w.connect()
    w.lb.receive(record, w.now)
    assert w.lb.state is LinkState.CLOSING and drain(w.lb, w.now) == b""
    assert eat(w.sb) == []
    assert w.b.events[-1][3] is Reason.PROTOCOL


@pytest.mark.attack(25)
def test_attack_25_dropped_swapped_doubled_or_flipped_records_end_the_link_and_nothing_else() -> None:
    for trick in ("drop", "swap", "double", "flip"):
        w = World().connect()
        records = []
        for n in range(3):
            w.sa.send(w.sa.open(), b"%d" % n)
            records.append(drain(w.la, w.now))
        one, two, three = records
        two_bad = two[:-1] + bytes([two[-1] ^ 1])
        sent = {"drop": [one, three], "swap": [two, one], "double": [one, one], "flip": [one, two_bad]}[trick]
        for record in sent:
            w.lb.receive(record, w.now)
        assert w.lb.done, trick
        assert eat(w.sb) == ([] if trick == "swap" else [b"0"])
        w.cut()
        w.now += 1
        w.connect()
        w.pump()
        rest = eat(w.sb)
        assert ([] if trick == "swap" else [b"0"]) + rest == [b"0", b"1", b"2"]


# ------------------------------------------------------------------ unsealed
def world(seal_a: str, seal_b: str, boot_a: bytes = b"boot", boot_b: bytes = b"boot") -> World:
    return World(
        node(A, "a", caps={"seal": seal_a}, boot_id=boot_a), node(B, "b", caps={"seal": seal_b}, boot_id=boot_b)
    )


UNIX, LOOP, FAR = {"local": True}, {"loopback": True}, dict[str, bool]()
CASES: list[tuple[Any, dict[str, bool], bool]] = [
    (("none", "none"), UNIX, True),
    (("none", "none"), LOOP, True),  # loopback of one machine
    (("none", "none"), FAR, False),  # one boot id, and yet a network between them (a container, a clone, no /proc)
    (("none", "none", b"boot", b"other"), UNIX, True),
    (("none", "none", b"boot", b"other"), LOOP, False),  # a tunnel: both ends see loopback
    (("none", "none", b"", b""), LOOP, False),
    (("none", "none", b"", b"boot"), LOOP, False),
    (("none", "required"), UNIX, False),
    (("required", "none"), UNIX, False),
    (("required", "none"), LOOP, False),
    (("required", "required"), UNIX, False),
]


@pytest.mark.parametrize("together", [True, False], ids=["in one piece", "frame by frame"])
@pytest.mark.parametrize("by_a", [True, False])
@pytest.mark.parametrize(("who", "near", "bare"), CASES)
def test_unsealed_only_if_both_ask_and_both_are_here(
    who: Any, near: dict[str, bool], bare: bool, by_a: bool, together: bool
) -> None:
    w = world(*who).dial(by_a, **near)
    if together:
        moved = True
        while moved:
            moved = False
            for giver, taker in ((w.la, w.lb), (w.lb, w.la)):
                if said := drain(giver, w.now):
                    moved = True
                    taker.receive(said, w.now)
    w.pump()
    assert w.la.state is w.lb.state is LinkState.OPEN
    assert w.la.sealed is w.lb.sealed is not bare
    w.sa.send(w.sa.open(), b"do you see this?")
    seen = drain(w.la, w.now)
    assert (b"do you see this?" in seen) is bare
    w.lb.receive(seen, w.now)
    w.sb.send(w.sb.open(), b"and this?")
    w.pump()
    assert eat(w.sb) == [b"do you see this?"] and eat(w.sa) == [b"and this?"]
    for by_caller in (w.la, w.lb)[:: 1 if by_a else -1][:1]:
        by_caller.close(Reason.SHUTDOWN, "bye")
    w.pump()
    assert (w.lb if by_a else w.la).done
    assert (w.b if by_a else w.a).events[-1][3] is Reason.SHUTDOWN


@pytest.mark.parametrize("by_a", [True, False])
def test_if_only_one_end_sees_loopback_both_seal(by_a: bool) -> None:
    """A relay on the way: the two ends still come to one answer."""
    w = world("none", "none")
    w.la = w.a.dial(B.fingerprint, w.now, loopback=by_a)
    w.lb = w.b.accept(w.now, loopback=not by_a)
    w.pump()
    assert w.la.state is w.lb.state is LinkState.OPEN and w.la.sealed and w.lb.sealed
    w.sa.send(w.sa.open(), b"do you see this?")
    w.pump()
    assert eat(w.sb) == [b"do you see this?"]


def test_an_unsealed_link_resumes_and_identity_is_proven_all_the_same() -> None:
    w = world("none", "none").connect(local=True)
    stream = w.sa.open()
    w.sa.send(stream, b"one")
    w.cut()
    w.now += 1
    w.connect(by_a=False, local=True)
    w.sa.send(stream, b"two", True)
    w.pump()
    assert eat(w.sb) == [b"one", b"two"]


def test_bare_frames_in_any_slices() -> None:
    w = world("none", "none").connect(local=True)
    stream = w.sa.open()
    for n in range(5):
        w.sa.send(stream, b"%d" % n * 100)
    said = drain(w.la, w.now)
    for at in range(len(said)):
        w.lb.receive(said[at : at + 1], w.now)
    assert eat(w.sb) == [b"%d" % n * 100 for n in range(5)]


def test_a_forged_record_opens_nothing_ever_after() -> None:
    w = World().connect()
    records = w.lb._records
    assert isinstance(records, Records)
    good = w.la._records.wrap(b"fine", 1.0)  # type: ignore[union-attr]
    with pytest.raises(SealError):
        unsealed(records, good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(SealError):
        unsealed(records, good)
