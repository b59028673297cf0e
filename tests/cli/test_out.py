"""Values, rows and other people's text on their way to a terminal."""

from __future__ import annotations

import pytest

from hermes_peer.cli import out


def test_values_as_text() -> None:
    assert out.value_text("héllo") == "héllo"
    assert out.value_text("a\nb") == '"a\\nb"'
    assert out.value_text("") == ""
    assert out.value_text({"a": 1}) == '{"a": 1}'
    assert out.as_json("\x7f\x9b\u202e\x00") == '"\\u007f\\u009b\\u202e\\u0000"'
    assert out.shown("a\r\nb") == "a\\r\\nb"
    assert out.shown_lines("a\nb\x1b") == "a\nb\\u001b"


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", lambda: 12)
    assert out.table(("A", "B"), [("x", "yyyy"), ("xx", "y")]) == "A   B\nx   yyyy\nxx  y"
    monkeypatch.setattr(out, "width", lambda: 5)
    assert out.table(("A", "B"), [("x", "yyyy")]) == "a x\nb yyyy\n"
