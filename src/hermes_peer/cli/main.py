"""The way in: `hermes-peer ...`, and every way out of it.

Knows: signals, closed pipes, exit codes, how a failure is told. Refuses to know: any command.
Called by: the scripts `hermes-peer` and `hermes-peer-cli`, `python -m hermes_peer`.
"""

from __future__ import annotations

import os
import sys

GONE = 141  # what a shell shows for a program whose reader went away


def run() -> None:
    """Run the command line and leave the process. Nothing heavy may be imported above this line."""
    code = GONE
    try:
        _open_missing()
        code = _main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        pass
    if code == GONE:
        # Python flushes once more at its exit: whatever is left goes nowhere, without a word.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
    sys.exit(code)


def _main() -> int:
    try:
        from hermes_peer.cli.app import app

        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        return int(app(standalone_mode=False, prog_name="hermes-peer") or 0)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:
        if os.environ.get("HERMES_PEER_DEBUG") == "1":
            import traceback

            traceback.print_exc()
        from hermes_peer.cli.failures import told

        return told(error)


def _open_missing() -> None:
    """A descriptor that the shell closed (`>&-`) would be handed to the next socket: fill the gap."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
