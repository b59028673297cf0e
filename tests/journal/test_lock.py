"""One process per journal; the second is told who the first is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_peer.errors import JournalError
from hermes_peer.journal.lock import Lock


def test_a_second_one_is_told_the_pid(path: Path) -> None:
    first = Lock(path)
    with pytest.raises(JournalError, match=f"in use by process {os.getpid()}"):
        Lock(path)
    first.release()
    first.release()
    Lock(path).release()


def test_a_second_process(path: Path, make: Any) -> None:
    make()
    code = "import os, sys; from tests.journal.rig import opened; from pathlib import Path; opened(Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 1 and f"is in use by process {os.getpid()}" in done.stderr.splitlines()[-1]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be opened: No such file"):
        Lock(tmp_path / "absent" / "journal")


def test_the_lock_goes_with_its_process(path: Path) -> None:
    code = "import os, sys, pathlib; from tests.journal.rig import *; opened(pathlib.Path(sys.argv[1])); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    Lock(path).release()
