"""What a side announces, what is not believed, and what two sides agree on."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.core.config import CAPS_MAX, KIB, MIB, Caps, Config, Heartbeat, Settings, caps_of
from hermes_peer.errors import ProtocolError
from hermes_peer.wire.frames import FRAME_BODY_MAX

GOOD: dict[str, Any] = {"agent": "worker", "instance": "i-1"}


def decode(**members: Any) -> Caps:
    return Caps.decode(json.dumps(GOOD | members).encode())


def test_what_is_announced_is_what_was_configured() -> None:
    config = Config(message=MIB, streams=64, idle_s=3.0, busy_s=0.5, keep=True)
    caps = Caps.decode(caps_of(config, "worker", "i-1", tags=("gpu",)).encode())
    assert (caps.agent, caps.instance, caps.message, caps.streams) == ("worker", "i-1", MIB, 64)
    assert (caps.hb.idle_ms, caps.hb.busy_ms, caps.hb.min_ms) == (3000, 500, 500)
    assert caps.keep and caps.tags == ("gpu",)
    assert caps.session_window == config.session_window


def test_a_session_window_holds_all_stream_windows() -> None:
    config = Config()
    assert config.session_window >= 2 * config.streams * config.window + config.spare


def test_unknown_members_are_ignored_and_absent_ones_have_defaults() -> None:
    caps = decode(warp_drive={"on": [1, 2]}, hb={"idle_ms": 1000, "busy_ms": 500, "min_ms": 0, "new": 1})
    assert caps == Caps("worker", "i-1", hb=Heartbeat(1000, 500, 0))


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"agent": ""}, "agent"),
        ({"agent": "x" * 129}, "agent"),
        ({"agent": 7}, "agent"),
        ({"instance": None}, "instance"),
        ({"frame": 1023}, "frame"),
        ({"frame": "16384"}, "frame"),
        ({"frame": 1.5}, "frame"),
        ({"frame": True}, "frame"),
        ({"message": -1}, "message"),
        ({"message": 2**80}, "message"),
        ({"streams": 8}, "streams"),
        ({"streams": 2**20 + 1}, "streams"),
        ({"window": 0}, "window"),
        ({"window": 64 * KIB, "session_window": 63 * KIB}, "session_window"),
        ({"resume_s": -1}, "resume_s"),
        ({"hb": {"idle_ms": 9}}, "idle_ms"),
        ({"hb": {"busy_ms": 10**10}}, "busy_ms"),
        ({"hb": {"min_ms": -1}}, "min_ms"),
        ({"hb": []}, "hb"),
        ({"tags": "gpu"}, "tags"),
        ({"codecs": [1]}, "codecs"),
    ],
)
def test_what_cannot_be_used_is_named(members: dict[str, Any], named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        decode(**members)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"agent": "x"}',
        b"\xff\xfe",
        b'{"agent": "x", "instance": "\xed\xa0\x80"}',
        b'{"agent": "x", "instance": "y", "resume_s": NaN}',
        b'{"agent": "x", "instance": "y"} trailing',
        b'{"agent": "x", "instance": "y", "deep": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_what_cannot_be_read_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Caps.decode(data)


@pytest.mark.attack(36)
def test_attack_36_oversize_capabilities_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = json.dumps(GOOD).encode()
    longest += b" " * (CAPS_MAX - len(longest))
    assert Caps.decode(longest).agent == "worker"
    monkeypatch.setattr("hermes_peer.core.config._CAPS", None)  # whoever parses, fails
    with pytest.raises(ProtocolError, match=str(CAPS_MAX)):
        Caps.decode(longest + b" ")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5), st.data())
def test_any_json_gives_caps_or_a_protocol_error(value: Any, draw: st.DataObject) -> None:
    name = draw.draw(st.sampled_from(msgspec.structs.fields(Caps))).encode_name
    try:
        decode(**{name: value})
    except ProtocolError:
        pass


# ------------------------------------------------------------------ agreement
def caps(**more: Any) -> Caps:
    return Caps("x", "y", **more)


def test_sizes_take_the_minimum_and_windows_are_the_receivers() -> None:
    mine = caps(frame=8192, message=MIB, streams=20, window=64 * KIB, session_window=9 * MIB, resume_s=60.0)
    theirs = caps(frame=4096, message=2 * MIB, streams=200, window=32 * KIB, session_window=7 * MIB, resume_s=600.0)
    here, there = Settings.agree(mine, theirs), Settings.agree(theirs, mine)
    for side in (here, there):
        assert (side.frame, side.message, side.send_streams, side.resume_s) == (4096, MIB, 20, 60.0)
    assert (here.send_window, here.send_session_window) == (32 * KIB, 7 * MIB)
    assert (there.send_window, there.send_session_window) == (64 * KIB, 9 * MIB)


def test_no_frame_is_longer_than_a_record() -> None:
    assert Settings.agree(caps(frame=2**32), caps(frame=2**31)).frame == FRAME_BODY_MAX


@pytest.mark.case("HPC-026")
@given(*[st.builds(Heartbeat, st.integers(10, 10**6), st.integers(10, 10**6), st.integers(0, 10**5))] * 2)
def test_hpc_026_both_sides_find_the_same_heartbeat_and_neither_is_rushed(one: Heartbeat, two: Heartbeat) -> None:
    here, there = Settings.agree(caps(hb=one), caps(hb=two)), Settings.agree(caps(hb=two), caps(hb=one))
    assert (here.idle_s, here.busy_s) == (there.idle_s, there.busy_s)
    assert round(here.idle_s * 1000) >= max(one.idle_ms, two.idle_ms, one.min_ms, two.min_ms)
    assert round(here.busy_s * 1000) >= max(one.busy_ms, two.busy_ms, one.min_ms, two.min_ms)


@pytest.mark.case("HPC-026")
def test_hpc_026_a_fast_side_follows_the_slow_sides_minimum() -> None:
    fast, slow = caps(hb=Heartbeat(200, 200, 0)), caps(hb=Heartbeat(1000, 500, 2000))
    assert Settings.agree(fast, slow).busy_s == 2.0
    assert Settings.agree(fast, slow).idle_s == 2.0


@pytest.mark.case("HPC-040")
def test_hpc_040_a_codec_that_is_not_shared_names_both_lists() -> None:
    with pytest.raises(ProtocolError, match=r"cbor.*json"):
        Settings.agree(caps(codecs=("cbor",)), caps(codecs=("json",)))
    Settings.agree(caps(codecs=("cbor", "json")), caps(codecs=("json", "unknown")))
