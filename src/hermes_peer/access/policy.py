"""The permission matrix: who may call which method of which agent; all else is refused (mission M11).

Knows: policy.toml. Refuses to know: how a caller got his names, and what a method does.
Called by: the agent layer before every handler, the doors, `hermes-peer policy check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_peer.access.files import Stamp, read_checked, stamp
from hermes_peer.access.names import AGENT, METHOD_MAX, is_method_name, shown
from hermes_peer.access.patterns import WORDS, check_pattern, matches
from hermes_peer.access.tables import TableError, Tables, words
from hermes_peer.errors import UsageError
from hermes_peer.wire.address import FINGERPRINT

if TYPE_CHECKING:
    from hermes_peer.access.home import Home

KINDS = {"rule": frozenset({"caller", "agent", "method", "allow", "note"})}
CACHE_MAX = 10_000
ANY = "*"
HOME = "home"
DOOR = "door:"
KEY = "fp:"

_Question = tuple[frozenset[str], str, bool, str, str, bool]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rule` is "policy.toml rule 2", or "" if no rule speaks. `reason` is a sentence for our side, not for the
    caller: it names rules and agents that he need not know of.
    """

    allowed: bool
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One [[rule]]; `number` counts from 1 in the order of the file."""

    number: int
    callers: tuple[str, ...]
    agents: tuple[str, ...]
    methods: tuple[str, ...]
    allow: bool

    def covers(self, names: frozenset[str], fp: str, is_home: bool, agent: str, method: str, public: bool) -> bool:
        """Whether this rule speaks about that call."""
        return (
            any(_is_caller(word, names, fp, is_home) for word in self.callers)
            and any(word in (ANY, agent) for word in self.agents)
            and any(matches(each, method, product=not self.allow, public=public) for each in self.methods)
        )


class Policy:
    """The policy of one home. A file that breaks while we run keeps its last good rules, and `.problem` says so; one
    that is broken at the start allows nothing.
    """

    def __init__(self, home: Home) -> None:
        self._file = home.policy_file
        self._stamp: Stamp | None = None
        self._read_once = False
        self._missing = False
        self._verdicts: dict[_Question, Verdict] = {}
        self.rules: tuple[Rule, ...] = ()
        self.problem: str | None = None
        """What is wrong with the file now, as a sentence with the line, or None."""
        self.reload_if_changed()

    def reload_if_changed(self) -> bool:
        """Reads the file if it changed (one stat). True if the rules changed: open streams are then asked again."""
        now = stamp(self._file)
        if self._read_once and now == self._stamp:
            return False
        first, self._stamp, self._read_once = not self._read_once, now, True
        try:
            data = read_checked(self._file, "The policy", secret=False)
            rules = () if data is None else _rules(Tables(self._file, data, KINDS))
        except (TableError, UsageError) as error:
            kept = "nothing is allowed" if first else "the last good rules stay in force"
            self.problem = f"{str(error).rstrip('.')}: repair it; until then {kept}."
            return False
        self.problem, self._missing = None, data is None
        changed = rules != self.rules
        self.rules = rules
        self._verdicts.clear()
        return changed

    def verdict(
        self, caller_names: frozenset[str], caller_fp: str, is_home: bool, agent: str, method: str, public: bool = False
    ) -> Verdict:
        """Whether this caller may call `method` of `agent`. Never raises. `public`: the method is marked so.

        `caller_names` are the names granted to him (or the one principal "door:…"), `caller_fp` his key (64
        lower-case hex digits, "" for a door). Known questions cost one dict look-up.
        """
        question = (caller_names, caller_fp, is_home, agent, method, public)
        known = self._verdicts.get(question)
        if known is not None:
            return known
        verdict = self._decide(*question)
        # A stranger chooses `method`: long ones are not kept, and the number kept is bounded.
        if len(method) <= METHOD_MAX:
            if len(self._verdicts) >= CACHE_MAX:
                self._verdicts.clear()
            self._verdicts[question] = verdict
        return verdict

    def _decide(self, names: frozenset[str], fp: str, is_home: bool, agent: str, method: str, public: bool) -> Verdict:
        if not is_method_name(method):
            return Verdict(False, "", f"{shown(method)} is not a method name, so no rule can allow it.")
        found = [rule for rule in self.rules if rule.covers(names, fp, is_home, agent, method, public)]
        who = " or ".join(sorted(names)) or (f"{KEY}{fp}" if fp else "a caller without a name")
        call = f"{who} to call {method} of {agent}"
        for rule in found:
            if not rule.allow:
                label = f"{self._file.name} rule {rule.number}"
                return Verdict(False, label, f"{label} forbids {call}.")
        if found:
            label = f"{self._file.name} rule {found[0].number}"
            return Verdict(True, label, f"{label} allows {call}.")
        if self._missing:
            return Verdict(False, "", f"{self._file.name} is missing, so nothing is allowed; run: hermes-peer init")
        reason = f"No rule of {self._file.name} allows {call}"
        caller = min(names) if names else KEY + fp
        if caller == KEY:
            return Verdict(False, "", f"{reason}.")
        word = next((each for each, group in WORDS.items() if method in group), method)
        return Verdict(
            False,
            "",
            f'{reason}; to allow it, add: [[rule]] caller = "{caller}", agent = "{agent}", '
            f'method = "{word}", allow = true (each on a line of its own).',
        )


def _is_caller(word: str, names: frozenset[str], fp: str, is_home: bool) -> bool:
    if word == ANY:
        return True
    if word == HOME:
        return is_home
    if word.startswith(KEY):
        return bool(fp) and word == KEY + fp
    return word in names


def _rules(tables: Tables) -> tuple[Rule, ...]:
    rules = []
    for index, table in enumerate(tables.of("rule")):
        try:
            rules.append(_rule(index + 1, table))
        except TableError as error:
            raise tables.error("rule", index, f"rule {index + 1}: {error}") from None
    return tuple(rules)


def _rule(number: int, table: dict[str, Any]) -> Rule:
    lists: dict[str, tuple[str, ...]] = {}
    for word in ("caller", "agent", "method"):
        if word not in table:
            raise TableError(f'{word} is missing ("*" means any)')
        texts = words(table[word])
        if texts is None:
            raise TableError(f"{word} must be a text or a list of texts")
        lists[word] = texts
    if not isinstance(table.get("allow"), bool):
        raise TableError("allow must be true or false")
    return Rule(
        number,
        tuple(_caller(each) for each in lists["caller"]),
        tuple(_agent(each) for each in lists["agent"]),
        tuple(check_pattern(each) for each in lists["method"]),
        table["allow"],
    )


def _caller(word: str) -> str:
    if word in (ANY, HOME):
        return word
    if word.startswith(KEY) and FINGERPRINT.fullmatch(word[len(KEY) :].lower()):
        return word.lower()
    if word.startswith(DOOR) and len(word) > len(DOOR) and word.isascii() and word.isprintable():
        return word
    if AGENT.fullmatch(word) and ".." not in word:
        return word
    raise TableError(
        f'{shown(word)} is no caller: write a granted name, "home", "fp:64 hex digits", "door:NAME" or "*"'
    )


def _agent(word: str) -> str:
    if word == ANY or (AGENT.fullmatch(word) and ".." not in word):
        return word
    raise TableError(f'{shown(word)} is no agent: write a whole name or "*"')
