"""Method patterns of policy.toml.

Knows: whole segments between dots, `*`, `**`. Refuses to know: callers and rules.
Called by: policy.

    segments   a-z 0-9 _ joined by single dots, as in method names; nothing is folded, no part of a segment
    matches *          as the last segment: one or more segments, whatever they are; before that: exactly
    one segment **         only as the last segment: the same as * there
"""

from __future__ import annotations

import re

from hermes_peer.access.names import METHOD_WORDS, is_method_name
from hermes_peer.access.tables import TableError

PRODUCT = "hermes"
READ = frozenset(f"{PRODUCT}.{verb}" for verb in ("ping", "describe", "status", "watch", "trace"))
OPERATE = frozenset(f"{PRODUCT}.{verb}" for verb in ("dead", "ticket", "settle", "resume", "cancel", "tap"))
WORDS = {"read": READ, "operate": OPERATE}
PUBLIC = "public"  # the methods that their author marked public=True
assert frozenset(WORDS) | {PUBLIC} == METHOD_WORDS

_PATTERN = re.compile(r"([a-z0-9_]+|\*)(\.([a-z0-9_]+|\*))*(\.\*\*)?|\*\*")


def check_pattern(pattern: str) -> str:
    """Gives `pattern` back, or raises TableError."""
    if len(pattern) > 256 or _PATTERN.fullmatch(pattern) is None:
        raise TableError(
            f"{pattern[:80]!a} is no method pattern: write whole segments joined by single dots, "
            '"*" for one segment or, at the end, for the rest (example: "text.*")'
        )
    return pattern


def matches(pattern: str, method: str, *, product: bool, public: bool = False) -> bool:
    """Whether a checked pattern (or one of the words "read", "operate", "public") covers `method`.

    `product` says whether a leading wildcard reaches the hermes.* methods: yes where a rule denies, no where it
    allows, so that "all my methods" never hands out the controls of the product.
    """
    if not is_method_name(method):
        return False
    if pattern in WORDS:
        return method in WORDS[pattern]
    if pattern == PUBLIC:
        return public
    want, have = pattern.split("."), method.split(".")
    if not product and have[0] == PRODUCT and want[0] != PRODUCT:
        return False
    if want[-1] in ("*", "**"):
        head = want[:-1]
        if len(have) <= len(head):
            return False
        have = have[: len(head)]
        want = head
    return len(want) == len(have) and all(a in ("*", b) for a, b in zip(want, have, strict=True))
