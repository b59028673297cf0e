"""Operations: every one is known to the rules or to both journals."""

from __future__ import annotations

from typing import get_args

from hermes_peer.journal import operations as op
from hermes_peer.journal import rules


def test_every_operation_has_a_rule_or_is_a_whole_row() -> None:
    whole = {op.Submit, op.Take, op.Settle, op.Expire}
    assert {*get_args(op.Operation)} == whole | rules.SENT_RULES.keys() | rules.TAKEN_RULES.keys()
