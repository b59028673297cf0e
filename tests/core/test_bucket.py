"""A bucket of tokens for each address: when it gives, when it does not, and whom it forgets."""

from __future__ import annotations

import pytest

from hermes_peer.core.bucket import Bucket

CASES: list[tuple[str, list[tuple[str, float, bool]]]] = [
    ("a full one gives its burst", [("a", 1.0, True)] * 4 + [("a", 1.0, False)] * 2),
    ("it refills by the rate", [("a", 1.0, True)] * 4 + [("a", 1.4, False), ("a", 1.5, True), ("a", 1.5, False)]),
    ("what was refused costs nothing", [("a", 1.0, True)] * 4 + [("a", 1.0 + n / 10, False) for n in range(5)]
     + [("a", 1.5, True)]),
    ("never over its burst", [("a", 1.0, True), *[("a", 99.0, True)] * 4, ("a", 99.0, False)]),
    ("each address has its own", [("a", 1.0, True)] * 4 + [("a", 1.0, False), ("b", 1.0, True)]),
    ("time that goes back gives nothing", [("a", 2.0, True)] * 4 + [("a", 1.0, False), ("a", 1.4, False)]),
    ("the longest quiet is forgotten", [("a", 1.0, True)] * 4 + [("b", 1.0, True), ("c", 1.0, True), ("a", 1.0, True)]),
    ("who asks stays known", [("a", 1.0, True)] * 4 + [("b", 1.0, True), ("a", 1.0, False), ("c", 1.0, True),
     ("a", 1.0, False)]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "steps"), CASES, ids=[what for what, _ in CASES])
def test_bucket(what: str, steps: list[tuple[str, float, bool]]) -> None:
    bucket = Bucket(rate=2.0, burst=4.0, most=2)
    assert [(a, t, bucket.take(a, t)) for a, t, _ in steps] == steps


def test_the_table_is_bounded() -> None:
    bucket = Bucket(most=100)
    for n in range(1000):
        assert bucket.take(str(n), 1.0)
    assert len(bucket._left) == 100
