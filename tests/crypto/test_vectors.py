"""The published vectors: fresh, and readable without our code."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hermes_peer.crypto.seal import Opener

from . import vectors
from .other import Other

FILE: dict[str, Any] = json.loads(vectors.PATH.read_text())


def raw(part: str, name: str) -> bytes:
    return bytes.fromhex(FILE[part][name])


def test_the_file_is_fresh() -> None:
    assert vectors.PATH.read_text() == vectors.text(vectors.build(vectors.stored_ct()))


def test_a_new_ciphertext_changes_nothing_but_what_follows_from_it() -> None:
    other = vectors.build(None)
    assert {k: v for k, v in other.items() if k != "suite_1"} == {k: v for k, v in FILE.items() if k != "suite_1"}
    one, two = other["suite_1"], FILE["suite_1"]
    assert one["hello"] == two["hello"] and one["mlkem_ct"] != two["mlkem_ct"]


def test_suite_2_is_the_vector_of_the_note() -> None:
    known = "52005d383dd352144f5c793081aa34242e7dae2c72a814205245dd32014f7192"
    assert hashlib.sha256(raw("suite_2", "welcome")).hexdigest() == known
    assert FILE["suite_2"]["th0"] == "379175a3f0a5a8a01833a0682d886fcc253c301cab28b094bd185c54f1509d59"
    assert FILE["suite_2"]["th1"] == "42dbf403f9f4b91ff4268d5b99121362bec727cdc5120d624f18f8e78901b8d4"
    assert FILE["suite_2"]["shared"] == "dcd77236231add34de0561c47859a65d304f2a8550e8df98df053cf5dfabea0b"
    assert FILE["suite_2"]["next_psk"] == "d30a47a30e98a249abfc63ca45648ff590db9634c05379f2c0fecf661b8b2938"


@pytest.mark.parametrize("part", ["suite_2", "suite_1", "resumed"])
def test_a_dialler_of_another_make_reproduces_ready(part: str) -> None:
    v = FILE[part]
    me = Other(
        raw(part, "dialler_seed"),
        ephemeral=raw(part, "dialler_ephemeral"),
        random=raw(part, "dialler_random"),
        realm=raw(part, "realm"),
        psk=raw(part, "psk"),
    )
    me.kem_private = MLKEM768PrivateKey.from_seed_bytes(raw(part, "mlkem_seed")) if "mlkem_seed" in v else None
    ek = raw(part, "mlkem_ek") if "mlkem_ek" in v else b""
    hello = me.hello(
        raw(part, "acceptor_fingerprint"), suites=tuple(v["suites_offered"]), ek=ek, rid=raw(part, "resume_id")
    )
    assert hello == raw(part, "hello")
    ready = me.ready(raw(part, "welcome"), caps=raw(part, "dialler_caps"), time=v["dialler_time_ms"])
    assert ready == raw(part, "ready")
    assert me.next_psk == raw(part, "next_psk")


def test_ciphertext_is_of_the_stored_key() -> None:
    key = MLKEM768PrivateKey.from_seed_bytes(raw("suite_1", "mlkem_seed"))
    assert key.decapsulate(raw("suite_1", "mlkem_ct")) == raw("suite_1", "mlkem_shared")
    assert raw("suite_1", "shared").startswith(raw("suite_1", "mlkem_shared"))


def test_records_open_with_and_without_our_code() -> None:
    opener, epoch = Opener(raw("sealed", "secret")), 0
    for step in FILE["sealed"]["records"]:
        if step["rekeys_before"] > epoch:
            opener.rekey(0)
            epoch += 1
        record, plain = bytes.fromhex(step["record"]), bytes.fromhex(step["plain"])
        assert opener.open(record[:19], record[19:]) == plain
        nonce = (int(step["iv"], 16) ^ step["counter"]).to_bytes(12, "big")
        cipher = AESGCM(bytes.fromhex(step["key"]))
        assert cipher.decrypt(nonce, record[19:], bytes.fromhex(step["header"])) == plain
    assert epoch == 1
