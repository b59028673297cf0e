"""agent/values."""

from hermes_peer import Final


def test_final_shows_its_value() -> None:
    assert repr(Final({"n": 1})) == "Final({'n': 1})"
    assert Final().value is None
