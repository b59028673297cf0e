"""What the demo shows, with a terminal and without.

Knows: the events. Refuses to know: where they come from. Called by: pytest.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from hermes_peer.cli.demo import screen as screen_module
from hermes_peer.cli.demo.screen import Screen

EVENTS: list[dict[str, Any]] = [
    {"event": "plan", "steps": 3, "files": 7},
    *({"event": "finding", "items": n, "file": "a[b].py", "text": f"[red]{n}"} for n in range(1, 21)),
    {"event": "fault", "name": "reset"},
    {"event": "lost", "reason": "the connection was lost"},
    {"event": "back", "ms": 12.4},
    {"event": "asked", "name": "ignore", "question": "which?", "answer": ["*.html"]},
    {"event": "token", "text": "All "},
    {"event": "token", "text": "is well."},
]


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, width: int = 100) -> str:
    out = io.StringIO()
    monkeypatch.setattr(
        screen_module, "Console", lambda stderr: Console(file=out, force_terminal=terminal, width=width, height=50)
    )
    with Screen(20) as screen:
        for event in EVENTS:
            screen.show(event)
    return out.getvalue()


def test_plain_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=False)
    assert "\x1b" not in text
    lines = [line.split(" s  ", 1)[1] for line in text.splitlines() if " s  " in line]
    assert lines[0] == "plan: 3 steps over 7 files, 20 findings to come"
    assert lines[1:11] == [f"{n} findings, newest: a[b].py: [red]{n}" for n in range(2, 21, 2)]  # a tenth each
    assert lines[11:14] == [
        "the line is reset",
        "planner: line lost (the connection was lost)",
        "planner: back after 12 ms, nothing lost",
    ]
    assert "asks back: which?" in lines[14]


def test_a_live_view_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    assert "20/20" in text and "connected" in text
    assert "[red]20" in text  # shown as it is, not as a colour
    assert "12 ms" in text and "reset" in text
    assert "All is well." in text


def test_a_narrow_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the line is reset" in shown(monkeypatch, terminal=True, width=30)
