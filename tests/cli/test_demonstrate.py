"""`demo` as the command line sees it; what it shows is tested beside it."""

from __future__ import annotations

from tests.cli.conftest import Place


def test_demo_is_listed_and_its_misuse_is_told(fresh: Place) -> None:
    assert "\n  demo " in fresh.hp().stdout
    assert "FOLDER" in fresh.hp("demo", "--help").stdout
    assert "is no folder" in fresh.refusal("demo", "absent", code=2)
