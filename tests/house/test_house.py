"""The house's own laws, as tests: sizes, mirrors, the face, names, words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "hermes_peer"
SOURCES = sorted(p for p in SRC.rglob("*.py"))
CEILING = 400

# Sources without a test file of their own name, and where they are tested.
TESTED_ELSEWHERE = {
    "__main__.py": "cli/test_main.py",
    "access/pins.py": "access/test_trust.py",
    "access/templates.py": "access/test_home.py",
    "agent/hints.py": "agent/test_schema.py",
    "agent/offer.py": "agent/test_agent.py",
    "agent/refusals.py": "agent/test_schema.py",
    "cli/options.py": "cli/test_call.py",
    "cli/submitters.py": "cli/test_ticket.py",
    "cli/survey.py": "cli/test_list.py",
    "core/events.py": "core/test_session.py",
    "crypto/outcome.py": "crypto/test_dialler.py",
    "crypto/side.py": "crypto/test_dialler.py",
    "registry/base.py": "registry/test_folder.py",
    "testing/contracts.py": "transport/test_base.py",
    "testing/relay.py": "testing/test_proxy.py",
    **{f"testing/{path.name}": "testing/test_simulator.py" for path in SRC.glob("testing/sim_*.py")},
}


def relative(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_source_file_is_over_the_ceiling(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= CEILING, f"{relative(path)} has {lines} lines: find the second thing that it does"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_source_file_is_mirrored_by_a_test_file(path: Path) -> None:
    name = relative(path)
    if path.name == "__init__.py":
        return
    folder, file = (ROOT / "tests" / name).parent, f"test_{path.stem}.py"
    elsewhere = TESTED_ELSEWHERE.get(name)
    expected = ROOT / "tests" / elsewhere if elsewhere else folder / file
    assert expected.exists(), f"{name} has no {expected.relative_to(ROOT)}"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_says_what_it_knows_and_refuses_to_know(path: Path) -> None:
    if path.name in ("__init__.py", "__main__.py"):
        return
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert re.search(r"\bknows\b", doc, re.I), f"{relative(path)}: the docstring does not say what it knows"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_class_is_named_after_its_lack_of_a_name(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            assert not re.search(r"(Manager|Helper|Utils?|Impl)$|^Base|_v\d", node.name), (
                f"{relative(path)}: {node.name}"
            )


def test_the_public_face_is_what_it_says() -> None:
    import hermes_peer

    assert len(hermes_peer.__all__) <= 26
    for name in hermes_peer.__all__:
        assert getattr(hermes_peer, name) is not None
    assert set(hermes_peer._LATER) <= set(hermes_peer.__all__)


def test_the_import_is_cheap() -> None:
    """Crypto, journal and telemetry load at first use, so the face pulls in none of them."""
    code = "import sys, hermes_peer; print([m for m in sys.modules if m.split('.')[0] in HEAVY])"
    heavy = "{'cryptography', 'msgspec', 'asyncio', 'opentelemetry', 'typer', 'rich', 'sqlite3'}"
    out = subprocess.run(
        [sys.executable, "-c", code.replace("HEAVY", heavy)], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "[]"


def test_no_source_speaks_of_work_to_come() -> None:
    for path in SOURCES:
        if "demo/audit" in relative(path):
            continue  # its trade is finding such lines
        found = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())
        assert not found, f"{relative(path)} says {found.group()}"


def test_the_lock_file_holds_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text and "index" not in text
    assert all(re.fullmatch(r"[a-z0-9.-]+==\S+", line) for line in text.splitlines() if not line.startswith("#"))


def test_links_inside_the_documents_lead_somewhere() -> None:
    from hermes_peer.cli.demo.audit import broken_links

    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    broken = {str(page.relative_to(ROOT)): broken_links(page, ROOT) for page in pages if page.exists()}
    assert not any(broken.values()), broken
