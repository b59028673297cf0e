"""The two grammars of names: agents and methods.

Knows: which bytes a name may have. Refuses to know: who bears it. ASCII only and never folded (attack 54).
Called by: home, pins, policy, and the agent layer when methods and agents are declared or called.
"""

from __future__ import annotations

import re
from typing import Any

from hermes_peer.errors import UsageError

AGENT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
METHOD = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
METHOD_MAX = 128

# Words with a meaning of their own in policy.toml. A name that is also a word would grant more than its
# writer sees.
CALLER_WORDS = frozenset({"home"})
METHOD_WORDS = frozenset({"read", "operate", "public"})


def shown(value: Any) -> str:
    """`value` for an error sentence: escaped (attack 51: log injection), at most 80 characters."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:76] + "...'"


def is_method_name(name: str) -> bool:
    """True if `name` can be a method at all. Case-sensitive, exact bytes; "a..b" is none."""
    return len(name) <= METHOD_MAX and METHOD.fullmatch(name) is not None


def check_agent_name(name: str) -> str:
    """Gives `name` back, or raises UsageError.

    Shape: 1 to 64 of a-z 0-9 . _ -, the first a letter or digit, no "..". It becomes a folder, therefore the dots.
    """
    if not isinstance(name, str) or AGENT.fullmatch(name) is None or ".." in name:
        raise UsageError(
            f"{shown(name)} cannot be an agent name: use 1 to 64 of a-z, 0-9, '.', '_', '-', "
            "starting with a letter or digit, without '..' (example: order-worker)."
        )
    if name in CALLER_WORDS:
        raise UsageError(
            f"{shown(name)} cannot be an agent name: in policy.toml this word means every agent of this "
            "home; choose another name."
        )
    return name


def check_method_name(name: str) -> str:
    """Gives `name` back, or raises UsageError.

    Shape: segments of a-z 0-9 _ joined by single dots, at most 128 characters; `read`, `operate` and
    `public` are policy words.
    """
    if not isinstance(name, str) or not is_method_name(name):
        raise UsageError(
            f"{shown(name)} cannot be a method name: use segments of a-z, 0-9, '_' joined by single dots, "
            f"at most {METHOD_MAX} characters (example: text.shout)."
        )
    if name in METHOD_WORDS:
        raise UsageError(
            f"{shown(name)} cannot be a method name: in policy.toml this word means a group of "
            f"methods; give it a prefix (example: file.{name})."
        )
    return name
