"""`hermes-peer policy check`: who may call what, and which rule says so.

Knows: the words of the command. Refuses to know: how rules are read. Called by: app.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hermes_peer.cli import options, out
from hermes_peer.cli.trust import _open
from hermes_peer.errors import UsageError
from hermes_peer.wire.address import FINGERPRINT

app = typer.Typer(help="Who may call what: check.", rich_markup_mode=None)


@app.command("check")
def check(
    caller: Annotated[
        str, typer.Argument(metavar="CALLER", help="A name, a fingerprint, or door:NAME.", show_default=False)
    ],
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent of this home.", show_default=False)],
    method: Annotated[str, typer.Argument(metavar="METHOD", help="Such as text.shout.", show_default=False)],
    json: options.Json = False,
    home: options.Home = None,
) -> int:
    """Say whether a call is allowed, and by which rule.

    The exit code is 0 if it is, 4 if not.

    \b
    Example:
      hermes-peer policy check planner worker text.shout
    """
    from hermes_peer.access.names import check_agent_name
    from hermes_peer.access.policy import Policy
    from hermes_peer.access.trust import Trust

    opened = _open(home)
    trust, policy = Trust(opened), Policy(opened)
    if policy.problem:
        raise UsageError(policy.problem)
    check_agent_name(agent)
    key = caller.removeprefix("fp:").lower()
    if FINGERPRINT.fullmatch(key):
        keys, names = [key], trust.grant(key, time.time()).names
    else:
        keys, names = trust.fingerprints(caller), frozenset({caller})
        if not caller.startswith("door:"):
            check_agent_name(caller)
    now = time.time()
    granted = {each: trust.grant(each, now) for each in keys}
    keys = [each for each in keys if granted[each].allowed] or [""]
    verdicts = []
    for each in keys:
        at_home = each in granted and granted[each].home
        verdict = policy.verdict(names, each or (key if key in granted else ""), at_home, agent, method)
        if verdict not in verdicts:
            verdicts.append(verdict)
    connects = keys != [""] or caller.startswith("door:")
    allowed = connects and all(verdict.allowed for verdict in verdicts)
    if json:
        out.json_line(
            {
                "allowed": allowed,
                "trusted": connects,
                "rule": verdicts[0].rule or None,
                "reason": verdicts[0].reason,
            }
        )
    else:
        for verdict in verdicts:
            out.line(out.shown(f"{'allowed' if verdict.allowed else 'refused'}: {verdict.reason}"))
        if not connects:
            out.line(out.shown(f"refused: {caller} is not trusted here, so it cannot even connect (trust add)"))
    return 0 if allowed else 4
