"""Spacing, ids, ends as values."""

from __future__ import annotations

import uuid

import pytest

from hermes_peer.agent.durable import retry
from hermes_peer.errors import CallError
from hermes_peer.wire import messages
from hermes_peer.wire.messages import Envelope
from tests.agent.durable.rig import quick_retries


@pytest.mark.parametrize(
    ("attempts", "low"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (60, 30), (5000, 30)]
)
def test_pauses_double_and_are_not_in_step(attempts: int, low: float) -> None:
    with quick_retries(1.0):
        found = [retry.pause(attempts) for _ in range(200)]
    assert low <= min(found) < low * 1.1 and low * 1.4 < max(found) <= low * 1.5


def test_what_was_asked_is_the_least() -> None:
    with quick_retries(1.0):
        assert retry.pause(1, 77.0) == 77.0 and retry.pause(1, 0.1) >= 1.0


def test_ids_are_version_7_and_sort_by_time() -> None:
    ids = [retry.new_work_id(1_700_000_000_000 + i) for i in range(100)]
    assert ids == sorted(ids) and len(set(ids)) == 100
    assert {(uuid.UUID(id).version, uuid.UUID(id).variant) for id in ids} == {(7, uuid.RFC_4122)}


def test_a_key_names_one_step_of_one_method_of_one_target() -> None:
    ids = {retry.key_id(t, m, k) for t in ("a", "ab") for m in ("b", "bc") for k in ("c", "k", "ü" * 128)}
    assert len(ids) == 12 and all(len(id) <= 128 and id.isascii() for id in ids)
    assert retry.key_id("a", "b", "c") == retry.key_id("a", "b", "c")


def test_supersedes() -> None:
    def of(round: int, attempt: int) -> Envelope:
        return Envelope(round=round, attempt=attempt)

    order = [of(0, 1), of(0, 2), of(5, 1), of(5, 2), of(6, 1)]
    for i, new in enumerate(order):
        for j, old in enumerate(order):
            assert retry.supersedes(new, old) == (i > j)


def test_ends() -> None:
    end = retry.read_end(messages.encode_end(Envelope("response", items=3), b"[1]"))
    assert (end.value, end.error, end.items) == ([1], None, 3)
    end = retry.read_end(retry.error_answer(CallError("nope", "broken", retryable=True)), "t")
    assert end.error is not None and (end.error.reason, end.error.retryable) == ("nope", True)
    for broken in (b"", b"\4", b"\4\0\0\0\xff{}", messages.encode_end(Envelope("response"), b"{")):
        end = retry.read_end(broken)
        assert end.error is not None and end.error.reason == "bad_answer"


@pytest.mark.parametrize("value", [None, 1, "x", [1, {"a": None}], b"", b"\0\xff"])
def test_items(value: object) -> None:
    assert retry.item_value(retry.item_bytes(value)) == value
    assert not retry.is_progress(retry.item_bytes(value))


def test_progress_is_told_from_items() -> None:
    assert retry.is_progress(retry.item_bytes({"progress": {"state": "x"}}))
