"""Slots: lowest free, one holder, freed by any death, with a key nobody else can read."""

import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hermes_peer.access import slot as module
from hermes_peer.access.home import Home
from hermes_peer.access.slot import SlotTaken, guest, guest_in, holder_of
from hermes_peer.access.trust import Trust
from hermes_peer.errors import UsageError

HOLD = """
import sys
from hermes_peer.access.home import Home
sys.stdin.readline()
slot = Home.open(sys.argv[1]).slot("worker")
print(slot.number, slot.fingerprint, flush=True)
sys.stdin.readline()
"""


def hold(path, code=HOLD):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def go(*processes):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def end(*processes):
    for process in processes:
        process.kill()
        process.communicate()


def test_lowest_free(home):
    one, two, three = (home.slot("worker") for _ in range(3))
    assert [each.number for each in (one, two, three)] == [1, 2, 3]
    assert len({each.fingerprint for each in (one, two, three)}) == 3
    assert home.slot("planner").number == 1
    two.release()
    two.release()
    assert two.released and not one.released
    with home.slot("worker") as again:
        assert (again.number, again.fingerprint) == (2, two.fingerprint)
    assert again.released
    assert home.slots() == [
        ("planner", 1, home.slots()[0][2], True),
        ("worker", 1, one.fingerprint, True),
        ("worker", 2, two.fingerprint, False),
        ("worker", 3, three.fingerprint, True),
    ]


def test_looking_at_slots_never_takes_one(home):
    home.slot("worker").release()
    for _ in range(3):
        home.slots()
    assert home.slot("worker").number == 1


def test_junk_among_the_slots_is_ignored(home):
    home.slot("worker").release()
    (home.agents_dir / "worker" / "notes").mkdir()
    (home.agents_dir / "worker" / "²").mkdir()
    (home.agents_dir / "Not An Agent").mkdir()
    (home.agents_dir / "file").touch()
    (home.agents_dir / "worker" / "2").mkdir()
    assert [(name, number, locked) for name, number, _, locked in home.slots()] == [
        ("worker", 1, False),
        ("worker", 2, False),
    ]


def test_racing_processes_get_different_slots(home):
    holders = [hold(home.path) for _ in range(8)]
    try:
        go(*holders)
        said = [holder.stdout.readline().split() for holder in holders]
        assert sorted(int(number) for number, _ in said) == list(range(1, 9))
        assert len({fingerprint for _, fingerprint in said}) == 8
        # A killed process frees its slot and nothing else; the next one takes over its key.
        victim = next(holder for holder, (number, _) in zip(holders, said, strict=True) if number == "3")
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        heir = home.slot("worker")
        assert [str(heir.number), heir.fingerprint] == next(each for each in said if each[0] == "3")
    finally:
        end(*holders)


def test_a_child_program_does_not_keep_the_slot(home):
    slot = home.slot("worker")
    child = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        slot.release()
        assert home.slot("worker").number == 1
    finally:
        end(child)


def test_a_forked_child_neither_keeps_nor_frees_the_slot(home):
    code = """
import os, sys, time
from hermes_peer.access.home import Home
slot = Home.open(sys.argv[1]).slot("worker")
child = os.fork()
if child == 0:
    os.write(1, b"released\\n" if slot.released else b"held\\n")
    os.close(1)
    time.sleep(30)
    os._exit(0)
os.write(1, b"%d\\n" % child)
sys.stdin.readline()
"""
    parent = hold(home.path, code)
    child = None
    try:
        number, state = sorted(parent.stdout.readline().strip() for _ in range(2))
        child = int(number)
        assert state == "released"
        assert home.slot("worker").number == 2, "the child freed it"
        end(parent)
        assert home.slot("worker").number == 1, "the child kept it"
    finally:
        end(parent)
        if child is not None:
            os.kill(child, signal.SIGKILL)


@pytest.mark.attack(70)
def test_the_key_is_private_and_whole(home):
    old = os.umask(0)
    try:
        slot = home.slot("worker")
    finally:
        os.umask(old)
    for path in home.path.rglob("*"):
        want = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == want, path
    key = slot.path / "key.pem"
    assert key.read_bytes() == slot.identity.pem() and slot.identity.hex == slot.fingerprint


@pytest.mark.attack(70)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_killed_while_the_key_is_written(home, call):
    code = f"""
import os, sys
from hermes_peer.access.home import Home
home = Home.open(sys.argv[1])
os.{call} = lambda *a: os.kill(os.getpid(), 9)
home.slot("worker")
"""
    maker = hold(home.path, code)
    maker.communicate(timeout=30)
    assert maker.returncode == -signal.SIGKILL
    assert not (home.agents_dir / "worker" / "1" / "key.pem").exists()
    slot = home.slot("worker")
    assert slot.number == 1 and (slot.path / "key.pem").read_bytes() == slot.identity.pem()
    assert not list(slot.path.glob(".*"))


@pytest.mark.attack(70)
def test_bad_keys_are_refused_and_free_the_slot(home, tmp_path):
    slot = home.slot("worker")
    slot.release()
    key = slot.path / "key.pem"
    pem = key.read_bytes()
    key.chmod(0o640)
    with pytest.raises(UsageError, match=rf"Other users can read the key {key} \(mode 0640\); run: chmod 600 {key}"):
        home.slot("worker")
    key.chmod(0o600)
    for bad in (b"", pem[: len(pem) // 2], b"hello", bytes(100)):
        key.write_bytes(bad)
        with pytest.raises(UsageError, match=rf"The key {key} is unusable \(.*\); put a good copy back, or move it"):
            home.slot("worker")
    key.unlink()
    (tmp_path / "elsewhere").write_bytes(pem)
    (tmp_path / "elsewhere").chmod(0o600)
    key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a symbolic link"):
        home.slot("worker")
    key.unlink()
    key.write_bytes(pem)
    key.chmod(0o600)
    again = home.slot("worker")
    assert (again.number, again.fingerprint) == (1, slot.fingerprint)


@pytest.mark.attack(70)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_foreign_key_is_refused(home):
    slot = home.slot("worker")
    slot.release()
    os.chown(slot.path / "key.pem", 54321, -1)
    with pytest.raises(UsageError, match="belongs to user 54321, not to you"):
        home.slot("worker")


def test_a_key_of_the_users_own(home, tmp_path):
    first = home.slot("worker")
    file = tmp_path / "my.pem"
    with pytest.raises(UsageError, match=r"There is no key .*my\.pem; leave secret_key_path= out"):
        home.slot("planner", secret_key_path=file)
    file.write_bytes(first.identity.pem())
    file.chmod(0o644)
    with pytest.raises(UsageError, match="Other users can read the key"):
        home.slot("planner", secret_key_path=file)
    file.chmod(0o600)
    slot = home.slot("planner", secret_key_path=file)
    assert slot.number == 1 and slot.fingerprint == first.fingerprint
    assert not (slot.path / "key.pem").exists()
    assert Trust(home).grant(slot.fingerprint, 0).names == {"worker", "planner"}
    assert ("planner", 1, slot.fingerprint, True) in home.slots()
    file.write_text("nonsense")
    with pytest.raises(UsageError, match=r"is unusable .* or leave secret_key_path= out"):
        home.slot("planner", secret_key_path=file)


def test_agents_of_one_home_trust_each_other(home):
    trust = Trust(home)
    slot = home.slot("worker")
    assert trust.reload_if_changed()
    grant = trust.grant(slot.fingerprint, 0)
    assert grant.allowed and grant.home and grant.names == {"worker"}
    assert grant.source == f"trust.d/{slot.fingerprint}.toml"
    assert trust.pins()[0].slot == 1
    slot.release()
    home.slot("worker")
    assert not trust.reload_if_changed(), "the pin stays, as the key stays, and is not written again"


def test_another_home_trusts_nobody_of_this_one(home, tmp_path):
    slot = home.slot("worker")
    assert not Trust(Home.open(tmp_path / "other")).grant(slot.fingerprint, 0).allowed


def test_a_broken_pin_of_our_own_is_written_anew(home):
    slot = home.slot("worker")
    slot.release()
    pin = home.trust_dir / f"{slot.fingerprint}.toml"
    pin.write_text("[[pin")
    assert not Trust(home).grant(slot.fingerprint, 0).allowed
    home.slot("worker")
    assert Trust(home).grant(slot.fingerprint, 0).allowed


GUEST = """
import sys
from pathlib import Path
from hermes_peer.access.slot import guest
sys.stdin.readline()
with guest(Path(sys.argv[1]) / "agents" / "worker" / "1"):
    print("in", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def visited(home):
    """A home in which worker/1 does not run, and a process that is a guest there."""
    home.slot("worker").release()
    visitor = hold(home.path, GUEST)
    go(visitor)
    assert visitor.stdout.readline() == "in\n"
    yield visitor
    end(visitor)


class Told(logging.Handler):
    """What the slots say, and when the first of it is said."""

    def __init__(self):
        super().__init__()
        self.lines, self.first = [], threading.Event()

    def emit(self, record):
        self.lines.append(record.getMessage())
        self.first.set()


@pytest.fixture
def told():
    handler = Told()
    module.log.addHandler(handler)
    yield handler
    module.log.removeHandler(handler)


@pytest.mark.parametrize("wanted", [None, 1])
def test_an_agent_waits_for_the_end_of_a_guest(home, visited, told, wanted):
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(home.slot, "worker", number=wanted)
        assert told.first.wait(30) and not taking.done()
        go(visited)  # it ends
        assert taking.result(30).number == 1
    assert told.lines == [
        f"worker/1 is in use by a command of yours (process {visited.pid}); it is waited for, 5 s at most"
    ]
    assert not (home.agents_dir / "worker" / "1" / "guest").exists()


def test_an_agent_does_not_wait_for_ever(home, visited, told, monkeypatch):
    monkeypatch.setattr(module, "GUEST_S", 0.1)
    with pytest.raises(SlotTaken, match=rf"worker/1 is in use .*process {visited.pid}\); wait for its end"):
        home.slot("worker", number=1)
    assert home.slot("worker").number == 2
    assert told.lines[-1] == (
        f"worker/1 is in use by a command of yours (process {visited.pid}), so this is worker/2, which knows nothing "
        "of its works"
    )


def test_a_guest_that_was_killed_keeps_nobody_waiting(home, visited, told):
    assert guest_in(home.agents_dir / "worker" / "1") == visited.pid
    end(visited)
    assert home.slot("worker").number == 1
    assert told.lines == []


def test_a_guest_comes_where_nobody_is_and_takes_the_slot(home, told):
    slot = home.slot("worker")
    assert holder_of(slot.path) == os.getpid() and guest_in(slot.path) == 0
    with pytest.raises(SlotTaken, match="worker/1 runs since a moment ago"), guest(slot.path):
        pass
    slot.release()
    with guest(slot.path), home.slot("worker", number=1) as mine:
        assert mine.fingerprint == slot.fingerprint
    assert told.lines == []
    with home.slot("worker") as again:
        assert again.number == 1


def test_one_guest_at_a_time(home, visited):
    with (
        pytest.raises(SlotTaken, match=rf"in use by another command of yours \(process {visited.pid}\)"),
        guest(home.agents_dir / "worker" / "1"),
    ):
        pass


def test_the_end_of_the_slots(home, monkeypatch):
    monkeypatch.setattr(module, "SLOTS_MAX", 2)
    held = [home.slot("worker"), home.slot("worker")]
    with pytest.raises(UsageError, match="2 instances of worker run already"):
        home.slot("worker")
    assert held
