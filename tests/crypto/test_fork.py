"""A forked child must not go on with its parent's keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from hermes_peer.crypto.fork import perish_in_child
from hermes_peer.crypto.seal import Sealer
from hermes_peer.errors import UsageError

from .other import Other
from .rig import A_SEED, B_SEED, acceptor, dialler, nothing, run_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(check: Callable[[], bool]) -> bool:
    """True if `check` was true in a forked child."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def misuse(step: Callable[[], object]) -> bool:
    try:
        step()
    except UsageError:
        return True
    return False


@pytest.mark.attack(24)
def test_attack_24_a_child_cannot_seal() -> None:
    sealer = Sealer(run_of(1))
    first = sealer.seal(b"one")
    assert in_child(lambda: misuse(lambda: sealer.seal(b"two")) and misuse(sealer.rekey))
    assert in_child(lambda: misuse(lambda: sealer.seal(b"two")))
    assert sealer.seal(b"two")[11:15] == b"\0\0\0\1" != first[11:15]


@pytest.mark.attack(24)
def test_attack_24_a_child_makes_sealers_of_its_own() -> None:
    assert in_child(lambda: len(Sealer(run_of(2)).seal(b"x")) == 36)


@pytest.mark.attack(24)
def test_attack_24_a_child_cannot_end_a_handshake() -> None:
    d, a = dialler(), acceptor()
    hello = d.hello()
    welcome = Other(B_SEED).welcome(hello)
    them = Other(A_SEED)
    ready = them.ready(a.hello(them.hello(a.identity.fingerprint), nothing))
    assert in_child(lambda: misuse(lambda: d.welcome(welcome)) and misuse(lambda: a.ready(ready)))
    d.welcome(welcome)
    a.ready(ready)


def test_nothing_is_kept_alive() -> None:
    class Thing:
        def perish(self) -> None:
            raise AssertionError

    thing = Thing()
    perish_in_child(thing)
    before = sys.getrefcount(thing)
    perish_in_child(thing)
    assert sys.getrefcount(thing) == before
