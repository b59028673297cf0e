"""The published frames: fresh, and what they say of the header holds without our code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_peer.wire.frames import Type
from hermes_peer.wire.messages import Kind

from . import vectors_frames

FILE: dict[str, Any] = json.loads(vectors_frames.PATH.read_text())


def test_the_file_is_fresh() -> None:
    assert vectors_frames.PATH.read_text() == vectors_frames.text(vectors_frames.build())


def test_every_frame_type_and_every_message_kind_has_an_example() -> None:
    assert {f["type"] for f in FILE["frames"]} >= set(Type)
    # ACCEPTED belongs to durable work, which no release speaks yet.
    assert {m["kind"] for m in FILE["messages"]} == set(Kind) - {Kind.ACCEPTED}


@pytest.mark.parametrize("good", FILE["frames"], ids=lambda f: f["name"])
def test_a_header_read_with_bare_hands(good: dict[str, Any]) -> None:
    raw = bytes.fromhex(good["frame"])
    assert raw[:5] == b"HRMP\x01" and (raw[5], raw[6]) == (good["type"], good["flags"])
    stream, sequence, length = (int.from_bytes(raw[at : at + 4], "big") for at in (7, 11, 15))
    assert (stream, sequence) == (good["stream"], good["sequence"])
    assert raw[19:].hex() == good["body"] and length == len(raw) - 19


@pytest.mark.parametrize("layer", ["header", "body", "marks"])
def test_a_false_example_stops_the_generator(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = {
        "header": ("bad_frames", iter([("sound", "header", bytes.fromhex(FILE["frames"][0]["frame"]), "")])),
        "body": ("bad_messages", iter([("sound", "opened", vectors_frames.OPEN, True, "call", "")])),
        "marks": ("refused_records", iter([("sound", b"", "nothing is wrong with it")])),
    }
    name, examples = sound[layer]
    monkeypatch.setattr(vectors_frames, name, lambda: examples)
    with pytest.raises(AssertionError, match="sound"):
        vectors_frames.build()
