"""A record that was lost is there again at the next renewal (the registry's part of case HPC-070)."""

import shutil

import pytest

from hermes_peer.access.home import Home
from hermes_peer.access.trust import Trust, add_pin
from hermes_peer.errors import UsageError
from hermes_peer.registry.folder import FolderRegistry
from hermes_peer.registry.presence import Presence
from hermes_peer.registry.view import View

from .conftest import NOW, record_of


@pytest.fixture
def listed(tmp_path, keys):
    home = Home.open(tmp_path / "home")
    add_pin(home, keys[0].hex, "worker")
    registry = FolderRegistry(home.registry_dir)
    presence = Presence(registry, keys[0], lambda: record_of(keys[0], lease_s=6.0, load=4))
    return home, registry, presence, View(registry, Trust(home))


def test_renewed_at_a_third_of_the_lease(listed, keys):
    _, _, presence, view = listed
    now, seen = NOW, []
    for _ in range(5):
        delay = presence.renew(now)
        assert delay == 2.0
        (record,) = view.lookup("worker", now + 5.9)
        seen.append(record.seq)
        now += delay
    assert seen == sorted(set(seen)) and record.load == 4 and record.issued_ms == int((now - 2) * 1000)
    assert view.lookup("worker", now + 10) == []
    presence.withdraw()
    assert view.all(now) == [] and presence.problem is None


def test_a_lost_registry_has_us_back(listed):
    home, _, presence, view = listed
    presence.renew(NOW)
    shutil.rmtree(home.registry_dir)
    assert view.lookup("worker", NOW + 1) == []
    presence.renew(NOW + 2)
    assert len(view.lookup("worker", NOW + 2)) == 1
    # The process slept for longer than the lease, and its clock says so.
    assert view.lookup("worker", NOW + 60) == []
    presence.renew(NOW + 60)
    assert len(view.lookup("worker", NOW + 60)) == 1


def test_an_outage_is_told_once_and_tried_more_often(listed, monkeypatch):
    _, registry, presence, view = listed
    presence.renew(NOW)

    def away(*_):
        raise OSError(111, "Connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "announce", away)
        patch.setattr(registry, "withdraw", away)
        for second in range(10):
            assert presence.renew(NOW + second) == pytest.approx(0.2)
            assert presence.problem == "The registry does not take our record (Connection refused)."
        presence.withdraw()
        assert presence.problem == "The registry does not answer (Connection refused)."
        assert view.lookup("worker", NOW + 9) == []
    presence.renew(NOW + 10)
    assert presence.problem is None and len(view.all(NOW + 10)) == 1


def test_a_restart_needs_no_memory(listed, keys):
    _, registry, presence, view = listed
    for _ in range(3):
        presence.renew(NOW)
    first = view.lookup("worker", NOW)[0].seq
    again = Presence(registry, keys[0], lambda: record_of(keys[0]))
    assert again.renew(NOW + 1) == 20.0
    assert view.lookup("worker", NOW + 1)[0].seq > first


def test_a_wrong_record_is_our_own_mistake(listed, keys):
    _, registry, _, _ = listed
    with pytest.raises(UsageError, match="cannot be signed"):
        Presence(registry, keys[0], lambda: record_of(keys[0], addresses=["nowhere"])).renew(NOW)
