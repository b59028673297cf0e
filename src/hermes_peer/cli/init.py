"""`hermes-peer init`: makes the home, and says where it is.

Knows: the words of the command. Refuses to know: what lies in a home. Called by: app.
"""

from __future__ import annotations

from hermes_peer.cli import options, out


def init(home: options.Home = None, json: options.Json = False) -> int:
    """Make the home of your agents, and say where it is.

    It holds their keys, the trust list, the policy and the registry. Harmless if it is there already.
    """
    from hermes_peer.access.home import Home

    opened = Home.open(home)
    made = [str(path) for path in opened.restore()] if not opened.created else [str(opened.path)]
    if json:
        out.json_line({"home": str(opened.path), "made": made})
    elif opened.created:
        out.line(f"made a new home in {opened.path}")
        out.line(f"who may connect: {opened.trust_file}")
        out.line(f"who may call what: {opened.policy_file}")
    elif made:
        out.line(f"the home is in {opened.path}; put back: {', '.join(made)}")
    else:
        out.line(f"the home is in {opened.path}; nothing was changed")
    return 0
