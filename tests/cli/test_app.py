"""The table of commands, their help, and how quick it is."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.conftest import Place, environment


def test_help_and_version(fresh: Place) -> None:
    help = fresh.hp().stdout
    for name in (
        "init",
        "run",
        "list",
        "inspect",
        "ping",
        "call",
        "stream",
        "submit",
        "ticket",
        "dead",
        "tap",
        "trust",
        "policy",
        "id",
        "ttl",
    ):
        assert f"\n  {name} " in help
    for later in ("doctor", "studio", "conform", "registry", "trace", "bench"):
        assert f"\n  {later} " not in help
    assert help == fresh.hp("--help").stdout and "\x1b" not in help
    assert "trust add" in fresh.hp("trust", "add", "--help", COLUMNS="20").stdout
    assert "hermes-peer call worker text.shout text=hi" in fresh.hp("call", "--help").stdout
    assert fresh.hp("--version").stdout.startswith("hermes-peer 0.")
    assert not fresh.home.exists()  # help makes nothing


def test_the_program_is_quick_to_start(fresh: Place) -> None:
    """What `call` needs is imported by `call`: neither the help nor `id` may load keys, sockets or the console."""
    code = (
        "import sys; sys.argv=['hermes-peer','--help']\n"
        "try:\n import hermes_peer.cli.main as m; m.run()\n"
        "except SystemExit: pass\n"
        "heavy = 'asyncio', 'cryptography', 'msgspec', 'rich.console', 'hermes_peer.agent'\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(fresh.home), capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done
