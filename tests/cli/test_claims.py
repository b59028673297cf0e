"""`claims`: an id or a key belongs to one slot, whoever asks first and however many ask at once."""

from __future__ import annotations

import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hermes_peer.cli import claims
from hermes_peer.errors import UsageError


def test_the_first_one_has_it_for_good(tmp_path: Path) -> None:
    names = claims.names_of("order-17", "")
    assert names == ["id:order-17"] and claims.names_of("", "") == []
    assert claims.slot_of(tmp_path, names) is None
    assert claims.claim(tmp_path, names, 2) == 2
    assert claims.claim(tmp_path, names, 1) == 2
    assert claims.slot_of(tmp_path, names) == 2
    assert claims.slot_of(tmp_path, claims.names_of("", "order-17")) is None  # a key is not an id
    assert stat.S_IMODE((tmp_path / claims.FILE).stat().st_mode) == 0o600


def test_no_name_no_file(tmp_path: Path) -> None:
    assert claims.slot_of(tmp_path, []) is None and claims.claim(tmp_path, [], 3) == 3
    assert not list(tmp_path.iterdir())


def test_one_of_many_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        had = list(pool.map(lambda number: claims.claim(tmp_path, ["id:a"], number), range(1, 33)))
    assert len(set(had)) == 1


def test_a_key_brings_a_new_id_to_its_slot_and_two_works_are_not_joined(tmp_path: Path) -> None:
    assert claims.claim(tmp_path, claims.names_of("cart-1", "cart 9"), 2) == 2
    assert claims.claim(tmp_path, claims.names_of("cart-2", "cart 9"), 1) == 2
    assert claims.slot_of(tmp_path, ["id:cart-2"]) == 2
    assert claims.claim(tmp_path, claims.names_of("other", ""), 1) == 1
    with pytest.raises(UsageError, match="this id and this key were used for two works already"):
        claims.claim(tmp_path, claims.names_of("other", "cart 9"), 1)
    assert claims.slot_of(tmp_path, ["id:other"]) == 1


def test_what_was_long_ago_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims.claim(tmp_path, ["id:old"], 2)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + claims.KEPT_S + 10)
    claims.claim(tmp_path, ["id:new"], 1)
    assert claims.slot_of(tmp_path, ["id:old"]) is None


def test_a_damaged_file_and_one_that_is_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / claims.FILE
    file.write_bytes(b"no database" * 100)
    with pytest.raises(UsageError, match=r"ids\.db cannot be used \(file is not a database\), and without it"):
        claims.claim(tmp_path, ["id:a"], 1)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"ids\.db cannot be used"):
        claims.claim(tmp_path, ["id:a"], 1)
    assert not (tmp_path / "elsewhere").exists()
