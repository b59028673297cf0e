"""Rows as columns: they come back, and a single wrong bit anywhere is found (attack 73)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_peer.journal import schema
from hermes_peer.journal.schema import SENT, TAKEN, Side

from .rig import a_sent, a_taken, flipped

A_SENT = a_sent(seq=7, outcome=b"out", why="späť", requeued_by="me")
A_TAKEN = a_taken(seq=9, idempotency_key="k", next_item=3, first_item=1)
ROWS = [(SENT, schema.sent_columns(A_SENT)), (TAKEN, schema.taken_columns(A_TAKEN))]


def test_rows_come_back() -> None:
    assert schema.sent_of(schema.sent_columns(A_SENT)) == A_SENT
    assert schema.taken_of(schema.taken_columns(A_TAKEN)) == A_TAKEN


@pytest.mark.parametrize(("side", "row"), ROWS, ids=["sent", "taken"])
def test_every_bit_of_every_column_counts(side: Side, row: tuple[Any, ...]) -> None:
    assert side.damage(row) == ""
    for column in range(len(row)):
        bits = 63 if isinstance(row[column], int) else max(8, len(row[column] or b"x") * 8)
        for bit in range(bits):
            wrong = (*row[:column], flipped(row[column], bit), *row[column + 1 :])
            assert side.damage(wrong), f"column {column}, bit {bit}"


@pytest.mark.parametrize(("side", "row"), ROWS, ids=["sent", "taken"])
def test_a_light_row_is_checked_too(side: Side, row: tuple[Any, ...]) -> None:
    light = row[: side.light_width]
    assert side.damage(light) == ""
    for column in range(side.keys, side.light_width):
        assert side.damage((*light[:column], flipped(light[column], 0), *light[column + 1 :]))


@pytest.mark.parametrize("strange", [None, "text", 1.5, 1 << 62, b"", -1])
def test_a_column_of_a_strange_type_is_damage_and_not_an_error(strange: Any) -> None:
    for side, row in ROWS:
        for column in range(len(row)):
            if row[column] != strange:
                assert side.damage((*row[:column], strange, *row[column + 1 :]))


def test_a_change_writes_only_what_changed() -> None:
    row = schema.sent_columns(A_SENT)[: SENT.light_width]
    after = schema.sent_mutable(schema.sent_of(row))
    attempts = (*after[:2], 5, *after[3:])
    sql, values = SENT.changed(row, attempts)
    assert sql == "UPDATE hermes_sent SET attempts=?,sum=? WHERE seq=?" and values[0] == 5 and values[-1] == 7
