"""Codes, exceptions and the error object: one table, both ways."""

from __future__ import annotations

import pytest

from hermes_peer import errors
from hermes_peer.errors import CallError, Code, call_error, error_body

KINDS = [
    errors.MethodNotFound,
    errors.PermissionDenied,
    errors.DeadlineExceeded,
    errors.Unavailable,
    errors.RateLimited,
    errors.CallError,
]


def test_there_are_twelve_codes_from_0_to_11() -> None:
    assert [int(code) for code in Code] == list(range(12))
    assert Code(0).name == "SUCCESS"
    assert Code(11).name == "ERROR_RATE_LIMIT_EXCEEDED"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_back_as_what_it_went(kind: type[CallError]) -> None:
    went = kind("my_reason", "what to do", details={"n": [1]}, retryable=True, retry_after=2.5)
    came = call_error(error_body(went), "trace")
    assert type(came) is kind
    assert (came.reason, came.message, came.details) == ("my_reason", "what to do", {"n": [1]})
    assert (came.retryable, came.retry_after, came.trace_id) == (True, 2.5, "trace")
    assert came.code == went.code


@pytest.mark.parametrize("kind", [errors.Cancelled, errors.OutcomeUnknown])
def test_kinds_without_a_code_of_their_own_go_by_reason(kind: type[CallError]) -> None:
    reason = {errors.Cancelled: "cancelled", errors.OutcomeUnknown: "outcome_unknown"}[kind]
    assert type(call_error(error_body(kind(reason)))) is kind


@pytest.mark.parametrize(
    "body",
    [{}, {"code": 99}, {"code": "3"}, {"code": None, "reason": 7}, {"retry_after": "soon", "retryable": "yes"}],
)
def test_a_strange_error_object_is_still_an_error(body: dict[str, object]) -> None:
    error = call_error(body)
    assert error.code is Code.ERROR_UNKNOWN
    assert error.retryable is False and error.retry_after is None
    assert str(error)


def test_python_s_own_kinds() -> None:
    assert issubclass(errors.PermissionDenied, PermissionError)
    assert issubclass(errors.DeadlineExceeded, TimeoutError)
    late = errors.DeadlineExceeded("ttl", "late", origin="local", timer="connect")
    assert (late.origin, late.timer) == ("local", "connect")
    assert errors.SessionLost("gone", ran="no", offset=4).offset == 4


def test_an_error_says_its_reason_when_it_has_no_message() -> None:
    assert str(CallError("out_of_stock")) == "out of stock"
    assert CallError().reason == "application"
