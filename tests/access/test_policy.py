"""The permission matrix: deny by default, a deny wins, a broken file changes nothing (mission M11, attack 55)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_peer.access import policy as module
from hermes_peer.access.policy import Policy
from hermes_peer.access.trust import Trust

from .conftest import A, B

NOBODY = frozenset()


def rule(caller='"*"', agent='"*"', method='"**"', allow="true"):
    return f"[[rule]]\ncaller = {caller}\nagent = {agent}\nmethod = {method}\nallow = {allow}\n\n"


@pytest.fixture
def policy(home):
    def write(*rules):
        home.policy_file.write_text("".join(rules))
        return Policy(home)

    return write


def ask(policy, names="", fp=A, home=False, agent="worker", method="text.shout"):
    return policy.verdict(frozenset(names.split()), fp, home, agent, method)


def test_the_first_policy_of_a_home(home):
    policy = Policy(home)
    for method in ("text.shout", "x", "hermes.status", "hermes.tap", "hermes.settle"):
        assert ask(policy, "planner", home=True, method=method).allowed
        assert not ask(policy, "planner", home=False, method=method).allowed
    assert not ask(policy, home=True, method="hermes.unknown").allowed
    slot = home.slot("planner")
    grant = Trust(home).grant(slot.fingerprint, 0)
    verdict = policy.verdict(grant.names, slot.fingerprint, grant.home, "worker", "text.shout")
    assert verdict.allowed and verdict.rule == "policy.toml rule 1"
    assert verdict.reason == "policy.toml rule 1 allows planner to call text.shout of worker."


def test_no_rule_no_call(policy):
    verdict = ask(policy(), "planner")
    assert (verdict.allowed, verdict.rule) == (False, "")
    assert verdict.reason == (
        "No rule of policy.toml allows planner to call text.shout of worker; to allow it, add: [[rule]] "
        'caller = "planner", agent = "worker", method = "text.shout", allow = true (each on a line of its own).'
    )
    assert f'caller = "fp:{A}"' in ask(policy()).reason
    assert 'method = "operate"' in ask(policy(), "planner", method="hermes.tap").reason
    nameless = "No rule of policy.toml allows a caller without a name to call text.shout of worker."
    assert ask(policy(), fp="").reason == nameless


def test_what_the_reason_advises_works(policy):
    for method in ("text.shout", "hermes.status", "hermes.tap", "hermes.other"):
        reason = ask(policy(), "planner", method=method).reason
        advice = reason.split("add: ")[1].split(" (each")[0].replace("[[rule]] ", "[[rule]]\n").replace(", ", "\n")
        allowed = policy(advice)
        assert allowed.problem is None and ask(allowed, "planner", method=method).allowed


def test_callers(policy):
    one = policy(rule(caller='"planner"'))
    assert ask(one, "planner").allowed and ask(one, "x planner").allowed
    assert not ask(one, "planner2").allowed and not ask(one).allowed and not ask(one, home=True).allowed
    some = policy(rule(caller=f'["a", "home", "fp:{A.upper()}", "door:web"]'))
    assert ask(some, "a", fp=B).allowed and ask(some, fp=B, home=True).allowed and ask(some, fp=A).allowed
    assert ask(some, "door:web", fp="").allowed and not ask(some, "door:other", fp="").allowed
    assert not ask(some, "b", fp=B).allowed
    assert not ask(some, "home", fp=B).allowed, "the word home is no name that can be granted"
    assert ask(policy(rule(caller='"*"')), fp="").allowed


def test_agents(policy):
    some = policy(rule(agent='["worker", "helper"]'))
    assert ask(some).allowed and ask(some, agent="helper").allowed
    assert (
        not ask(some, agent="worker2").allowed and not ask(some, agent="").allowed and not ask(some, agent="*").allowed
    )


@pytest.mark.parametrize("first", [True, False])
def test_a_deny_wins_wherever_it_stands(policy, first):
    rules = [rule(method='["**", "operate"]'), rule(caller='"planner"', method='"admin.*"', allow="false")]
    both = policy(*(reversed(rules) if first else rules))
    verdict = ask(both, "planner", method="admin.x")
    label = f"policy.toml rule {1 if first else 2}"
    assert (verdict.allowed, verdict.rule) == (False, label)
    assert verdict.reason == f"{label} forbids planner to call admin.x of worker."
    assert ask(both, "other", method="admin.x").allowed and ask(both, "planner", method="administrator.x").allowed


def test_a_wildcard_that_denies_covers_the_products_methods_too(policy):
    rules = policy(rule(method='["**", "read", "operate"]'), rule(caller='"bad"', method='"*"', allow="false"))
    assert ask(rules, "good", method="hermes.tap").allowed
    for method in ("hermes.tap", "hermes.status", "text.shout", "x"):
        assert not ask(rules, "bad", method=method).allowed


@pytest.mark.attack(54)
@pytest.mark.parametrize(
    "method", ["ſystem", "ｔext.shout", "text.shout\u200b", "Text.Shout", "text..shout", "", "a" * 129]
)
def test_what_is_no_method_is_never_allowed(policy, method):
    open_to_all = policy(rule())
    verdict = ask(open_to_all, method=method)
    assert not verdict.allowed and verdict.reason.endswith("is not a method name, so no rule can allow it.")
    assert verdict.reason.isascii()


NAMES = ["a", "b", "admin"]
CALLERS = [*NAMES, "home", "*", f"fp:{A}"]
METHODS = ["x", "admin.x", "admin", "administrator.x", "admin.x.y", "hermes.status", "hermes.tap", "hermes.z", "a..b"]
PATTERNS = ["**", "*", "admin.*", "admin", "*.x", "read", "operate", "hermes.*", "admin.*.y"]
# Every pattern against every method, by hand: what it covers in an allowing rule, and what in a denying one.
PLAIN = {
    "**": {"x", "admin.x", "admin", "administrator.x", "admin.x.y"},
    "admin.*": {"admin.x", "admin.x.y"},
    "admin": {"admin"},
    "*.x": {"admin.x", "administrator.x"},
    "read": {"hermes.status"},
    "operate": {"hermes.tap"},
    "hermes.*": {"hermes.status", "hermes.tap", "hermes.z"},
    "admin.*.y": {"admin.x.y"},
}
PLAIN["*"] = PLAIN["**"]
MORE = {"**": PLAIN["hermes.*"], "*": PLAIN["hermes.*"]}


@pytest.mark.attack(55)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(CALLERS), st.sampled_from(["w", "v", "*"]), st.sampled_from(PATTERNS), st.booleans()),
        max_size=5,
    ),
    st.frozensets(st.sampled_from(NAMES)),
    st.sampled_from([A, B]),
    st.booleans(),
)
def test_against_a_naive_model(policy, rules, names, fp, at_home):
    real = policy(*(rule(f'"{c}"', f'"{a}"', f'"{m}"', str(allow).lower()) for c, a, m, allow in rules))
    assert real.problem is None
    callers = {*names, "*", f"fp:{fp}"} | ({"home"} if at_home else set())
    for method in METHODS:
        allows = any(c in callers and a in ("w", "*") and ok and method in PLAIN[m] for c, a, m, ok in rules)
        denies = any(
            c in callers and a in ("w", "*") and not ok and method in PLAIN[m] | MORE.get(m, set())
            for c, a, m, ok in rules
        )
        assert real.verdict(names, fp, at_home, "w", method).allowed == (allows and not denies)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[rule]\n", "policy.toml line 1: "),
        ("[[rules]]\n", "policy.toml line 1: unknown word 'rules'; known are [[rule]]"),
        (rule() + rule(caller="7"), "policy.toml line 7: rule 2: caller must be a text or a list of texts"),
        (rule(caller="[]"), "rule 1: caller must be a text or a list of texts"),
        (rule(caller='"Planner"'), "policy.toml line 1: rule 1: 'Planner' is no caller: write a granted name"),
        (rule(caller='"fp:abc"'), "rule 1: 'fp:abc' is no caller"),
        (rule(caller='"door:"'), "rule 1: 'door:' is no caller"),
        (rule(caller='"plan*"'), "rule 1: 'plan*' is no caller"),
        (rule(agent='"work*"'), "rule 1: 'work*' is no agent: write a whole name or \"*\""),
        (rule(method='"text.sh*"'), "rule 1: 'text.sh*' is no method pattern"),
        (rule(method='"a..b"'), "rule 1: 'a..b' is no method pattern"),
        (rule(allow='"yes"'), "rule 1: allow must be true or false"),
        ('[[rule]]\ncaller = "*"\nagent = "*"\nmethod = "*"\n', "rule 1: allow must be true or false"),
        ('[[rule]]\ncaller = "*"\nagent = "*"\nallow = true\n', 'rule 1: method is missing ("*" means any)'),
        (rule() + "if = 1\n", "policy.toml line 1: unknown word 'if'; known are agent, allow, caller, method, note"),
    ],
)
def test_every_mistake_has_a_sentence(policy, text, problem):
    broken = policy(text)
    assert problem in broken.problem and broken.problem.endswith("repair it; until then nothing is allowed.")
    assert not ask(broken).allowed


def test_a_broken_file_keeps_the_last_good_rules(home, policy):
    running = policy(rule(caller='"planner"'))
    home.policy_file.write_text(rule(caller='"planner"') + "\n[[rule]]\ncaller = \n")
    assert not running.reload_if_changed()
    assert running.problem.startswith("policy.toml line 9: ")
    assert running.problem.endswith("until then the last good rules stay in force.")
    assert ask(running, "planner").allowed and not ask(running, "other").allowed
    home.policy_file.chmod(0o666)
    assert not running.reload_if_changed() and "Other users can change the policy" in running.problem
    home.policy_file.chmod(0o600)
    home.policy_file.write_text("")
    assert running.reload_if_changed() and running.problem is None and not ask(running, "planner").allowed


def test_a_missing_file_allows_nothing_and_says_so(home):
    running = Policy(home)
    home.policy_file.unlink()
    assert running.reload_if_changed() and running.problem is None
    assert ask(running, home=True).reason == "policy.toml is missing, so nothing is allowed; run: hermes-peer init"
    home.restore()
    assert running.reload_if_changed() and ask(running, home=True).allowed


def test_reload_forgets_old_verdicts(home, policy):
    running = policy(rule())
    assert ask(running).allowed and not running.reload_if_changed()
    home.policy_file.write_text("")
    assert ask(running).allowed, "one look-up: the file is not read in between"
    assert running.reload_if_changed() and not ask(running).allowed


def test_a_known_question_is_one_look_up(policy, monkeypatch):
    running = policy(rule())
    first = ask(running)
    monkeypatch.setattr(Policy, "_decide", None)
    assert ask(running) is first


def test_the_cache_is_bounded_whatever_a_stranger_asks(policy, monkeypatch):
    monkeypatch.setattr(module, "CACHE_MAX", 50)
    running = policy(rule())
    for number in range(200):
        assert ask(running, method=f"m{number}").allowed
        assert len(running._verdicts) <= 50
    before = len(running._verdicts)
    ask(running, method="x" * 100_000)
    assert len(running._verdicts) == before


def test_the_word_public_is_what_its_author_marked_so(policy):
    running = policy(rule(caller='"door:loopback"', method='"public"'))

    def word(method, public, names=("door:loopback",)):
        return running.verdict(frozenset(names), "", False, "worker", method, public).allowed

    assert word("text.shout", True) and not word("text.shout", False)
    assert word("text.shout", True), "one question is not answered by what another was told"
    assert word("public", True) and not word("public", False), "a method of that name is nothing special"
    assert not word("text.shout", True, names=("door:other",))
    denied = policy(rule(method='"public"') + rule(method='"text.*"', allow="false"))
    assert not denied.verdict(frozenset({"x"}), "", False, "worker", "text.shout", True).allowed
    closed = policy(rule(method='"**"') + rule(method='"public"', allow="false"))
    assert not closed.verdict(frozenset({"x"}), "", False, "worker", "a", True).allowed
    assert closed.verdict(frozenset({"x"}), "", False, "worker", "a", False).allowed
