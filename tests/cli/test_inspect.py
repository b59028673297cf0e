"""`inspect`: methods as signatures, and the agent's own word on itself."""

from __future__ import annotations

import json

from hermes_peer.cli.inspect import parameters, spoken
from tests.cli.conftest import Place


def test_inspect(place: Place) -> None:
    text = place.hp("inspect", "rich").stdout
    assert "  text.shout(text: string) -> object\n      Says it louder.\n" in text
    assert '  tokens(n: integer, pause: number = 0.0, tag: string = "") yields' in text
    assert "capabilities text" in text and "hermes://127.0.0.1:" in text and "hermes.ping" not in text
    found = json.loads(place.hp("inspect", "rich", "--json").stdout)
    assert found["status"]["calls"]["running"] == 1  # the question itself: no earlier test left anything behind
    assert {each["name"] for each in found["methods"]} >= {"echo", "tokens"}


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
