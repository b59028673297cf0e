"""The table of commands.

Knows: their names and order. Refuses to know: what they do. Called by: main.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from hermes_peer.cli import call, ids, init, inspect, list, ping, policy, run, stream, tap, trust, ttl

app = typer.Typer(
    help="Agents talk to each other directly, over encrypted lines that survive a cut.",
    epilog="Exit codes: 0 ok, 1 the call failed, 2 usage, 3 unreachable, 4 refused (trust, policy, name).",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from hermes_peer import __version__
        from hermes_peer.cli import out

        out.line(f"hermes-peer {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    _help(context)


@trust.app.callback(invoke_without_command=True)
def _trust(context: typer.Context) -> None:
    _help(context)


@policy.app.callback(invoke_without_command=True)
def _policy(context: typer.Context) -> None:
    _help(context)


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        from hermes_peer.cli import out

        out.line(context.get_help().rstrip())


app.command("init")(init.init)
app.command("run")(run.run)
app.command("list")(list.list_)
app.command("inspect")(inspect.inspect)
app.command("ping")(ping.ping)
app.command("call")(call.call)
app.command("stream")(stream.stream)
app.command("tap")(tap.tap)
app.add_typer(trust.app, name="trust")
app.add_typer(policy.app, name="policy")
app.command("id")(ids.id_)
app.command("ttl")(ttl.ttl)

# Imported only where it is wanted: what it shows needs more than the other commands do.
if sys.argv[1:2] in ([], ["demo"], ["-h"], ["--help"]) and find_spec("hermes_peer.cli.demo.command") is not None:
    from hermes_peer.cli.demo.command import demo

    app.command("demo")(demo)
