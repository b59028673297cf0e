"""`tap`: frames as lines and as JSON; payloads only if asked for."""

from __future__ import annotations

import json

from hermes_peer.cli import tap
from tests.cli.conftest import Place


def test_tap_shows_frames_and_hides_payloads(place: Place) -> None:
    for more, secret in (((), False), (("--payload",), True)):
        tap = place.open("tap", "rich", "--peer", "cli", *more)
        assert tap.stderr is not None and tap.stdout is not None
        assert "listening to the links of rich" in tap.stderr.readline()
        place.hp("call", "rich", "echo", "word=hush")
        seen = ""
        while "message=END" not in seen:
            seen += tap.stdout.readline()
        tap.terminate()
        assert tap.wait(30) == 143
        tap.communicate()
        opened = next(line for line in seen.splitlines() if "message=OPEN" in line)
        assert "<- cli DATA stream=1 seq=0 flags=SYN|FIN length=" in opened and "method=echo" in opened
        assert ("hush" in seen) is secret


def test_tap_as_json(place: Place) -> None:
    tap = place.open("tap", "rich", "--json")
    assert tap.stdout is not None
    assert json.loads(tap.stdout.readline())["tapped"] == "rich"
    place.hp("ping", "rich", "-n", "1")
    frames = [json.loads(tap.stdout.readline()) for _ in range(3)]
    assert {frame["dir"] for frame in frames} == {"in", "out"} and frames[0]["type"] == "LINK"
    tap.terminate()
    tap.communicate()


def test_a_frame_as_a_line() -> None:
    frame = {"at_ms": 0, "peer": "cli\x1b", "dir": "in", "type": "PING", "flags": [], "stream": 0, "sequence": 0}
    line = tap.line_of(frame | {"length": 29, "body": {"n": 1, "text": "a b"}})
    assert line.endswith('<- cli\\u001b PING stream=0 seq=0 flags=- length=29 n=1 text="a b"')
    assert tap.line_of({"lost": 3}) == "(3 frames passed too fast to be shown)"
