"""Records: layout, order, limits, and nonces that never repeat."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.crypto import seal
from hermes_peer.crypto.seal import MAX_PLAIN, Opener, Sealer, SealError
from hermes_peer.errors import UsageError

from .other import X
from .rig import flips, run_of

SECRET = run_of(0x21)


def halves(record: bytes) -> tuple[bytes, bytes]:
    return record[:19], record[19:]


def refused(opener: Opener, record: bytes, *reasons: str) -> SealError:
    """The record is refused, and so is everything after it."""
    with pytest.raises(SealError) as caught:
        opener.open(*halves(record))
    assert not reasons or caught.value.reason in reasons, caught.value.reason
    for step in (lambda: opener.open(*halves(Sealer(SECRET).seal(b"x"))), lambda: opener.rekey(10**9)):
        with pytest.raises(SealError):
            step()
    return caught.value


def test_a_record_is_a_sealed_frame() -> None:
    record = Sealer(SECRET).seal(b"hermes")
    head = b"HRMP" + bytes([1, 5, 0]) + bytes(4) + bytes(4) + (22).to_bytes(4, "big")
    cipher = AESGCM(X(SECRET, b"key"))
    assert record == head + cipher.encrypt(X(SECRET, b"iv", n=12), b"hermes", head)


def test_the_counter_is_in_header_and_nonce() -> None:
    sealer = Sealer(SECRET)
    sealer.records = 0x0102
    record = sealer.seal(b"hermes")
    assert record[11:15] == b"\0\0\1\2"
    iv = bytearray(X(SECRET, b"iv", n=12))
    iv[10] ^= 1
    iv[11] ^= 2
    assert AESGCM(X(SECRET, b"key")).decrypt(bytes(iv), record[19:], record[:19]) == b"hermes"


@given(st.lists(st.binary(max_size=300), max_size=20), st.sets(st.integers(0, 20)))
def test_all_that_is_sealed_opens_in_order(texts: list[bytes], rekeys: set[int]) -> None:
    sealer, opener = Sealer(SECRET), Opener(SECRET, rekey_interval_ms=0)
    for n, text in enumerate(texts):
        header, body = halves(sealer.seal(text))
        assert opener.open(memoryview(header), memoryview(body)) == text
        assert (sealer.records, sealer.bytes) == (opener.records, opener.bytes)
        if n in rekeys:
            sealer.rekey(n)
            opener.rekey(n)
            assert sealer.records == opener.records == sealer.bytes == opener.bytes == 0


def test_sizes() -> None:
    sealer, opener = Sealer(SECRET), Opener(SECRET)
    for size in (0, 1, MAX_PLAIN):
        assert opener.open(*halves(sealer.seal(bytes(size)))) == bytes(size)
    with pytest.raises(ValueError, match="65536"):
        sealer.seal(bytes(MAX_PLAIN + 1))
    assert opener.open(*halves(sealer.seal(b"goes on"))) == b"goes on"
    for size in (0, 15, MAX_PLAIN + 17):
        head = b"HRMP\1\5\0" + bytes(8) + size.to_bytes(4, "big")
        refused(Opener(SECRET), head + bytes(size), "length")


def test_rekey_is_the_ratchet_of_the_spec() -> None:
    sealer = Sealer(SECRET)
    before = sealer.seal(b"hermes")
    sealer.rekey()
    after = sealer.seal(b"hermes")
    assert after == Sealer(X(SECRET, b"upd")).seal(b"hermes") != before


@pytest.mark.attack(25)
def test_attack_25_every_bit_of_a_record() -> None:
    record = Sealer(SECRET).seal(b"hermes")
    for bit, wrong in flips(record):
        refused(Opener(SECRET), wrong, "header" if bit < 19 * 8 else "tag")


@pytest.mark.attack(25)
@pytest.mark.parametrize(
    ("taken", "wrong"), [([], 1), ([], 2), ([0], 0), ([0], 2), ([0, 1], 0), ([0, 1], 1), ([0, 1, 2], 2)]
)
def test_attack_25_drop_reorder_duplicate(taken: list[int], wrong: int) -> None:
    sealer, opener = Sealer(SECRET), Opener(SECRET)
    records = [sealer.seal(bytes([n])) for n in range(3)]
    for n in taken:
        assert opener.open(*halves(records[n])) == bytes([n])
    refused(opener, records[wrong], "header")


@pytest.mark.attack(25)
def test_attack_25_the_sequence_made_right_again_does_not_help() -> None:
    sealer, opener = Sealer(SECRET), Opener(SECRET)
    sealer.seal(b"dropped")
    record = sealer.seal(b"second")
    refused(opener, record[:11] + bytes(4) + record[15:], "tag")


@pytest.mark.attack(25)
def test_attack_25_truncation() -> None:
    record = Sealer(SECRET).seal(b"hermes")
    for n in range(19, len(record)):
        refused(Opener(SECRET), record[:n], "header", "length")
        right = record[:15] + (n - 19).to_bytes(4, "big") + record[19:n]
        refused(Opener(SECRET), right, "tag", "length")
    refused(Opener(SECRET), record + b"\0", "header")
    for n in range(19):
        with pytest.raises(SealError):
            Opener(SECRET).open(record[:n], record[19:])


@pytest.mark.attack(22)
def test_attack_22_records_of_another_key_direction_or_time() -> None:
    refused(Opener(run_of(0x22)), Sealer(SECRET).seal(b"x"), "tag")
    sealer, opener = Sealer(SECRET), Opener(SECRET)
    old = sealer.seal(b"x")
    opener.open(*halves(old))
    opener.rekey(0)
    refused(opener, old, "tag")
    opener = Opener(SECRET)
    sealer.rekey()
    refused(opener, sealer.seal(b"x"), "tag")


@pytest.mark.attack(24)
def test_attack_24_key_and_nonce_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[bytes, bytes]] = set()

    class Watched:
        def __init__(self, key: bytes) -> None:
            self.key = key

        def encrypt(self, nonce: bytes, plain: bytes, aad: bytes) -> bytes:
            assert len(self.key) == 32 and len(nonce) == 12
            assert (self.key, nonce) not in seen
            seen.add((self.key, nonce))
            return plain + bytes(16)

        decrypt = encrypt

    monkeypatch.setattr(seal, "AESGCM", Watched)
    for secret in (run_of(1), run_of(2)):
        sealer = Sealer(secret)
        for n in range(60_000):
            if n % 7001 == 7000:
                sealer.rekey()
            if n % 997 == 0:
                with pytest.raises(ValueError):
                    sealer.seal(bytes(MAX_PLAIN + 1))
            sealer.seal(b"")
    assert len(seen) == 120_000


@pytest.mark.attack(24)
def test_attack_24_a_failed_seal_spends_its_nonce() -> None:
    sealer = Sealer(SECRET)
    with pytest.raises(TypeError):
        sealer.seal([1, 2])  # type: ignore[arg-type]
    assert sealer.records == 1
    assert sealer.seal(b"x")[11:15] == b"\0\0\0\1"


@pytest.mark.attack(26)
def test_attack_26_when_the_sender_is_due() -> None:
    sealer = Sealer(SECRET, started=1000)
    assert not sealer.due(1000) and not sealer.due(3_600_999) and sealer.due(3_601_000)
    sealer.records = 2**20 - 1
    assert not sealer.due(1000)
    sealer.seal(b"")
    assert sealer.due(1000)
    sealer.rekey(5000)
    assert not sealer.due(3_604_999) and sealer.due(3_605_000)
    sealer.bytes = 16 * 2**30 - 1
    assert not sealer.due(5000)
    sealer.seal(b"x")
    assert sealer.due(5000)
    sealer.rekey()
    assert not sealer.due(9000) and not sealer.due(3_608_999) and sealer.due(3_609_000)


@pytest.mark.attack(26)
def test_attack_26_what_neither_side_goes_beyond() -> None:
    for name, last in (("records", 2**23), ("bytes", 64 * 2**30)):
        sealer, opener = Sealer(SECRET), Opener(SECRET)
        setattr(sealer, name, last)
        with pytest.raises(UsageError, match="rekeyed"):
            sealer.seal(b"x")
        sealer.rekey()
        sealer.seal(b"x")
        setattr(opener, name, last - 1)
        maker = Sealer(SECRET)
        maker.records = opener.records
        if name == "bytes":
            opener.open(*halves(maker.seal(b"x")))
            refused(opener, maker.seal(b"x"), "limit")
        else:
            opener.open(*halves(maker.seal(b"x")))
            head = b"HRMP\1\5\0" + bytes(4) + last.to_bytes(4, "big") + (17).to_bytes(4, "big")
            refused(opener, head + bytes(17), "limit")


@pytest.mark.attack(26)
def test_attack_26_one_rekey_a_second() -> None:
    opener = Opener(SECRET)
    opener.rekey(5000)
    opener.rekey(6000)
    with pytest.raises(SealError) as caught:
        opener.rekey(6999)
    assert caught.value.reason == "rekey"
    for step in (lambda: opener.rekey(99_999), lambda: opener.open(*halves(Sealer(SECRET).seal(b"x")))):
        with pytest.raises(SealError):
            step()
    patient = Opener(SECRET, rekey_interval_ms=10)
    patient.rekey(0)
    patient.rekey(10)
    with pytest.raises(SealError):
        patient.rekey(19)


@pytest.mark.attack(27)
def test_attack_27_no_plaintext_after_a_bad_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decryptor that leaves its plaintext lying about, as `decrypt_into` does."""
    secret_text = b"unauthenticated plaintext, seen by nobody"

    class Leaky:
        def __init__(self, key: bytes) -> None:
            pass

        def encrypt(self, *_: Any) -> bytes:
            return bytes(17)

        def decrypt(self, nonce: bytes, body: bytes, aad: bytes) -> bytes:
            self.left = bytearray(secret_text)
            raise InvalidTag(self.left)

        def decrypt_into(self, *_: Any) -> int:
            raise AssertionError("hands out a buffer that is not yet authenticated")

    record = Sealer(SECRET).seal(secret_text)
    monkeypatch.setattr(seal, "AESGCM", Leaky)
    opener = Opener(SECRET)
    error = refused(opener, record, "tag")
    assert secret_text.decode() not in str(error) + repr(error.args)
    assert error.__suppress_context__
    assert not [x for x in gc.get_referents(opener) if isinstance(x, bytes | bytearray) and secret_text in x]
    assert (opener.records, opener.bytes) == (0, 0)
