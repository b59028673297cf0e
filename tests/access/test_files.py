"""Files are whole or absent, and ours alone (attacks 69, 70)."""

import os
import stat

import pytest

from hermes_peer.access import files
from hermes_peer.errors import UsageError

FOREIGN = 54321
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_written_whole_with_mode_0600_under_any_umask(tmp_path):
    for umask in (0o000, 0o022, 0o077):
        old = os.umask(umask)
        try:
            files.write_whole(tmp_path / "f", b"one")
            files.make_dir(tmp_path / f"d{umask}", "The folder")
        finally:
            os.umask(old)
        assert mode(tmp_path / "f") == 0o600 and mode(tmp_path / f"d{umask}") == 0o700
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["f"]


@pytest.mark.attack(70)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch, call):
    file = tmp_path / "f"
    files.write_whole(file, b"old")

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, call, die)
        with pytest.raises(Killed):
            files.write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    files.write_whole(file, b"newer")
    assert file.read_bytes() == b"newer" and [each.name for each in tmp_path.iterdir()] == ["f"]


def test_it_is_synced_before_the_rename(tmp_path, monkeypatch):
    order = []
    for call in ("fsync", "replace"):
        real = getattr(os, call)
        monkeypatch.setattr(os, call, lambda *a, call=call, real=real: (order.append(call), real(*a))[1])
    files.write_whole(tmp_path / "f", b"x")
    assert order == ["fsync", "replace", "fsync"]


@pytest.mark.attack(69)
def test_a_planted_temporary_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / ".f.new").symlink_to(victim)
    files.write_whole(tmp_path / "f", b"x")
    assert victim.read_bytes() == b"precious" and (tmp_path / "f").read_bytes() == b"x"


@pytest.mark.attack(70)
def test_secret_files_must_be_private(tmp_path):
    file = tmp_path / "key file"
    file.write_bytes(b"x")
    for loose in (0o640, 0o604, 0o644, 0o660, 0o610):
        file.chmod(loose)
        with pytest.raises(UsageError) as error:
            files.read_checked(file, "The key", secret=True)
        assert f"(mode {loose:04o}); run: chmod 600 '{file}'" in str(error.value)
    file.chmod(0o400)
    assert files.read_checked(file, "The key", secret=True) == b"x"


def test_other_files_must_not_be_writable_by_others(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"x")
    file.chmod(0o644)
    assert files.read_checked(file, "The file", secret=False) == b"x"
    file.chmod(0o664)
    with pytest.raises(UsageError, match=rf"Other users can change the file .* run: chmod go-w {file}"):
        files.read_checked(file, "The file", secret=False)


@pytest.mark.attack(70)
def test_symlinks_pipes_and_folders_are_no_keys(tmp_path):
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, sentence in [
        ("link", "is a symbolic link; put the file itself there"),
        ("nowhere", "is a symbolic link"),
        ("folder", "is not a regular file; move it away"),
        ("pipe", "is not a regular file; move it away"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            files.read_checked(tmp_path / name, "The key", secret=True)
    assert files.read_checked(tmp_path / "link", "The file", secret=False) == b"x"
    assert files.read_checked(tmp_path / "absent", "The key", secret=True) is None


def test_a_huge_file_is_not_read(tmp_path):
    (tmp_path / "f").touch(0o600)
    os.truncate(tmp_path / "f", files.FILE_MAX + 1)
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        files.read_checked(tmp_path / "f", "The file", secret=False)


@root_only
@pytest.mark.attack(69)
def test_foreign_owners_are_refused(tmp_path):
    (tmp_path / "f").touch(0o600)
    os.chown(tmp_path / "f", FOREIGN, -1)
    for secret in (True, False):
        with pytest.raises(UsageError, match=rf"belongs to user {FOREIGN}, not to you \(user 0\); run: chown 0 "):
            files.read_checked(tmp_path / "f", "The key", secret=secret)
    (tmp_path / "d").mkdir(0o700)
    os.chown(tmp_path / "d", FOREIGN, -1)
    for private in (True, False):
        with pytest.raises(UsageError, match=f"belongs to user {FOREIGN}"):
            files.check_dir(tmp_path / "d", "The folder", private=private)


def test_folders_open_to_others_are_refused(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    folder.chmod(0o755)
    files.check_dir(folder, "The folder", private=False)
    with pytest.raises(UsageError, match=rf"mode 0755\); run: chmod 700 {folder}"):
        files.check_dir(folder, "The folder", private=True)
    folder.chmod(0o775)
    with pytest.raises(UsageError, match="open to other users"):
        files.check_dir(folder, "The folder", private=False)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(UsageError, match="is not a folder"):
        files.check_dir(tmp_path / "link", "The folder", private=True)
    with pytest.raises(UsageError, match=r"cannot be used \(No such file"):
        files.check_dir(tmp_path / "absent", "The folder", private=True)


def test_a_disk_that_refuses_gives_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written \(Not a directory\); make room or check who owns it"):
        files.write_whole(tmp_path / "file" / "f", b"x")
    with pytest.raises(UsageError, match=r"The lock .* cannot be opened"):
        files.open_lock(tmp_path / "file" / "lock")
    with pytest.raises(UsageError, match=r"The home .* cannot be made"):
        files.make_dir(tmp_path / "file" / "deep" / "home", "The home")


def test_a_lock_is_exclusive_and_not_inherited(tmp_path):
    one, two = files.open_lock(tmp_path / "l"), files.open_lock(tmp_path / "l")
    try:
        assert files.try_lock(one) and not files.try_lock(two)
        assert not os.get_inheritable(one)
        os.close(one)
        one = -1
        assert files.try_lock(two)
    finally:
        for fd in (one, two):
            if fd >= 0:
                os.close(fd)
