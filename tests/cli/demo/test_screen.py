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


SECOND: list[dict[str, Any]] = [
    {"event": "second act", "items": 10},
    *({"event": "kept", "items": n, "file": "a[b].py", "text": f"[red]{n}"} for n in range(1, 5)),
    {"event": "killed", "who": "worker"},
    {"event": "goes on", "who": "worker", "at": 4},
    {"event": "kept", "items": 5, "file": "c.py", "text": ""},
    {"event": "recovered", "who": "worker", "ms": 812.4},
    *({"event": "kept", "items": n, "file": "c.py", "text": ""} for n in range(6, 11)),
]


def test_the_second_act_in_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cli.demo.test_screen.EVENTS", EVENTS + SECOND)
    lines = [line.split(" s  ", 1)[1] for line in shown(monkeypatch, terminal=False).splitlines() if " s  " in line]
    at = lines.index("second act: a report of 10 findings as one piece of durable work")
    assert lines[at + 1 :] == [
        "2 findings of the report, newest: a[b].py",
        "4 findings of the report, newest: a[b].py",
        "the worker is killed (SIGKILL) and started again",
        "worker: is back and goes on behind finding 4",
        "worker: the next finding came 812 ms after the kill",
        "6 findings of the report, newest: c.py",
        "8 findings of the report, newest: c.py",
        "10 findings of the report, newest: c.py",
    ]


def test_the_second_act_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cli.demo.test_screen.EVENTS", EVENTS + SECOND)
    text = shown(monkeypatch, terminal=True)
    assert "20/20" in text and "10/10" in text
    assert "worker killed (SIGKILL)" in text and "812 ms" in text
    assert "worker and planner run" in text
