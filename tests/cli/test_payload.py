"""key=value, JSON, stdin."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_peer.cli import payload
from hermes_peer.errors import (
    UsageError,
)
from tests.cli.conftest import Place, codes, shell


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], {}),
        (["a=1", "b=x", "c="], {"a": 1, "b": "x", "c": ""}),
        (["a=[1, 2]", 'b={"c": null}'], {"a": [1, 2], "b": {"c": None}}),
        (["a=NaN", "b=1e999", "c=007", 'd={"x"'], {"a": "NaN", "b": "1e999", "c": "007", "d": '{"x"'}),
        (['a={"k": 1, "k": 2}'], {"a": '{"k": 1, "k": 2}'}),
        (['{"a": 1}'], {"a": 1}),
        (["text=-"], {"text": "-"}),
    ],
)
def test_payloads(words: list[str], value: dict[str, Any]) -> None:
    assert payload.payload_of(words) == value


@pytest.mark.parametrize("words", [["=1"], ["abc"], ["a=1", "a=1"], ["[1]"], ['{"a": 1, "a": 2}'], ["a=1", "-"]])
def test_payloads_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        payload.payload_of(words)


def test_input_without_end_ends(place: Place) -> None:
    done = shell(place, "yes | hp call rich echo -")
    assert codes(done)[1] == 2 and done.stderr.count("\n") == 1 and "MiB came in on stdin" in done.stderr
