"""A record is what its own key says of itself, or nothing (attacks 8, 59, 60)."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_peer.crypto.keys import Context
from hermes_peer.errors import UsageError
from hermes_peer.registry.record import Record, check_lease, next_seq, open_record, sign_record

from .conftest import NOW, forged, record_of, signed


def read_record(blob, now):
    record = open_record(blob)
    check_lease(record, now)
    return record


def test_round_trip(keys):
    record = record_of(keys[0], load=3, methods=["text.shout"], seq=2**64 - 1)
    blob = sign_record(keys[0], record)
    assert read_record(blob, NOW) == record and record.fingerprint == keys[0].hex
    assert str(record.places()[0]) == f"hermes://{keys[0].hex}@192.0.2.7:7891"
    data, signature, end = blob.split(b"\n")
    assert end == b"" and len(signature) == 128 and msgspec.json.decode(data)["agent_id"] == "worker"
    assert read_record(blob.removesuffix(b"\n"), NOW) == record


def test_unknown_members_and_another_writer_are_welcome(keys):
    members = {**msgspec.to_builtins(record_of(keys[0])), "cert": "x", "later": [1]}
    pretty = msgspec.json.format(msgspec.json.encode(members), indent=2)
    assert pretty.count(b"\n") > 5 and read_record(forged(keys[0], pretty), NOW) == record_of(keys[0])


@pytest.mark.attack(59)
def test_every_changed_byte_is_noticed(keys):
    blob = signed(keys[0])
    for at in range(len(blob) - 1):
        for bit in (1, 32):
            changed = blob[:at] + bytes([blob[at] ^ bit]) + blob[at + 1 :]
            if changed.lower() == blob.lower() and at > blob.index(b"\n"):
                continue  # a hex digit in the other case is the same signature
            with pytest.raises(ValueError, match=r"^(it|its) "):
                read_record(changed, NOW)


@pytest.mark.attack(59)
def test_swapped_key_address_and_name(keys):
    data, signature = signed(keys[0]).split(b"\n")[:2]
    for old, new in [
        (keys[0].public.hex(), keys[1].public.hex()),
        ("192.0.2.7", "192.0.2.8"),
        ("worker", "banker"),
    ]:
        with pytest.raises(ValueError, match="its signature is wrong"):
            read_record(data.replace(old.encode(), new.encode()) + b"\n" + signature, NOW)
    wrong_context = data + b"\n" + keys[0].sign(Context.MESSAGE, data).hex().encode()
    with pytest.raises(ValueError, match="its signature is wrong"):
        read_record(wrong_context, NOW)
    with pytest.raises(ValueError, match="its address names another key"):
        read_record(forged(keys[0], record_of(keys[0], addresses=[f"hermes://{keys[1].hex}@192.0.2.7:1"])), NOW)


@pytest.mark.attack(8)
def test_a_weak_key_is_refused(keys):
    for weak in ("00" * 32, "01" + "00" * 31, "ff" * 32):
        blob = forged(keys[0], record_of(keys[0], key=weak))
        with pytest.raises(ValueError, match="its key is unusable: "):
            read_record(blob, NOW)


BAD = [
    ({"agent_id": ""}, "its agent_id is empty, longer than 64 characters or not printable"),
    ({"agent_id": "x" * 65}, "its agent_id is empty, longer than 64"),
    ({"agent_id": "a\nb"}, "its agent_id is empty, longer than 64 characters or not printable"),
    ({"instance_id": "\x1b"}, "its instance_id is empty"),
    ({"key": "AB" * 32}, "its key is not 64 lower-case hex digits"),
    ({"key": "ab" * 31}, "its key is not 64"),
    ({"key": " ".join(["ab"] * 32)}, "its key is not 64"),
    ({"key": "é" * 64}, "its key is not 64"),
    ({"addresses": ["http://x"]}, "'http://x' is not an address"),
    ({"addresses": ["hermes://h"] * 17}, "it has more than 16 entries of the kind address"),
    ({"capabilities": ["x"] * 257}, "more than 256 entries of the kind capability"),
    ({"methods": ["x"] * 1025}, "more than 1024 entries of the kind method"),
    ({"capabilities": [""]}, "its capability is empty"),
    ({"seq": -1}, "its seq is not a 64-bit number"),
    ({"seq": 2**64}, "its seq is not a 64-bit number"),
    ({"issued_ms": 2**53}, "issued_ms or load is out of range"),
    ({"load": -1}, "issued_ms or load is out of range"),
    ({"lease_s": 0.0}, "its lease is not between 0 and 86,400 s"),
    ({"lease_s": 86_401.0}, "its lease is not between"),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_every_rule_holds_for_reader_and_signer(keys, change, reason):
    with pytest.raises(ValueError) as error:
        read_record(forged(keys[0], record_of(keys[0], **change)), NOW)
    assert reason in str(error.value)
    if "key" not in change:
        with pytest.raises(UsageError, match="The registry record cannot be signed: "):
            signed(keys[0], **change)


def test_wrong_types_and_shapes(keys):
    good = msgspec.to_builtins(record_of(keys[0]))
    for change in ({"seq": "1"}, {"seq": 1.5}, {"lease_s": "60"}, {"addresses": "x"}, {"methods": None}, {"key": 7}):
        with pytest.raises(ValueError, match="it cannot be read: "):
            read_record(forged(keys[0], {**good, **change}), NOW)
    for missing in ("key", "seq", "lease_s", "addresses"):
        with pytest.raises(ValueError, match=f"missing required field `{missing}`"):
            read_record(forged(keys[0], {k: v for k, v in good.items() if k != missing}), NOW)
    for data in (b"[]", b"null", b"{", b"\xff", b"[" * 30_000, b'{"lease_s": 1e999}', b'{"lease_s": NaN}'):
        with pytest.raises(ValueError, match="it cannot be read: "):
            read_record(forged(keys[0], data), NOW)
    for blob in (b"", b"\n", b"x" * 128, b"{}\n", b"{}\n" + b"0" * 127):
        with pytest.raises(ValueError, match="it is not a line of JSON and a line with a signature"):
            read_record(blob, NOW)
    with pytest.raises(ValueError, match="it cannot be read: "):
        read_record(b"{}\n" + b"z" * 128, NOW)
    with pytest.raises(ValueError, match="it is larger than 64 KiB"):
        read_record(signed(keys[0]) + b"x" * 65536, NOW)
    with pytest.raises(UsageError, match="The registry record is larger than 64 KiB"):
        signed(keys[0], methods=["m" * 250] * 1000)


def test_another_ones_key_cannot_be_signed(keys):
    with pytest.raises(UsageError, match="The record's key is not the key that signs it"):
        sign_record(keys[1], record_of(keys[0]))


@pytest.mark.attack(60)
def test_leases(keys):
    blob = signed(keys[0])
    assert read_record(blob, NOW + 59.9) and read_record(blob, NOW - 299)
    with pytest.raises(ValueError, match="its lease ended 40 s ago"):
        read_record(blob, NOW + 100)
    with pytest.raises(ValueError, match="its lease ended 0 s ago"):
        read_record(blob, NOW + 60)
    with pytest.raises(ValueError, match="it was issued in the future: a clock is wrong"):
        read_record(blob, NOW - 301)
    assert open_record(blob).expires == NOW + 60


def test_numbers_rise_over_restarts():
    assert next_seq(0, 5.0) == 5000 and next_seq(5000, 5.0) == 5001 and next_seq(9000, 5.0) == 9001


@settings(max_examples=300)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_record_or_a_value_error(data, tail):
    try:
        read_record(data + (b"\n" + b"0" * 128 if tail else b""), NOW)
    except ValueError:
        pass
    else:
        raise AssertionError("nobody signed this")


def test_a_record_cannot_be_changed(keys):
    with pytest.raises(AttributeError):
        record_of(keys[0]).seq = 2
    assert isinstance(record_of(keys[0]), Record)
