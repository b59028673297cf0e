"""`call`: what is sent, what is shown, and every way to fail in one sentence."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

from tests.cli.conftest import Place, together


def test_call(place: Place) -> None:
    sent = {"n": 3, "s": "3", "name": "Ann", "list": [1], "zero": "007", "x": "a=b"}
    words = ("n=3", 's="3"', "name=Ann", "list=[1]", "zero=007", "x=a=b")

    def check(expected: str, *words: str, said: str = "", **more: str) -> None:
        done = place.hp("call", "rich", *words, **more)
        assert (done.stdout, done.stderr) == (expected + "\n", said)

    together(
        [
            partial(check, '{"text": "HI"}', "text.shout", "text=hi"),
            partial(check, json.dumps({"result": sent}), "echo", *words, "--json"),
            partial(check, '{"a": {"b": null}}', "echo", '{"a": {"b": null}}'),
            partial(check, '{"a": "é"}', "echo", "-", input='{"a": "é"}'),
            partial(check, "abc", "trace", "--trace-id", "abc"),
            partial(check, "done", "slow", "seconds=0.01", said="hermes-peer: thinking, 3 tokens\n"),
        ]
    )


def test_what_a_peer_says_gives_no_orders_to_the_terminal(place: Place) -> None:
    assert place.hp("call", "rich", "nasty").stdout == '"a\\u001b[31mred\\u0007\\u202egnp"\n'
    assert place.refusal("call", "rich", "fail", code=1) == "there is none left\\u001b[2J"


def test_an_error_as_json(place: Place) -> None:
    done = place.hp("call", "rich", "fail", "--json", code=1)
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["reason"], error["details"]) == (10, "no_stock", {"sku": 3})
    assert done.stderr.count("\n") == 1


SENTENCES = [
    (("call", "rich", "nope"), 1, "there is no method `nope`; you may call `crash`"),
    (("call", "rich", "tokens", "n=abc"), 1, "field `n`: expected int, got str"),
    (("call", "rich", "crash"), 1, "the method failed; its log has the reference"),
    (("call", "rich", "slow", "--ttl", "0.2", "tag=ttl"), 1, "ttl"),
    (("call", "rich", "Shout!"), 2, "cannot be a method name"),
    (("call", "rich", "echo", "abc"), 2, "'abc' is not key=value; write the payload as key=value"),
    (("call", "rich", "echo", "--ttl", "-1"), 2, "seconds must be a number above 0; see 'hermes-peer call --help'"),
    (("call", "rich"), 2, "Missing argument 'METHOD'; see 'hermes-peer call --help'"),
    (("nonsense",), 2, "No such command 'nonsense'; see 'hermes-peer --help'"),
    (("call", "nobody", "x"), 3, "no agent named nobody runs in this home: start it first; running: rich"),
    (("ping", "hermes://127.0.0.1:1"), 2, "whose address is hermes://127.0.0.1:1?"),
    (("call", "ab" * 32, "x"), 4, "is not trusted here; if you know it, run: hermes-peer trust add abab"),
]


def test_one_sentence(place: Place) -> None:
    def check(words: tuple[str, ...], code: int, says: str) -> None:
        sentence = place.hp(*words, code=code).stderr.splitlines()[-1]
        assert says in sentence and len(sentence) < 400

    together(partial(check, *each) for each in SENTENCES)


def test_dead_address_and_wrong_key_at_an_address(place: Place, tmp_path: Path) -> None:
    assert place.agent is not None
    key = place.hp("trust", "show", "rich").stdout.split()[3]
    dead = place.refusal("call", f"hermes://{key}@127.0.0.1:1", "echo", code=3)
    assert dead == "cannot connect to hermes://127.0.0.1:1: connection refused; check that the agent runs there"
    other = Place(tmp_path / "home", tmp_path)
    stranger = other.hp("trust", "show").stdout.split()[3]
    place.hp("trust", "add", stranger, "name=stranger")
    port = place.agent.address.rpartition(":")[2]
    said = place.refusal("call", f"hermes://{stranger}@127.0.0.1:{port}", "echo", code=3)
    assert f"it does not hold the key {stranger} of stranger" in said and "trust show" in said
    place.hp("trust", "remove", stranger)


def test_a_payload_over_the_limit(place: Place) -> None:
    large = '{"t": "' + "x" * 6 * 1024 * 1024 + '"}'
    said = place.refusal("call", "rich", "echo", "-", input=large, code=2)
    assert "is over the limit of 5242880" in said and "stream" in said
    assert place.hp("call", "rich", "echo", "a=1").stdout == '{"a": 1}\n'


def test_a_key_that_cannot_be_used(fresh: Place) -> None:
    fresh.hp("trust", "show")
    key = fresh.home / "agents" / "cli" / "1" / "key.pem"
    os.chmod(key, 0o644)
    assert "chmod 600" in fresh.refusal("list", code=2)
    key.write_text("garbage")
    os.chmod(key, 0o600)
    assert "put a good copy back, or move it away to get a new one: mv " in fresh.refusal("call", "x", "y", code=2)
