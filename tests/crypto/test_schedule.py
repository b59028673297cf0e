"""Key schedule: against the second implementation, and what each derived value depends on."""

from __future__ import annotations

import hashlib

import pytest

from hermes_peer.crypto import schedule as s
from hermes_peer.crypto.handshake import host_tag, resume_id

from . import other
from .rig import run_of


@pytest.mark.parametrize("n", [12, 16, 32])
@pytest.mark.parametrize("context", [b"", b"c", bytes(32)])
def test_expand_is_hkdf_with_label_and_length(n: int, context: bytes) -> None:
    assert s.expand(run_of(1), b"label", context, n) == other.X(run_of(1), b"label", context, n)
    assert s.expand(run_of(1), b"label", context, n) != s.expand(run_of(1), b"labem", context, n)


def test_extract_and_mac() -> None:
    assert s.extract(run_of(1), b"x") == s.mac(run_of(1), b"x") == other.HM(run_of(1), b"x")


def test_transcript_is_not_ambiguous() -> None:
    seen = set()
    for pieces in ((b"ab",), (b"a", b"b"), (b"", b"ab"), (b"ab", b"")):
        t = s.Transcript(b"")
        for piece in pieces:
            t.mix(piece)
        seen.add(t.value)
    assert len(seen) == 4
    assert s.Transcript(b"").value == hashlib.sha256(b"hermes-link/1\0\0").digest()
    assert s.Transcript(b"quic").value != s.Transcript(b"").value


def test_every_secret_is_another_and_depends_on_every_input() -> None:
    base = (run_of(1), run_of(2), run_of(3), run_of(4))

    def all_of(realm: bytes, psk: bytes, shared: bytes, th: bytes) -> list[bytes]:
        k = s.handshake_keys(realm, psk, shared, th)
        return [k.dialler, k.acceptor, k.master]

    first = all_of(*base)
    assert len(set(first)) == 3
    for i in range(4):
        changed = [run_of(9) if i == j else x for j, x in enumerate(base)]
        same = [x == y for x, y in zip(first, all_of(*changed), strict=True)]
        assert same == [False, False, i == 3]  # master is bound to the transcript later, by traffic_keys
    t = s.traffic_keys(run_of(1), run_of(2))
    u = s.traffic_keys(run_of(1), run_of(3))
    values = [x for k in (t, u) for x in (k.dialler, k.acceptor, k.exporter, k.psk)]
    assert len(set(values)) == 8


def test_secrets_are_not_shown() -> None:
    for thing in (s.handshake_keys(*[run_of(1)] * 4), s.traffic_keys(run_of(1), run_of(2))):
        assert str(thing).count("\\x") == 0 and "b'" not in repr(thing)


def test_resume_ids_differ_by_side_and_attempt() -> None:
    ids = {resume_id(run_of(1), side, n) for side in (True, False) for n in range(8)}
    assert len(ids) == 16 and {len(x) for x in ids} == {16}
    assert resume_id(run_of(1), True, 8) == resume_id(run_of(1), True, 0)
    assert resume_id(run_of(1), True, 3) == other.X(run_of(1), b"resume id", b"\1\3", 16)
    assert resume_id(run_of(1), False, 9) == other.X(run_of(1), b"resume id", b"\2\1", 16)


def test_host_tag_is_blinded_by_link_and_role() -> None:
    args = (run_of(1), bytes(32), run_of(3, 16), 1)
    assert host_tag(*args) == other.HM(run_of(1), b"hermes host" + bytes(32) + run_of(3, 16) + b"\1")[:16]
    others = [
        (run_of(2), *args[1:]),
        (args[0], run_of(5), *args[2:]),
        (*args[:2], run_of(4, 16), 1),
        (*args[:3], 2),
    ]
    assert len({host_tag(*args)} | {host_tag(*x) for x in others}) == 5
