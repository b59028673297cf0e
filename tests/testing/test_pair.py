"""Two nodes on one virtual clock: the words in which tests of the core are written.

Knows: what `Pair` promises its users. Refuses to know: sockets, asyncio.
Called by: pytest.
"""

from __future__ import annotations

from random import Random

import pytest

from hermes_peer.core.config import Config
from hermes_peer.core.events import Event
from hermes_peer.core.node import NodeEvent, Verdict
from hermes_peer.core.states import LinkState, Reason, SessionState
from hermes_peer.crypto.kem import CT_SIZE, EK_SIZE, SHARED_SIZE
from hermes_peer.testing.pair import FakeKem, Pair, number_from
from hermes_peer.testing.sim_line import Clock, Line
from hermes_peer.wire import frames
from hermes_peer.wire.frames import Type


def test_a_question_and_its_answer() -> None:
    pair = Pair()
    stream = pair.a.open(b"hello", fin=True)
    _, asked, _, _, cost = pair.b.expect("the call arrives", Event.MESSAGE, b"hello", fin=True)
    pair.b.consume(asked, cost)
    pair.b.send(asked, b"answer", fin=True)
    pair.b.release(asked)
    *_, cost = pair.a.expect("the answer comes back", Event.MESSAGE, b"answer", fin=True)
    pair.a.consume(stream, cost)
    pair.a.release(stream)
    pair.advance(1.0)
    for side in (pair.a, pair.b):
        side.idle("all was said")
        assert side.session.idle


def test_expect_says_its_reason() -> None:
    pair = Pair()
    with pytest.raises(AssertionError, match="an answer must come: MESSAGE was expected, nothing happened"):
        pair.a.expect("an answer must come", Event.MESSAGE)
    pair.a.open(b"x")
    with pytest.raises(AssertionError, match="nobody calls"):
        pair.b.idle("nobody calls")
    with pytest.raises(AssertionError, match="y must come"):
        pair.b.expect("y must come", Event.MESSAGE, b"y")
    pair.a.open(b"z")
    with pytest.raises(AssertionError, match="fin=True was expected"):
        pair.b.expect("it must end", Event.MESSAGE, fin=True)


def test_frames_fed_by_hand_arrive_in_a_record_of_the_other_side() -> None:
    pair = Pair()
    pair.a.open(b"x")
    stream = pair.b.expect("the call arrives", Event.MESSAGE)[1]
    pair.a.feed(frames.encode(Type.WARM, stream=stream.id))
    pair.a.expect("its handler is alive", Event.WARM)
    pair.a.feed(frames.encode(Type.LINK))
    pair.a.expect("a second LINK breaks the rules", Event.ENDED, Reason.PROTOCOL)
    pair.b.expect("and the other side is told", Event.ENDED, Reason.PROTOCOL)


def test_a_cut_line_resumes_and_nothing_is_lost() -> None:
    pair = Pair()
    stream = pair.a.open(b"one")
    pair.b.expect("before the cut", Event.MESSAGE, b"one")
    pair.cut()
    pair.a.expect("the line is gone", Event.DETACHED)
    pair.b.expect("the line is gone", Event.DETACHED)
    pair.a.send(stream, b"two")
    pair.b.idle("nothing can arrive")
    pair.connect("b")
    pair.b.expect("after the resume", Event.MESSAGE, b"two")
    assert pair.a.session.links == pair.b.session.links == 2


def test_cut_in_the_middle_of_a_record() -> None:
    pair = Pair()
    pair.cut_after(30, "a")
    pair.a.open(b"never whole" * 10)
    pair.b.expect("the line is gone", Event.DETACHED)
    assert pair.b.session.receiver.next == 0
    pair.a.expect("the line is gone", Event.DETACHED)
    pair.connect()
    pair.b.expect("whole on the next line", Event.MESSAGE, b"never whole" * 10)


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_black_hole_is_found_by_the_heartbeat_of_both(side: str) -> None:
    pair = Pair()
    pair.hole(side)  # type: ignore[arg-type]
    pair.a.open(b"x", fin=True)
    pair.advance(100.0)
    reasons = []
    for end in (pair.a, pair.b):
        assert end.peer.link is None and end.session.state is SessionState.DETACHED
        reasons += [event[3] for event in end.told() if event[0] is NodeEvent.DOWN]
    assert len(reasons) == 2 and Reason.TIMEOUT in reasons


def test_half_close_ends_the_link_for_both() -> None:
    pair = Pair()
    pair.half_close("a")
    pair.b.expect("it reads the end", Event.DETACHED)
    pair.a.expect("and closes, which ends ours", Event.DETACHED)


def test_time_jumps_from_deadline_to_deadline() -> None:
    pair = Pair()
    before = pair.clock.now
    pair.advance(3600.0)
    assert pair.clock.now == before + 3600.0
    assert pair.a.link.state is LinkState.CLOSED or pair.a.link.done  # idle for an hour
    assert pair.a.session.reason is Reason.EXPIRED


def test_one_byte_at_a_time() -> None:
    pair = Pair(connect=False)
    pair.pieces = lambda data: [data[n : n + 1] for n in range(len(data))]
    pair.connect()
    pair.a.open(b"hello", fin=True)
    pair.b.expect("in bytes", Event.MESSAGE, b"hello", fin=True)


def test_a_seed_decides_every_byte() -> None:
    def transcript(seed: int) -> list[bytes]:
        pair, seen = Pair(seed, connect=False), []
        pair.pieces = lambda data: seen.append(data) or [data]  # type: ignore[func-returns-value]
        pair.connect()
        pair.a.open(b"hello", fin=True)
        return seen

    assert transcript(1) == transcript(1)
    assert transcript(1) != transcript(2)


def test_limits_and_judges_can_be_chosen() -> None:
    pair = Pair(config=Config(window=4096), config_b=Config(window=8192))
    assert pair.a.session.settings.send_window == 8192
    assert pair.b.session.settings.send_window == 4096
    pair = Pair(connect=False, judge=lambda fingerprint, caps: Verdict(frozenset(), Reason.UNTRUSTED, "no"))
    pair.a.dial()
    assert [event[3] for event in pair.a.told()] == [Reason.UNTRUSTED]
    with pytest.raises(AssertionError, match="there is no session"):
        _ = pair.a.session


def test_unsealed_between_two_who_want_it() -> None:
    pair = Pair(seal="none")
    assert not pair.a.link.sealed
    assert not pair.b.link.sealed
    pair.a.open(b"in clear")
    pair.b.expect("all the same", Event.MESSAGE, b"in clear")


def test_stream_ids_near_their_wrap() -> None:
    pair = Pair(connect=False)
    for side in (pair.a, pair.b):
        number_from(side.node, 2**32 - 3)
    pair.connect()
    ids = [pair.a.open(b"x").id for _ in range(3)]
    assert ids == [2**32 - 3, 2**32 - 1, 1]
    assert len(pair.b.session.events) == 3


def test_the_fake_kem_agrees_with_itself_and_has_the_true_sizes() -> None:
    kem = FakeKem(Random(1).randbytes)
    ek, private = kem.generate()
    shared, ct = kem.encapsulate(ek)
    assert (len(ek), len(ct), len(shared)) == (EK_SIZE, CT_SIZE, SHARED_SIZE)
    assert kem.decapsulate(private, ct) == shared
    assert kem.decapsulate(private, bytes(CT_SIZE)) != shared
    with pytest.raises(ValueError, match="key"):
        kem.encapsulate(b"short")
    with pytest.raises(ValueError, match="ciphertext"):
        kem.decapsulate(private, b"short")


# ---------------------------------------------------------------------- the line itself
def lines(**more: float) -> tuple[Clock, Line, list[bytes], list[bytes]]:
    clock = Clock(0.0)
    line, left, right = Line(clock, lambda: 1.0), [], []
    line.join(0, left.append)
    line.join(1, right.append)
    return clock, line, left, right


def test_a_line_keeps_order_and_delay() -> None:
    clock, line, _, right = lines()
    line.write(0, b"a")
    clock.run_until(0.5)
    line.write(0, b"b")
    clock.run_until(1.0)
    assert right == [b"a"]
    clock.run_until(2.0)
    assert right == [b"a", b"b"]


def test_a_close_comes_behind_what_was_written() -> None:
    clock, line, left, right = lines()
    line.write(0, b"last words")
    line.write(1, b"unheard")
    line.close(0)
    clock.run_until(5.0)
    assert right == [b"last words", b""] and left == []


def test_a_stall_holds_back_and_then_delivers_everything() -> None:
    clock, line, _, right = lines()
    line.ways[0].stall(10.0)
    line.write(0, b"a")
    clock.run_until(9.9)
    assert right == [] and line.ways[0].flying == 1
    clock.run_until(10.0)
    assert right == [b"a"] and line.ways[0].flying == 0


def test_a_cut_loses_what_is_on_its_way() -> None:
    clock, line, left, right = lines()
    line.write(0, b"lost")
    line.cut()
    line.write(0, b"nobody")
    clock.run_until(5.0)
    assert left == [b""] and right == [b""]
