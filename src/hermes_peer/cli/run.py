"""`hermes-peer run FILE[:agent]`: an agent from a file.

Knows: how to import a file and find the agent in it. Refuses to know: what the agent does. Called by: app.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_peer.cli import options
from hermes_peer.errors import UsageError

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent


def run(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE[:AGENT]", help="A Python file; the agent's variable or name.", show_default=False),
    ],
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Where to listen, such as hermes://0.0.0.0:7891.", show_default=False),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Open the plain door, for curl and all.", show_default=False),
    ] = None,
    http_cert: Annotated[
        Path | None,
        typer.Option("--http-cert", metavar="FILE", help="Its TLS certificate, in PEM.", show_default=False),
    ] = None,
    http_key: Annotated[
        Path | None, typer.Option("--http-key", metavar="FILE", help="The key to that.", show_default=False)
    ] = None,
    http_host: Annotated[
        list[str] | None,
        typer.Option("--http-host", metavar="NAME", help="A name beside localhost for it.", show_default=False),
    ] = None,
    http_origin: Annotated[
        list[str] | None,
        typer.Option("--http-origin", metavar="URL", help="A page in browsers that may use it.", show_default=False),
    ] = None,
    http_rate: Annotated[
        float | None,
        typer.Option("--http-rate", metavar="N", help="Tasks a second for each caller.", show_default=False),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option("--socket", metavar="PATH", help="Open the plain door on a Unix socket.", show_default=False),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start again whenever a file beside it changes.")] = False,
    home: options.Home = None,
) -> int:
    """Run the agent of a Python file until Ctrl-C.

    The file makes an agent, agent = HermesAgent("worker"), and its methods. An agent.start() in it does no harm:
    it returns at once here.

    \b
    Examples:
      hermes-peer run worker.py
      hermes-peer run agents.py:planner --listen hermes://0.0.0.0:7891
      hermes-peer run calculator.py --http 127.0.0.1:8080
    """
    path, wanted = split(file)
    asked = {"bind": http, "cert": http_cert, "key": http_key, "hosts": http_host, "origins": http_origin}
    door = {name: value for name, value in {**asked, "rate": http_rate}.items() if value is not None}
    if reload:
        from hermes_peer.cli.reload import keep_running

        words = ["run", file, *(word for each in listen or [] for word in ("--listen", each))]
        words += [word for name, value in door.items() for word in _words(name, value)]
        words += ["--socket", str(socket)] if socket else []
        return keep_running(path, [*words, *(["--home", str(home)] if home else [])])
    from hermes_peer.agent.process import run_blocking

    agent = find(load(path), path, wanted)
    if listen:
        agent.listen = listen
    if door:
        had = {"bind": agent.http} if isinstance(agent.http, str) else dict(agent.http or {})
        agent.http = {**had, **door}
    if socket is not None:
        agent.socket = socket
    if home is not None:
        agent.home = home
    return run_blocking(agent)


def _words(name: str, value: Any) -> list[str]:
    """The options of one setting of the door, as they were typed."""
    option = {"bind": "--http", "hosts": "--http-host", "origins": "--http-origin"}.get(name, f"--http-{name}")
    return [word for each in (value if isinstance(value, list) else [value]) for word in (option, str(each))]


def split(text: str) -> tuple[Path, str]:
    """FILE and AGENT of FILE[:AGENT]. Raises UsageError if there is no such file."""
    path, wanted = Path(text), ""
    if ":" in text and not path.exists():
        name, _, wanted = text.rpartition(":")
        path = Path(name)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the Python file in it")
    if not path.exists():
        raise UsageError(f"there is no file {path} in {os.getcwd()}")
    return path, wanted


def load(path: Path) -> dict[str, Any]:
    """The file's variables after it ran as a module. Raises UsageError in one sentence, whatever the file does."""
    import types

    from hermes_peer.agent.process import loaded_by_run

    path = path.absolute()
    module = types.ModuleType(path.stem if path.stem.isidentifier() else "agent_file")
    module.__file__ = str(path)
    sys.modules.setdefault(module.__name__, module)
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    loaded_by_run(True)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        where = f"{Path(error.filename or path).name} line {error.lineno}"
        raise UsageError(f"{where} is not Python: {error.msg}; correct it and run it again") from error
    except SystemExit as error:
        raise UsageError(f"{path.name} ended by itself (exit {error.code}) before its agent could run") from error
    except Exception as error:
        raise UsageError(
            f"{path.name}{_line_in(error, path)} raised {type(error).__name__}: {error}; correct it and run it again"
            + ("" if os.environ.get("HERMES_PEER_DEBUG") == "1" else " (HERMES_PEER_DEBUG=1 shows the traceback)")
        ) from error
    finally:
        loaded_by_run(False)
    return module.__dict__


def find(variables: dict[str, Any], path: Path, wanted: str) -> HermesAgent:
    """The one agent among them, or the wanted one. Raises UsageError."""
    from hermes_peer.agent.agent import HermesAgent

    found: dict[str, HermesAgent] = {}
    for name, value in variables.items():
        if isinstance(value, HermesAgent) and value not in found.values():
            found[name] = value
    for name, agent in found.items():
        if wanted and wanted in (name, agent.name):
            return agent
    if not found:
        raise UsageError(f'{path.name} has no agent; write agent = HermesAgent("worker") outside of any function')
    named = ", ".join(name if name == agent.name else f"{name} ({agent.name})" for name, agent in found.items())
    if wanted:
        raise UsageError(f"{path.name} has no agent {wanted}; it has {named}")
    if len(found) > 1:
        raise UsageError(f"{path.name} has {len(found)} agents: {named}; say which: {path}:{next(iter(found))}")
    return next(iter(found.values()))


def _line_in(error: BaseException, path: Path) -> str:
    """Where in the user's own file it happened: the deepest of its frames."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" line {line}" if line else ""
