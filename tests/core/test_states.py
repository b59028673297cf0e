"""The tables over their full product: what is not listed here must not be in them."""

from __future__ import annotations

from itertools import product

import pytest

from hermes_peer.core.states import (
    CLEAR,
    FINAL,
    HALF,
    LINK,
    RECEIVING_HALF,
    SESSION,
    Half,
    HalfInput,
    LinkInput,
    LinkState,
    Reason,
    SessionInput,
    SessionState,
    reason_of,
)


def table(text: str, states: type, inputs: type) -> dict:
    """Rows of `state: next next ...`, one column an input, `-` for none."""
    rows = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        state, nexts = line.split(":")
        for input, following in zip(inputs, nexts.split(), strict=True):
            if following != "-":
                rows[states[state.strip()], input] = states[following]
    return rows


HALVES = """
OPEN:    OPEN    ENDED   ABORTED
ENDED:   -       -       ABORTED
ABORTED: -       -       -
"""
RECEIVING = """
OPEN:    OPEN    ENDED   ABORTED
ENDED:   -       -       ABORTED
ABORTED: ABORTED ABORTED ABORTED
"""
SESSIONS = """
DETACHED: RESUMING -    DETACHED ENDED
RESUMING: RESUMING LIVE DETACHED ENDED
LIVE:     RESUMING -    DETACHED ENDED
ENDED:    -        -    -        -
"""
# Inputs:  HELLO WELCOME READY LINK CLOSE EOF
LINKS = """
HELLO:   READY LINK    -    -    CLOSING CLOSED
READY:   -     -       LINK -    CLOSING CLOSED
LINK:    -     -       -    OPEN CLOSING CLOSED
OPEN:    -     -       -    -    CLOSING CLOSED
CLOSING: -     -       -    -    CLOSING CLOSED
CLOSED:  -     -       -    -    CLOSED  CLOSED
"""


@pytest.mark.parametrize(
    ("real", "text", "states", "inputs"),
    [
        (HALF, HALVES, Half, HalfInput),
        (RECEIVING_HALF, RECEIVING, Half, HalfInput),
        (SESSION, SESSIONS, SessionState, SessionInput),
        (LINK, LINKS, LinkState, LinkInput),
    ],
    ids=["half", "receiving half", "session", "link"],
)
def test_a_table_holds_these_rows_and_no_other(real, text, states, inputs) -> None:
    wanted = table(text, states, inputs)
    for pair in product(states, inputs):
        assert real.get(pair) == wanted.get(pair), pair
    assert set(real) <= set(product(states, inputs))


def test_no_way_leads_back_on_a_link() -> None:
    order = list(LinkState)
    for (state, _), following in LINK.items():
        assert order.index(following) >= order.index(state)


def test_codes_are_stable_and_unknown_ones_say_nothing() -> None:
    assert [int(r) for r in Reason] == [*range(19), 20]  # 19 was never used
    assert reason_of(6) is Reason.UNTRUSTED
    assert reason_of(77) is Reason.NONE
    assert Reason.NONE not in FINAL and Reason.LOST not in FINAL and Reason.BUSY not in FINAL
    assert Reason.UNTRUSTED not in CLEAR
