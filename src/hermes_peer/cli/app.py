"""The table of commands.

Knows: their names, their order, where each lives. Refuses to know: what they do. Called by: main.

A command's file is imported when it is the one that was typed; all of them only for the help.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

COMMANDS = {
    "init": "init.init",
    "run": "run.run",
    "list": "list.list_",
    "inspect": "inspect.inspect",
    "ping": "ping.ping",
    "call": "call.call",
    "stream": "stream.stream",
    "submit": "submit.submit",
    "ticket": "ticket.ticket",
    "dead": "dead.app",
    "tap": "tap.tap",
    "trust": "trust.app",
    "policy": "policy.app",
    "token": "token.app",
    "id": "ids.id_",
    "ttl": "ttl.ttl",
    "demo": "demonstrate.demo",
}


def build(words: list[str]) -> typer.Typer:
    """The command line for these words."""
    app = typer.Typer(
        help="Agents talk to each other directly, over encrypted lines that survive a cut.",
        epilog="Exit codes: 0 ok, 1 the call failed, 2 usage, 3 unreachable, 4 refused (trust, policy, name).",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    typed = words[0] if words else ""
    for name in [typed] if typed in COMMANDS else COMMANDS:
        if name == "demo" and find_spec("hermes_peer.cli.demo.command") is None:
            continue
        module, _, attribute = f"hermes_peer.cli.{COMMANDS[name]}".rpartition(".")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            found.callback(invoke_without_command=True)(show_help)
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def main() -> int:
    """Run what was typed; returns the exit code."""
    return int(build(sys.argv[1:])(standalone_mode=False, prog_name="hermes-peer") or 0)


def _version(wanted: bool) -> None:
    if wanted:
        from hermes_peer import __version__
        from hermes_peer.cli import out

        out.line(f"hermes-peer {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    show_help(context)


def show_help(context: typer.Context) -> None:
    """A group without a command shows its help."""
    if context.invoked_subcommand is None:
        from hermes_peer.cli import out

        out.line(context.get_help().rstrip())
