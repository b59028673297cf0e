"""The home is made once, privately, and says what is wrong with a place it cannot use."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_peer.access.home import Home, default_path
from hermes_peer.access.policy import Policy
from hermes_peer.access.trust import Trust
from hermes_peer.errors import UsageError


def test_made_at_first_use(tmp_path):
    old = os.umask(0)
    try:
        home = Home.open(tmp_path / "deep" / "home")
    finally:
        os.umask(old)
    assert home.created and home.path == tmp_path / "deep" / "home"
    found = {str(path.relative_to(home.path)): stat.S_IMODE(path.stat().st_mode) for path in home.path.rglob("*")}
    assert found == {
        **dict.fromkeys(("trust.d", "registry", "agents"), 0o700),
        **dict.fromkeys(("trust.toml", "policy.toml", "lock"), 0o600),
    }
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert home.trust_file.name == "trust.toml" and home.registry_dir == home.path / "registry"


def test_the_first_files_are_valid_and_trust_nobody(home):
    trust, policy = Trust(home), Policy(home)
    assert trust.problem is None and trust.pins() == [] and trust.denials() == []
    assert policy.problem is None
    rule, doors = policy.rules
    assert (doors.callers, doors.methods, doors.allow) == (("door:loopback",), ("public",), True)
    assert (rule.callers, rule.agents, rule.methods, rule.allow) == (
        ("home",),
        ("*",),
        ("**", "read", "operate"),
        True,
    )


def test_the_examples_in_the_first_files_work(home):
    text = home.trust_file.read_text()
    example = text[text.index("# [[pin]]") :].replace('"64 hex digits"', f'"{"a1" * 32}"')
    home.trust_file.write_text("\n".join(line.removeprefix("# ") for line in example.splitlines()))
    trust = Trust(home)
    assert trust.problem is None and len(trust.pins()) == 1 and len(trust.denials()) == 1


def test_opening_again_changes_nothing(home):
    home.trust_file.write_text("# mine\n")
    home.policy_file.unlink()
    again = Home.open(home.path)
    assert not again.created and again.trust_file.read_text() == "# mine\n"
    assert not again.policy_file.exists(), "a policy that was taken away must not come back by itself"
    assert again.restore() == [home.policy_file] and again.restore() == []


def test_a_home_whose_maker_died_is_finished(tmp_path):
    home = Home.open(tmp_path / "h")
    home.trust_file.unlink()
    home.policy_file.write_text("# kept\n")
    again = Home.open(tmp_path / "h")
    assert again.created and again.trust_file.exists() and again.policy_file.read_text() == "# kept\n"


def test_many_processes_make_one_home(tmp_path):
    code = (
        "import sys; from hermes_peer.access.home import Home; sys.stdin.read(1); print(Home.open(sys.argv[1]).created)"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "h")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for maker in makers:
        maker.stdin.write("g")
        maker.stdin.flush()
    said = [maker.communicate(timeout=30)[0].strip() for maker in makers]
    assert sorted(said) == ["False"] * 5 + ["True"]


def test_where_it_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("HERMES_PEER_HOME", str(tmp_path / "x"))
    assert default_path() == tmp_path / "x" and Home.open().path == tmp_path / "x"
    monkeypatch.setenv("HERMES_PEER_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == tmp_path / "data" / "hermes-peer"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_path() == tmp_path / ".local" / "share" / "hermes-peer"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_path() == tmp_path / "Library" / "Application Support" / "hermes-peer"


def test_a_relative_home_survives_a_change_of_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Home.open("h").path == tmp_path / "h"


@pytest.mark.attack(69)
def test_places_that_are_not_ours(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder; move it away"):
        Home.open(tmp_path / "file")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match=r"open to other users \(mode 0777\); run: chmod 700"):
        Home.open(tmp_path / "open")
    (tmp_path / "ok").mkdir()
    (tmp_path / "ok").chmod(0o755)
    assert Home.open(tmp_path / "ok").created


def test_realm(home):
    assert home.realm == bytes(32)
    file = home.path / "realm"
    file.write_text("0f" * 32 + "\n")
    file.chmod(0o600)
    assert home.realm == b"\x0f" * 32
    file.chmod(0o644)
    with pytest.raises(UsageError, match=r"Other users can read the network secret .* run: chmod 600"):
        _ = home.realm
    file.chmod(0o600)
    for bad in ("", "0f" * 31, "0f" * 33, "zz" * 32, "ü" * 32, " ".join(["0f"] * 32), "0f" * 31 + " 0"):
        file.write_text(bad)
        with pytest.raises(UsageError, match="must be 64 hex digits and nothing else"):
            _ = home.realm


@pytest.mark.attack(68)
def test_the_socket_lies_in_a_private_folder(home, tmp_path):
    old = os.umask(0)
    try:
        path = home.slot("worker").socket_path
    finally:
        os.umask(old)
    assert path.parent == Path(os.environ["XDG_RUNTIME_DIR"]) / "hermes-peer"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(path.name) == 16 + len(".sock")
    path.parent.chmod(0o755)
    with pytest.raises(UsageError, match=r"The socket folder .* \(mode 0755\); run: chmod 700 .*XDG_RUNTIME_DIR"):
        home.socket_path("ab" * 32)


@pytest.mark.parametrize("runtime", ["", "relative", "/absent/folder", "long"])
def test_the_socket_path_is_short_whatever_the_runtime_folder(home, monkeypatch, tmp_path, runtime):
    if runtime == "long":
        runtime = str(tmp_path / ("x" * 80))
        Path(runtime).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    path = home.socket_path("ab" * 32)
    assert path == Path(f"/tmp/hermes-peer-{os.geteuid()}/{'ab' * 8}.sock") and len(os.fsencode(path)) <= 100


@pytest.mark.attack(69)
def test_a_planted_socket_or_folder_is_refused(home, tmp_path):
    path = home.socket_path("ab" * 32)
    for plant in (lambda: path.write_bytes(b""), lambda: path.symlink_to("/tmp"), lambda: path.mkdir()):
        plant()
        with pytest.raises(UsageError, match="is not a socket of yours; remove it"):
            home.socket_path("ab" * 32)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        home.socket_path("ab" * 32)


@pytest.mark.attack(69)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_foreign_socket_folder_is_refused(home):
    folder = home.socket_path("ab" * 32).parent
    os.chown(folder, 54321, -1)
    with pytest.raises(UsageError, match="belongs to user 54321"):
        home.socket_path("ab" * 32)


def test_importing_loads_no_cryptography():
    code = (
        "import sys, hermes_peer.access.home, hermes_peer.access.trust, hermes_peer.access.policy, "
        "hermes_peer.registry.view, hermes_peer.registry.folder; sys.exit('cryptography' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
