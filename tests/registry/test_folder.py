"""The folder back end keeps the contract, and its folder survives junk, links and races."""

import os
import stat
import threading

import pytest

from hermes_peer.errors import UsageError
from hermes_peer.registry.folder import FolderRegistry
from hermes_peer.testing.contracts import check_registry

from .conftest import signed


def test_the_contract(tmp_path):
    numbers = iter(range(100))
    check_registry(lambda: FolderRegistry(tmp_path / str(next(numbers))))


class Forgetful(FolderRegistry):
    def withdraw(self, fingerprint):
        self._file(fingerprint)


class Prefix(FolderRegistry):
    def find(self, name=None, capability=None):
        return [each for each in super().find(None, capability) if name is None or b'"' + name.encode() in each]


class Trusting(FolderRegistry):
    def _file(self, fingerprint):
        return self.path / (fingerprint.replace("/", "_").replace("\0", "_") + ".record")


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Forgetful, "withdraw must remove that key's record"),
        (Prefix, "a name must match whole"),
        (Trusting, "the malformed fingerprint '' must be refused with UsageError"),
    ],
)
def test_the_contract_finds_broken_back_ends(tmp_path, broken, sentence):
    numbers = iter(range(100))
    with pytest.raises(AssertionError, match=sentence):
        check_registry(lambda: broken(tmp_path / str(next(numbers))))


def test_two_processes_views_of_one_folder(tmp_path, keys):
    one, two = FolderRegistry(tmp_path / "r"), FolderRegistry(tmp_path / "r")
    assert two.find() == []
    for seq in range(1, 20):
        blob = signed(keys[0], seq=seq)
        one.announce(blob, keys[0].hex)
        assert two.find(name="worker") == [blob]
    one.withdraw(keys[0].hex)
    assert two.find() == []


def test_modes(tmp_path, keys):
    old = os.umask(0)
    try:
        FolderRegistry(tmp_path / "r").announce(signed(keys[0]), keys[0].hex)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700
    (file,) = (tmp_path / "r").iterdir()
    assert file.name == f"{keys[0].hex}.record" and stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.attack(53)
@pytest.mark.parametrize(
    "name", ["../x", "..", "", "a" * 63, "A" * 64, "a" * 64 + "\n", "/etc/passwd", "a\0b", None, "é" * 64]
)
def test_only_a_fingerprint_names_a_file(tmp_path, keys, name):
    registry = FolderRegistry(tmp_path / "r")
    for act in (lambda: registry.announce(signed(keys[0]), name), lambda: registry.withdraw(name)):
        with pytest.raises(UsageError, match="filed under a fingerprint of 64 lower-case hex digits"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_too_large(tmp_path, keys):
    with pytest.raises(UsageError, match="larger than 64 KiB; announce fewer"):
        FolderRegistry(tmp_path / "r").announce(b"x" * 65537, keys[0].hex)


def test_junk_is_ignored(tmp_path, keys):
    registry = FolderRegistry(tmp_path / "r")
    blob = signed(keys[0])
    registry.announce(blob, keys[0].hex)
    folder = tmp_path / "r"
    (folder / "README").write_text("hello")
    (folder / f".{keys[1].hex}.1.2").write_bytes(blob)
    (folder / f"{keys[1].hex}.record~").write_bytes(blob)
    (folder / f"{'A' * 64}.record").write_bytes(blob)
    (folder / f"{'1' * 64}.record").write_bytes(b"\xff\xfe not json")
    (folder / f"{'2' * 64}.record").write_bytes(b"x" * 70_000)
    (folder / f"{'3' * 64}.record").mkdir()
    (folder / f"{'4' * 64}.record").symlink_to(folder / f"{keys[0].hex}.record")
    (folder / f"{'5' * 64}.record").write_bytes(b"")
    (folder / f"{'6' * 64}.record").write_bytes(b"[" * 60_000)
    (folder / f"{'7' * 64}.record").write_bytes(b'{"agent_id": 7, "capabilities": []}\n')
    os.mkfifo(folder / f"{'8' * 64}.record")
    assert registry.find() == [blob] and registry.find(name="worker") == [blob]


def test_unchanged_files_are_not_read_again(tmp_path, keys, monkeypatch):
    registry = FolderRegistry(tmp_path / "r")
    for key in keys:
        registry.announce(signed(key), key.hex)
    assert len(registry.find()) == 3
    monkeypatch.setattr(type(tmp_path), "read_bytes", None)
    assert len(registry.find(name="worker")) == 3


def test_a_failed_write_leaves_nothing(tmp_path, keys, monkeypatch):
    registry = FolderRegistry(tmp_path / "r")
    registry.announce(old := signed(keys[0]), keys[0].hex)

    def full(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        registry.announce(signed(keys[0], seq=2), keys[0].hex)
    assert registry.find() == [old] and len(list((tmp_path / "r").iterdir())) == 1


def test_readers_see_whole_records_only(tmp_path, keys):
    registry, reader = FolderRegistry(tmp_path / "r"), FolderRegistry(tmp_path / "r")
    blobs = {signed(keys[0], seq=1), signed(keys[0], seq=2, methods=["m" * 200] * 100)}
    done = threading.Event()

    def write():
        for _ in range(50):
            for blob in blobs:
                registry.announce(blob, keys[0].hex)
        done.set()

    writer = threading.Thread(target=write)
    registry.announce(next(iter(blobs)), keys[0].hex)
    writer.start()
    while not done.is_set():
        (found,) = reader.find()
        assert found in blobs
    writer.join()
