"""The parts of the command line that need no process: words, sentences, layouts, watched files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_peer.cli import failures, out, payload, reload, tap
from hermes_peer.cli.ids import stable_agent_id
from hermes_peer.cli.inspect import parameters, spoken
from hermes_peer.cli.run import split
from hermes_peer.cli.ttl import ttl_seconds
from hermes_peer.errors import (
    CallError,
    DeadlineExceeded,
    LinkError,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    SessionLost,
    UsageError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (LinkError("x"), 3),
        (LinkError("x", reason="version", refused=True), 3),
        (LinkError("x", reason="untrusted", refused=True), 4),
        (LinkError("x", reason="name", refused=True), 4),
        (DeadlineExceeded("connect", "x", timer="connect"), 3),
        (DeadlineExceeded("ttl", "x"), 1),
        (PermissionDenied("policy", "x"), 4),
        (MethodNotFound("x"), 1),
        (CallError("x"), 1),
        (SessionLost("x"), 1),
        (OSError(5, "broken", "/x"), 1),
        (ZeroDivisionError(), 1),
    ],
)
def test_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.told(error) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("hermes-peer: ")


def test_sentences_say_what_to_do() -> None:
    assert "calling again is safe" in failures.sentence(SessionLost("gone", ran="no"))
    assert "look before you call again" in failures.sentence(SessionLost("gone"))
    assert failures.sentence(RateLimited("x", "too many", retry_after=2.0)) == "too many (try again in 2 s)"
    assert failures.as_json(SessionLost("gone"))["ran"] == "unknown"
    assert len(failures.sentence(CallError("x", "y" * 10_000))) < 2100


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], {}),
        (["a=1", "b=x", "c="], {"a": 1, "b": "x", "c": ""}),
        (["a=[1, 2]", 'b={"c": null}'], {"a": [1, 2], "b": {"c": None}}),
        (["a=NaN", "b=1e999", "c=007", 'd={"x"'], {"a": "NaN", "b": "1e999", "c": "007", "d": '{"x"'}),
        (['a={"k": 1, "k": 2}'], {"a": '{"k": 1, "k": 2}'}),
        (['{"a": 1}'], {"a": 1}),
        (["text=-"], {"text": "-"}),
    ],
)
def test_payloads(words: list[str], value: dict[str, Any]) -> None:
    assert payload.payload_of(words) == value


@pytest.mark.parametrize("words", [["=1"], ["abc"], ["a=1", "a=1"], ["[1]"], ['{"a": 1, "a": 2}'], ["a=1", "-"]])
def test_payloads_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        payload.payload_of(words)


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


def test_ids_and_ttls() -> None:
    made = stable_agent_id("db", "prod", "n1")
    assert made == stable_agent_id("db", "prod", "n1") != stable_agent_id("db", "dev", "n1")
    assert made[14] == "4" and made[19] in "89ab" and len(made) == 36
    assert ttl_seconds(300, 5, 8) == pytest.approx(60.6)
    for bad in ((-1, 1, 1), (1, 0, 1), (1, 1, 0), (float("nan"), 1, 1), (1, 1, float("inf"))):
        with pytest.raises(UsageError):
            ttl_seconds(*bad)


def test_schemas_as_signatures() -> None:
    schema = {
        "$ref": "#/$defs/In",
        "$defs": {
            "In": {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "b": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
                    "c": {"enum": ["x", "y"], "default": "x"},
                },
            },
            "Part": {"title": "Part", "type": "object", "properties": {}},
        },
    }
    assert parameters(schema) == 'a: string | null, b: list of Part?, c: "x" | "y" = "x"'
    assert parameters({"type": "object", "additionalProperties": False}) == ""
    assert parameters(None) == "…" and spoken(None, {}) == spoken({}, {}) == "anything"


def test_a_frame_as_a_line() -> None:
    frame = {"at_ms": 0, "peer": "cli\x1b", "dir": "in", "type": "PING", "flags": [], "stream": 0, "sequence": 0}
    line = tap.line_of(frame | {"length": 29, "body": {"n": 1, "text": "a b"}})
    assert line.endswith('<- cli\\u001b PING stream=0 seq=0 flags=- length=29 n=1 text="a b"')
    assert tap.line_of({"lost": 3}) == "(3 frames passed too fast to be shown)"


def test_file_and_agent(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("")
    assert split(str(file)) == (file, "")
    assert split(f"{file}:x") == (file, "x")
    odd = tmp_path / "a:b.py"
    odd.write_text("")
    assert split(str(odd)) == (odd, "")


def test_watched_files(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".git/c.py", "__pycache__/d.py", "env/e.py", "note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert {Path(each).name for each in reload.stamps(tmp_path / "a.py")} == {"a.py", "b.py"}
