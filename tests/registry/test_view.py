"""A registry never gives authority (attacks 58, 59, 60)."""

import os

import pytest

from hermes_peer.access.home import Home
from hermes_peer.access.trust import Trust, add_pin, deny
from hermes_peer.crypto.keys import Identity
from hermes_peer.registry import view as module
from hermes_peer.registry.folder import FolderRegistry
from hermes_peer.registry.view import View

from .conftest import NOW, forged, record_of, signed


class Served:
    """An evil registry: it answers whatever it was told to, to whoever asks for whatever."""

    def __init__(self, *blobs):
        self.blobs = list(blobs)

    def announce(self, blob, fingerprint): ...

    def withdraw(self, fingerprint): ...

    def find(self, name=None, capability=None):
        return list(self.blobs)


@pytest.fixture
def home(tmp_path, keys):
    home = Home.open(tmp_path / "home")
    add_pin(home, keys[0].hex, "worker")
    add_pin(home, keys[1].hex, "worker")
    add_pin(home, keys[2].hex, "planner")
    return home


@pytest.fixture
def view(home):
    return lambda *blobs: View(Served(*blobs), Trust(home))


def ids(records):
    return [record.fingerprint for record in records]


def test_look_ups(home, keys):
    registry = FolderRegistry(home.registry_dir)
    view = View(registry, Trust(home))
    assert view.lookup("worker", NOW) == [] and view.all(NOW) == []
    registry.announce(signed(keys[0], load=5), keys[0].hex)
    registry.announce(signed(keys[1], load=2, capabilities=["text", "fast"]), keys[1].hex)
    registry.announce(signed(keys[2], "planner", load=9), keys[2].hex)
    assert ids(view.lookup("worker", NOW)) == [keys[1].hex, keys[0].hex], "least loaded first"
    assert ids(view.capability("fast", NOW)) == [keys[1].hex]
    assert ids(view.all(NOW)) == [keys[1].hex, keys[0].hex, keys[2].hex]
    assert view.lookup("nobody", NOW) == [] and view.capability("none", NOW) == [] and view.refused == []
    registry.announce(signed(keys[0], load=1, seq=2), keys[0].hex)
    assert ids(view.lookup("worker", NOW)) == [keys[0].hex, keys[1].hex]
    assert view.lookup("worker", NOW + 61) == [] and "its lease ended 1 s ago" in view.refused[0]


@pytest.mark.attack(58)
def test_a_claimed_name_counts_only_if_granted(view, keys):
    stranger = Identity.generate(os.urandom)
    seen = view(signed(stranger, "worker"), signed(keys[2], "worker"), signed(keys[0], "worker"))
    assert ids(seen.lookup("worker", NOW)) == [keys[0].hex]
    assert seen.refused == [
        f"The record of 'worker' ({stranger.hex[:16]}…) was left out: its key is not trusted.",
        f"The record of 'worker' ({keys[2].hex[:16]}…) was left out: its key is not granted that name.",
    ]
    assert ids(seen.all(NOW)) == [keys[0].hex] and ids(seen.capability("text", NOW)) == [keys[0].hex]


@pytest.mark.attack(59)
def test_an_evil_registry_cannot_swap_anything(view, keys):
    data, signature = signed(keys[0]).split(b"\n")[:2]
    swapped = [
        data.replace(keys[0].public.hex().encode(), keys[1].public.hex().encode()) + b"\n" + signature,
        data.replace(b"192.0.2.7", b"192.0.2.9") + b"\n" + signature,
        data.replace(b"worker", b"banker") + b"\n" + signature,
        data + b"\n" + signed(keys[1]).split(b"\n")[1],
        b"junk",
    ]
    seen = view(*swapped)
    assert seen.all(NOW) == [] and len(seen.refused) == 5
    assert all(each.startswith("A record was left out: it") and each.endswith(".") for each in seen.refused)
    # What was not asked for is not taken either, be it signed as well as it may.
    assert view(signed(keys[2], "planner")).lookup("worker", NOW) == []
    assert view(signed(keys[2], "planner")).capability("other", NOW) == []


@pytest.mark.attack(60)
def test_a_rolled_back_record_is_refused(view, keys):
    old, new = signed(keys[0], seq=7, load=1), signed(keys[0], seq=8, addresses=["hermes://192.0.2.8:1"])
    for both in ([old, new], [new, old]):
        (found,) = view(*both).lookup("worker", NOW)
        assert found.seq == 8
    seen = view(new)
    assert seen.lookup("worker", NOW)[0].seq == 8
    seen._registry.blobs = [old]
    assert seen.lookup("worker", NOW) == []
    assert seen.refused == [
        f"The record of 'worker' ({keys[0].hex[:16]}…) was left out: a newer one was seen (rolled back?)."
    ]
    # Neither does the end of the newer one's lease bring the older one back.
    short, long = signed(keys[0], seq=9, lease_s=10.0), signed(keys[0], seq=8, lease_s=1000.0)
    for both in ([long, short], [short, long]):
        assert view(*both).lookup("worker", NOW + 20) == []


@pytest.mark.attack(60)
def test_a_strangers_number_locks_nobody_out(view, keys):
    stranger = Identity.generate(os.urandom)
    blob = forged(stranger, record_of(keys[0], seq=2**64 - 1))
    seen = view(blob, signed(stranger, "worker", seq=2**64 - 1), signed(keys[0], seq=1))
    assert ids(seen.lookup("worker", NOW)) == [keys[0].hex]


@pytest.mark.attack(12)
def test_a_denied_key_vanishes_at_the_next_look(home, keys):
    trust = Trust(home)
    view = View(Served(signed(keys[0]), signed(keys[1])), trust)
    assert len(view.lookup("worker", NOW)) == 2
    deny(home, keys[0].hex, "stolen")
    trust.reload_if_changed()
    assert ids(view.lookup("worker", NOW)) == [keys[1].hex]


def test_known_records_are_not_verified_again(home, keys, monkeypatch):
    registry = FolderRegistry(home.registry_dir)
    registry.announce(signed(keys[0]), keys[0].hex)
    view = View(registry, Trust(home))
    assert view.lookup("worker", NOW)
    real = module.open_record
    monkeypatch.setattr(module, "open_record", None)
    assert view.lookup("worker", NOW) and view.all(NOW)
    monkeypatch.setattr(module, "open_record", real)
    monkeypatch.setattr(module, "CACHE_MAX", 2)
    for seq in range(2, 12):
        registry.announce(signed(keys[0], seq=seq), keys[0].hex)
        assert view.lookup("worker", NOW)[0].seq == seq
        assert len(view._opened) <= 2


def test_a_registry_that_is_away_is_told(home):
    class Away(Served):
        def find(self, name=None, capability=None):
            raise ConnectionRefusedError

    with pytest.raises(OSError):
        View(Away(), Trust(home)).lookup("worker", NOW)
