"""Attackers on the line between two honest sides, and thieves of a key or a psk (SR section 4)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag

from hermes_peer.crypto.handshake import HandshakeError
from hermes_peer.crypto.keys import Context
from hermes_peer.errors import UsageError

from .other import DIALLER, Other, message, offer, read_hello, retag, v8, v16
from .rig import (
    A_SEED,
    B_SEED,
    BOTH,
    C_SEED,
    ONE,
    SESSION,
    A,
    B,
    C,
    acceptor,
    dialler,
    flips,
    keeps,
    nothing,
    refused,
    run_of,
    shake,
)

PSK, OLD, RID = run_of(0x50), run_of(0xD0, 16), run_of(0x70, 16)
NONE = bytes(32)


@pytest.mark.attack(1)
def test_attack_1_a_man_in_the_middle_with_his_own_shares() -> None:
    d, a = dialler(caps=b""), acceptor()
    to_b, to_a = Other(C_SEED, random=run_of(1)), Other(C_SEED, random=run_of(2))
    hello = d.hello()
    welcome = a.hello(to_b.hello(B.fingerprint), nothing)  # he dials B himself
    session = to_b.read_welcome(welcome)
    again = Other(C_SEED)  # opens B's block once more, for its signature
    again.th = to_b.th1
    sig_of_b = again.open(to_b.r_hs, welcome[74:])[-96:-32]
    answer = to_a.welcome(hello, session=session, cert=B.spki, sign=lambda *_: sig_of_b)
    refused(lambda: d.welcome(answer), "signature")
    # And if he lets A see the real B, B's AuthBlock is under keys that A does not have.
    spliced = message(2, to_a.clear + welcome[74:])
    d = dialler(caps=b"")
    d.hello()
    refused(lambda: d.welcome(spliced), "seal")
    # Towards B he has nothing of A's to show.
    ready = message(3, to_b.block(to_b.i_hs, DIALLER, versions=(1,), suites=(2,), session=session, cert=A.spki))
    refused(lambda: a.ready(ready), "signature")


@pytest.mark.attack(1)
@pytest.mark.parametrize(("offset", "name"), [(8, "random"), (40, "share")])
def test_attack_1_fields_of_welcome_swapped_on_the_way(offset: int, name: str) -> None:
    d, a = dialler(), acceptor()
    welcome = a.hello(d.hello(), nothing)
    wrong = welcome[:offset] + Other(C_SEED).share + welcome[offset + 32 :]
    refused(lambda: d.welcome(wrong), "seal")


@pytest.mark.attack(1)
def test_attack_1_bits_of_suite_1() -> None:
    """A sample: suite 2 is tested bit by bit beside each side."""
    d, a = dialler(ONE), acceptor(ONE)
    hello = d.hello()
    welcome = a.hello(hello, nothing)
    ready = d.welcome(welcome)
    assert (len(hello), len(welcome), len(ready)) == (1276, 1530, 372)
    for _, wrong in flips(hello, 59):
        refused(lambda w=wrong: acceptor(ONE).hello(w, nothing), "to", "parse")
    for bit, wrong in flips(hello, 59):
        if 32 <= bit < (len(hello) - 16) * 8:
            d2, a2 = dialler(ONE), acceptor(ONE)
            d2.hello()
            try:
                answer = a2.hello(retag(wrong, B.fingerprint), nothing)
            except HandshakeError:
                continue
            refused(lambda d2=d2, w=answer: d2.welcome(w), "seal")
    for _, wrong in flips(welcome, 59):
        d2 = dialler(ONE)
        d2.hello()
        refused(lambda d2=d2, w=wrong: d2.welcome(w))
        assert d2.outcome is None
    for _, wrong in flips(ready, 59):
        a2 = acceptor(ONE)
        assert a2.hello(hello, nothing) == welcome
        refused(lambda a2=a2, w=wrong: a2.ready(w), "parse", "seal")
    a.ready(ready)


@pytest.mark.attack(2)
def test_attack_2_an_insider_swaps_the_diallers_block_for_his_own() -> None:
    """E, whom B trusts, relays A's dial and at its end puts himself in A's place."""
    d, a, e = dialler(), acceptor(), Other(C_SEED)
    hello = d.hello()
    welcome = a.hello(hello, nothing)
    d.welcome(welcome)
    e.mix(hello)
    e.mix(welcome[4:74])
    e.keys(NONE)  # he has no share in the exchange; any guess is as good
    ready = message(3, e.block(e.i_hs, DIALLER, versions=(1,), suites=(2,), session=SESSION))
    refused(lambda: a.ready(ready), "seal")


@pytest.mark.attack(2)
def test_attack_2_an_insider_forwards_a_dial_meant_for_him() -> None:
    """A dials E; E wants A to have spoken to B."""
    hello = dialler(peer=C).hello()
    refused(lambda: acceptor().hello(hello, nothing), "to")
    d = dialler(peer=C)
    assert d.hello() == hello
    welcome = acceptor().hello(retag(hello, B.fingerprint), nothing)
    refused(lambda: d.welcome(welcome), "seal")


@pytest.mark.attack(3)
def test_attack_3_echoes() -> None:
    d, a = dialler(), acceptor()
    hello = d.hello()
    welcome = a.hello(hello, nothing)
    for echo in (hello, b"\2" + hello[1:]):
        d2 = dialler()
        d2.hello()
        refused(lambda d2=d2, echo=echo: d2.welcome(echo))
    refused(lambda: acceptor(who=A).hello(hello, nothing), "to")
    a2 = acceptor()
    a2.hello(hello, nothing)
    refused(lambda: a2.ready(message(3, welcome[74:])), "seal")  # B's own block, sent back to it
    ready = d.welcome(welcome)
    d3 = dialler()
    d3.hello()
    refused(lambda: d3.welcome(message(2, welcome[4:74] + ready[4:])), "seal")


@pytest.mark.attack(4)
def test_attack_4_a_replayed_hello_ends_in_nothing() -> None:
    d, a = dialler(), acceptor(label="first")
    hello = d.hello()
    ready = d.welcome(a.hello(hello, nothing))
    a.ready(ready)
    later = acceptor(label="later")
    later.hello(hello, nothing)
    refused(lambda: later.ready(ready), "seal")


@pytest.mark.attack(5)
@pytest.mark.parametrize("same_psk", [False, True])
def test_attack_5_splices_of_runs_all_pairs(same_psk: bool) -> None:
    """Four runs, two pairs of nodes: each message to each run; only its own run takes it."""
    runs = [(A, B, "one"), (A, B, "two"), (C, B, "three"), (B, A, "four")]
    resume: dict[str, Any] = {"psk": PSK, "resume_id": RID} if same_psk else {}
    find = keeps(RID, PSK, OLD)

    def fresh(run: tuple[Any, Any, str]) -> tuple[Any, Any]:
        who, peer, label = run
        return dialler(who=who, peer=peer, label=label, **resume), acceptor(who=peer, label="to " + label)

    made = []
    for run in runs:
        d, a = fresh(run)
        hello = d.hello()
        welcome = a.hello(hello, find)
        made.append((hello, welcome, d.welcome(welcome)))
    for (i, run), (j, (_, welcome, ready)) in product(enumerate(runs), enumerate(made)):
        d, a = fresh(run)
        hello = d.hello()
        assert a.hello(hello, find) == made[i][1]
        if i == j:
            assert d.welcome(welcome) == ready
            a.ready(ready)
        else:
            refused(lambda d=d, w=welcome: d.welcome(w), "seal")
            refused(lambda a=a, r=ready: a.ready(r), "seal")
            assert d.outcome is None


@pytest.mark.attack(6)
@pytest.mark.parametrize(
    ("versions", "suites"),
    [((1, 2), (2,)), ((1,), (1, 2)), ((1,), (2,)), ((2, 1), (1, 2)), ((1, 2), (2, 1)), ((1, 2, 3), (1, 2))],
)
def test_attack_6_offers_stripped_on_the_way(versions: tuple[int, ...], suites: tuple[int, ...]) -> None:
    d, a = dialler(BOTH), acceptor(BOTH)
    seen = read_hello(d.hello())
    body = offer(versions, suites) + seen.random + seen.share
    body += v16(seen.ek if 1 in suites else b"") + v8(b"")
    welcome = a.hello(retag(message(1, body + bytes(16)), B.fingerprint), nothing)
    refused(lambda: d.welcome(welcome), "seal")


@pytest.mark.attack(6)
@pytest.mark.parametrize(("at", "value"), [(5, 1), (5, 3), (6, 2), (6, 3), (7, 1)])
def test_attack_6_choices_changed_on_the_way(at: int, value: int) -> None:
    """Byte 5: version, 6: suite, 7: resumed."""
    d, a = dialler(BOTH, psk=PSK, resume_id=RID), acceptor(BOTH)
    welcome = bytearray(a.hello(d.hello(), nothing))
    assert welcome[at] != value
    welcome[at] = value
    refused(lambda: d.welcome(bytes(welcome)), "version", "suite", "mlkem", "seal")


@pytest.mark.attack(6)
def test_attack_6_suite_2_in_place_of_1_with_the_ciphertext_cut_out() -> None:
    d, a = dialler(BOTH), acceptor(BOTH)
    welcome = a.hello(d.hello(), nothing)
    cut = welcome[4:6] + b"\2" + welcome[7:72] + b"\0\0" + welcome[74 + 1088 :]
    refused(lambda: d.welcome(message(2, cut)), "seal")


@pytest.mark.attack(10)
def test_attack_10_a_thief_of_a_key_is_nobody_else_to_its_owner() -> None:
    """The thief of A's key to A: as B that A dials, and as B that dials A."""
    for lie, reason in (({}, "self"), ({"cert": B.spki}, "signature")):
        d = dialler()
        answer = Other(A_SEED).welcome(d.hello(), **lie)
        refused(lambda d=d, answer=answer: d.welcome(answer), reason)
    a, thief = acceptor(who=A), Other(A_SEED)
    ready = thief.ready(a.hello(thief.hello(A.fingerprint), nothing), cert=B.spki)
    refused(lambda: a.ready(ready), "signature")


@pytest.mark.attack(10)
def test_attack_10_signatures_that_b_gave_elsewhere_do_not_help() -> None:
    for context in Context:
        d = dialler()
        answer = Other(A_SEED).welcome(d.hello(), cert=B.spki, sign=lambda _, th, c=context: B.sign(c, b"x"))
        refused(lambda d=d, answer=answer: d.welcome(answer), "signature")


@pytest.mark.attack(14)
def test_attack_14_every_message_at_every_step() -> None:
    """Only the one right message of the one right run moves a side on."""
    d, a = dialler(), acceptor()
    hello = d.hello()
    welcome = a.hello(hello, nothing)
    ready = d.welcome(welcome)
    everything = {"hello": hello, "welcome": welcome, "ready": ready, "empty": b"", "zeros": bytes(64)}
    for name, data in everything.items():
        if name != "hello":
            refused(lambda data=data: acceptor().hello(data, nothing), "to")
        if name != "welcome":
            d2 = dialler()
            d2.hello()
            refused(lambda d2=d2, data=data: d2.welcome(data), "parse")
            assert d2.outcome is None
        if name != "ready":
            a2 = acceptor()
            a2.hello(hello, nothing)
            refused(lambda a2=a2, data=data: a2.ready(data), "parse")
        for step in (dialler().welcome, acceptor().ready):
            with pytest.raises(UsageError):
                step(data)


@pytest.mark.attack(18)
def test_attack_18_the_stranger_leaves_the_session_as_it_was() -> None:
    thief, a = Other(C_SEED), acceptor()
    welcome = a.hello(thief.hello(B.fingerprint, rid=RID), keeps(RID, PSK, OLD, A.fingerprint))
    with pytest.raises(InvalidTag):
        thief.ready(welcome)
    one, _ = shake(dialler(psk=PSK, resume_id=RID), acceptor(), keeps(RID, PSK, OLD, A.fingerprint))
    assert one.resumed and one.session == OLD


@pytest.mark.attack(18)
def test_attack_18_an_acceptor_without_the_psk_cannot_claim_it() -> None:
    d = dialler(psk=PSK, resume_id=RID)
    answer = Other(B_SEED).welcome(d.hello(), resumed=1)
    refused(lambda: d.welcome(answer), "seal")


@pytest.mark.attack(20)
def test_attack_20_key_and_id_without_psk() -> None:
    thief, a = Other(A_SEED), acceptor()
    welcome = a.hello(thief.hello(B.fingerprint, rid=RID), keeps(RID, PSK, OLD, A.fingerprint))
    with pytest.raises(InvalidTag):
        thief.ready(welcome)
    one, _ = shake(dialler(), acceptor(), keeps(RID, PSK, OLD, A.fingerprint))
    assert not one.resumed and one.session == SESSION
