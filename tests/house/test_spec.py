"""docs/spec: its tables are fresh, its links lead somewhere, and whoever cites a section finds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import spec_tables

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
PAGES = {path.stem: path.read_text() for path in sorted(SPEC.glob("*.md"))}
CITED = re.compile(r"spec: (?P<page>\w+)(?:,? (?:section )?(?P<section>\d+))?")
IN_NODE = re.compile(r"\((?P<page>overview|frames|handshake|session|messages), sections? (?P<numbers>\d[\d, and to]*)")


def sections(page: str) -> set[int]:
    return {int(number) for number in re.findall(r"^## (\d+)\. ", PAGES[page], re.MULTILINE)}


def test_these_seven_pages_are_the_spec() -> None:
    assert set(PAGES) == {"overview", "frames", "handshake", "session", "messages", "durable", "invoke"}


def test_the_generated_tables_are_fresh() -> None:
    stale = [path.name for path in spec_tables.stale()]
    assert not stale, f"{', '.join(stale)}: run `make docs`"


def test_every_table_stands_in_one_place() -> None:
    found = [name for text in PAGES.values() for name, _ in spec_tables.MARK.findall(text)]
    assert sorted(found) == sorted(spec_tables.TABLES)


def test_a_marker_without_a_table_is_found() -> None:
    with pytest.raises(KeyError):
        spec_tables.renewed("<!-- begin: nothing -->\n<!-- end: nothing -->")


def test_a_changed_constant_makes_a_page_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_peer.wire import frames

    monkeypatch.setattr(frames, "CLOSE_TEXT_MAX", 513)
    assert "frames.md" in [path.name for path in spec_tables.stale()]


def test_a_range_that_the_code_does_not_keep_stops_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spec_tables.handshake.RANGES, "streams", (8, 1 << 20))
    with pytest.raises(AssertionError, match="streams"):
        spec_tables.handshake.capabilities()


@pytest.mark.parametrize("page", PAGES)
def test_sections_count_from_one(page: str) -> None:
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", PAGES[page], re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", PAGES)
def test_links_and_cited_sections_exist(page: str) -> None:
    text = PAGES[page]
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (SPEC / target).exists(), target
    for name, number in re.findall(r"(overview|frames|handshake|session|messages|durable), section (\d+)", text):
        assert int(number) in sections(name), f"{name}, section {number}"
    for number in re.findall(r"(?<![a-z], )\bsection (\d+)", text):
        assert int(number) in sections(page), f"section {number}"


def test_code_cites_sections_that_exist() -> None:
    wrong = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for match in CITED.finditer(path.read_text()):
            page, section = match["page"], match["section"]
            if page not in PAGES or (section and int(section) not in sections(page)):
                wrong.append(f"{path.name}: {match[0]}")
    assert not wrong


def test_node_cites_sections_that_exist() -> None:
    text = (ROOT / "examples" / "node" / "hermes.mjs").read_text()
    cited = [(m["page"], int(n)) for m in IN_NODE.finditer(text) for n in re.findall(r"\d+", m["numbers"])]
    assert len(cited) >= 8
    assert [each for each in cited if each[1] not in sections(each[0])] == []
