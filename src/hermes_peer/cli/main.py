"""The way in: `hermes-peer ...`, and every way out of it.

Knows: signals, closed pipes, exit codes, how a failure is told. Refuses to know: any command.
Called by: the scripts `hermes-peer` and `hermes-peer-cli`, `python -m hermes_peer`.
"""

from __future__ import annotations

import os
import sys


def run() -> None:
    """Run the command line and leave the process. Nothing heavy may be imported above this line."""
    code = 130
    try:
        _open_missing()
        code = _main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        code = 141
    if code == 141:
        # Python flushes once more at its exit: whatever is left goes nowhere, without a word.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


def _main() -> int:
    from hermes_peer.cli import out

    try:
        from hermes_peer.cli.app import main

        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        return main()
    except (out.Gone, BrokenPipeError):
        return out.GONE
    except SystemExit as leaving:  # typer leaves with 1 when the reader of its help is gone
        return out.GONE if type(sys.stdout).__name__ == "PacifyFlushWrapper" else int(leaving.code or 0)
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
