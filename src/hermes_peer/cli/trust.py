"""`hermes-peer trust`: who may connect.

Knows: the words of the commands. Refuses to know: how trust files are written. Called by: app.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hermes_peer.cli import options, out
from hermes_peer.errors import UsageError

if TYPE_CHECKING:
    from hermes_peer.access.home import Home
    from hermes_peer.access.slot import Slot

app = typer.Typer(help="Who may connect: show, list, add, deny, remove.", rich_markup_mode=None)
Key = Annotated[str, typer.Argument(metavar="FINGERPRINT", help="64 hex digits.", show_default=False)]


def _open(folder: Any) -> Home:
    from hermes_peer.access.home import Home
    from hermes_peer.cli.visit import told_home

    home = Home.open(folder)
    told_home(home.created, home.path)
    return home


@app.command("show")
def show(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="One agent of this home; all if not given.", show_default=False)
    ] = "",
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Print the line for the other side to run.

    It makes that side trust an agent of this home, and find it if it listens on TCP.

    \b
    Examples:
      hermes-peer trust show
      hermes-peer trust show worker
      hermes-peer trust show cli       so that your commands may call agents over there
    """
    from hermes_peer.access.trust import share_line

    opened = _open(home)
    slots = _instances(opened)
    wanted = [each for each in slots if each[0] == agent] if agent else [each for each in slots if each[0] != "cli"]
    if not wanted and agent and agent != "cli":
        known = ", ".join(sorted({name for name, _, _ in slots})) or "none yet"
        raise UsageError(f"no agent named {out.shown(agent)} has run in this home (known: {known}); run it once first")
    if not wanted:
        own = next((each for each in slots if each[0] == "cli"), None)
        if own is None:
            with opened.slot("cli") as slot:
                own = ("cli", slot.number, slot.fingerprint)
        wanted = [own]
        if not agent:
            out.note("no agent has run in this home yet; this line is for the commands that you run here")
    addresses = _addresses(opened)
    for name, number, key in wanted:
        places = addresses.get(key, [])
        line = share_line(cast("Slot", SimpleNamespace(name=name, fingerprint=key)), places)
        if json:
            out.json_line({"agent": name, "slot": number, "fingerprint": key, "addresses": places, "run": line})
            continue
        out.line(line)
        if name != "cli" and " at=" not in line:
            out.note(_no_place(name, places))
    return 0


def _instances(home: Home) -> list[tuple[str, int, str]]:
    """(name, slot, fingerprint) of every instance that runs, and of the first one where none does."""
    found: dict[str, list[tuple[int, str, bool]]] = {}
    for name, number, key, runs in home.slots():
        if key:
            found.setdefault(name, []).append((number, key, runs))
    return [
        (name, number, key)
        for name, slots in found.items()
        # The commands take the lowest free slot: the first one is theirs, whatever runs just now.
        for number, key, _ in (name != "cli" and [each for each in slots if each[2]]) or slots[:1]
    ]


def _addresses(home: Home) -> dict[str, list[str]]:
    """Where the agents of this home listen now."""
    from hermes_peer.access.trust import Trust
    from hermes_peer.registry.folder import FolderRegistry
    from hermes_peer.registry.view import View

    records = View(FolderRegistry(home.registry_dir), Trust(home)).all(time.time())
    return {record.fingerprint: record.addresses for record in records}


def _no_place(name: str, places: list[str]) -> str:
    if not places:
        return f"{name} does not run now, so the line has no address; run it to have one"
    if any(place.startswith("hermes://") for place in places):
        return f"{name} listens on every address of this machine; add at=hermes://HOST:PORT with a name of this machine"
    return (
        f"{name} listens on this machine only; to be reached from another one, start it with "
        "--listen hermes://0.0.0.0:7891"
    )


@app.command("list")
def list_(json: options.Json = False, home: options.Home = None) -> int:
    """Show whom this home trusts, and whom it denies."""
    from hermes_peer.access.trust import Trust

    trust = Trust(_open(home))
    rows = []
    for pin in trust.pins():
        grant = trust.grant(pin.fingerprint, time.time())
        state = "trusted" if pin.name in grant.names else "denied" if _denied(trust, pin.fingerprint) else "ended"
        place = str(pin.at.endpoint) if pin.at else ""
        if json:
            out.json_line(
                {
                    "fingerprint": pin.fingerprint,
                    "name": pin.name,
                    "state": state,
                    "at": place or None,
                    "not_after": pin.not_after_text or None,
                    "note": pin.note or None,
                    "source": pin.source,
                }
            )
        rows.append((pin.name, state, pin.fingerprint, place or "-", pin.source if pin.slot == 0 else "this home"))
    for deny in trust.denials():
        if json:
            out.json_line(
                {
                    "fingerprint": deny.fingerprint,
                    "name": None,
                    "state": "denied",
                    "reason": deny.reason or None,
                    "source": deny.source,
                }
            )
        rows.append(("-", "denied", deny.fingerprint, "-", f"{deny.source} {deny.reason}".rstrip()))
    if not json:
        if rows:
            for each in out.table(("NAME", "STATE", "FINGERPRINT", "AT", "FROM"), rows).splitlines():
                out.line(out.shown(each))
        else:
            out.note("nobody is trusted yet; hermes-peer trust add FINGERPRINT name=NAME changes that")
    if trust.problem:
        raise UsageError(trust.problem)
    return 0


def _denied(trust: Any, fingerprint: str) -> bool:
    return any(each.fingerprint == fingerprint for each in trust.denials())


@app.command("add")
def add(
    fingerprint: Key,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help="name=NAME, and at=ADDRESS where it listens.", show_default=False),
    ] = None,
    home: options.Home = None,
) -> int:
    """Let a key in, under a name of your choice.

    The other side prints the whole line with: hermes-peer trust show. An agent that runs sees the change within a
    second. Trust goes one way: to be let in there, have that side add yours.

    \b
    Examples:
      hermes-peer trust add 3f9c…64 hex digits… name=worker
      hermes-peer trust add 3f9c…64 hex digits… name=worker at=hermes://192.0.2.7:7891
    """
    from hermes_peer.access.trust import add_pin

    said = _said(words or [], ("name", "at"))
    if "name" not in said:
        raise UsageError("say what to call this key here: name=worker")
    opened = _open(home)
    add_pin(opened, fingerprint, said["name"], said.get("at"))
    place = f" at {said['at']}" if "at" in said else ""
    out.line(f"{fingerprint[:16].lower()}… is trusted as {said['name']}{place}")
    return 0


@app.command("deny")
def deny(
    fingerprint: Key,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help="reason=TEXT, for whoever asks later.", show_default=False),
    ] = None,
    home: options.Home = None,
) -> int:
    """Shut a key out, whatever else is said about it. Its links end within a second.

    \b
    Example:
      hermes-peer trust deny 3f9c…64 hex digits… reason='stolen laptop'
    """
    from hermes_peer.access.trust import deny as shut_out

    said = _said(words or [], ("reason",))
    shut_out(_open(home), fingerprint, said.get("reason", ""))
    out.line(f"{fingerprint[:16].lower()}… is denied")
    return 0


@app.command("remove")
def remove(fingerprint: Key, home: options.Home = None) -> int:
    """Take back what trust add and trust deny said about a key."""
    from hermes_peer.access.trust import remove as take_out

    count = take_out(_open(home), fingerprint)
    if not count:
        out.note(f"trust.toml says nothing about {fingerprint[:16].lower()}…; nothing was changed")
        return 1
    entries = "1 entry" if count == 1 else f"{count} entries"
    out.line(f"{entries} of {fingerprint[:16].lower()}… removed")
    return 0


def _said(words: list[str], known: tuple[str, ...]) -> dict[str, str]:
    """key=value words. Raises UsageError for another key, a key without value, or one given twice."""
    said: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in known or not text:
            allowed = " and ".join(f"{each}=" for each in known)
            raise UsageError(f"{out.shown(word[:80])!r} is not understood here; this takes {allowed}")
        if key in said:
            raise UsageError(f"{key}= is given twice")
        said[key] = text
    return said
