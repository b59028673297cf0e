"""Two sessions against a list: whatever is lost, cut and resumed, each message arrives once and in order."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_peer.core.config import KIB, Config
from hermes_peer.core.events import Event
from hermes_peer.core.session import Session
from hermes_peer.core.states import Half, Reason, SessionState
from hermes_peer.core.stream import Stream
from hermes_peer.errors import ProtocolError, UsageError
from hermes_peer.wire.frames import Type

from .rig import WRAP, Sessions, arrived, data, eat, messages, of, other_fails, split

SMALL = Config(
    streams=12,
    window=4096,
    message=20 * KIB,
    frame=1024,
    spare=8192,
    window_max=16 * KIB,
    permits=1,
    first_sequence=WRAP,
)


class Side:
    """One session, its streams by tag, and what a naive list says of them."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self.streams: dict[str, Stream] = {}
        self.sent: dict[str, list[bytes]] = defaultdict(list)
        self.got: dict[str, list[bytes]] = defaultdict(list)
        self.broken: set[str] = set()  # reset by us, or by the peer as we heard
        self.unread: list[tuple[Stream, int]] = []

    def look(self) -> None:
        """Take what the session tells."""
        for kind, stream, body, _, cost in self.session.events:
            if kind is Event.MESSAGE:
                tag = body[:3].decode()
                self.streams.setdefault(tag, stream)
                assert self.streams[tag] is stream, "one stream's message on another"
                self.got[tag].append(body)
                self.unread.append((stream, cost))
            elif kind is Event.RESET:
                self.broken |= {tag for tag, s in self.streams.items() if s is stream}
                if stream not in self.streams.values():  # it went before it said anything
                    self.session.release(stream)
        self.session.events.clear()


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.s = Sessions(SMALL).join()
        self.sides = Side(self.s.x, "x"), Side(self.s.y, "y")
        self.opened = 0
        self.joined = True

    def pick(self, who: int, n: int) -> tuple[Side, str]:
        side = self.sides[who]
        tags = sorted(side.streams)
        return side, tags[n % len(tags)] if tags else ""

    def put(self, side: Side, tag: str, size: int, fin: bool) -> None:
        body = f"{tag}{len(side.sent[tag])} ".encode().ljust(size, b".")
        side.session.send(side.streams[tag], body, fin)
        if side.streams[tag].sending is not Half.ABORTED:
            side.sent[tag].append(body)

    @precondition(lambda self: self.opened < 400)
    @rule(who=st.integers(0, 1), size=st.integers(8, 6000), fin=st.booleans(), reserved=st.booleans())
    def open(self, who: int, size: int, fin: bool, reserved: bool) -> None:
        side, tag = self.sides[who], f"{self.opened:03}"
        self.opened += 1
        side.streams[tag] = side.session.open(reserved=reserved)
        self.put(side, tag, size, fin)

    @rule(who=st.integers(0, 1), n=st.integers(0, 99), size=st.integers(8, 20 * KIB), fin=st.booleans())
    def send(self, who: int, n: int, size: int, fin: bool) -> None:
        side, tag = self.pick(who, n)
        if not tag:
            return
        if side.streams[tag].sending is Half.ENDED:
            with pytest.raises(UsageError):
                self.put(side, tag, size, fin)
        else:
            self.put(side, tag, size, fin)

    @rule(who=st.integers(0, 1), n=st.integers(0, 99))
    def reset(self, who: int, n: int) -> None:
        side, tag = self.pick(who, n)
        if tag:
            side.session.reset(side.streams[tag], b"why")
            side.broken.add(tag)

    @rule(who=st.integers(0, 1), n=st.integers(0, 99))
    def release(self, who: int, n: int) -> None:
        side, tag = self.pick(who, n)
        if tag:
            side.session.release(side.streams[tag])

    @rule(who=st.integers(0, 1), share=st.integers(1, 3))
    def consume(self, who: int, share: int) -> None:
        side = self.sides[who]
        side.look()
        count = len(side.unread) // share
        for stream, cost in side.unread[:count]:
            side.session.consumed(stream, cost)
        del side.unread[:count]

    @rule(who=st.integers(0, 1), records=st.integers(1, 4))
    def move(self, who: int, records: int) -> None:
        giver, taker = (self.s.x, self.s.y) if who else (self.s.y, self.s.x)
        for _ in range(records):
            self.s.give(giver, taker)

    @rule(seconds=st.floats(0, 0.1))
    def wait(self, seconds: float) -> None:
        self.s.now += seconds

    @rule(lost=st.integers(0, 3), back=st.integers(0, 3))
    def cut(self, lost: int, back: int) -> None:
        """The last records of both sides never arrive."""
        for session, count in ((self.s.x, lost), (self.s.y, back)):
            for _ in range(count):
                session.take()
        self.s.cut()
        self.joined = False

    @rule()
    def resume(self) -> None:
        """Also while joined: a newer link takes over."""
        self.s.join()
        self.joined = True

    @invariant()
    def order_and_credit(self) -> None:
        for mine, theirs in (self.sides, self.sides[::-1]):
            for tag, got in mine.got.items():
                assert got == theirs.sent[tag][: len(got)]
            receiver = mine.session.receiver
            assert receiver.window.consumed <= receiver.window.received <= receiver.window.limit
            assert receiver.next <= theirs.session.sender.replay.next
            assert mine.session.sender.replay.acked <= theirs.session.receiver.next
            assert mine.session.sender.window.sent >= theirs.session.receiver.window.received
            assert mine.session.sender.window.limit <= theirs.session.receiver.window.limit
            assert mine.session.places.open_mine <= SMALL.streams
            assert len(mine.session.places.streams) <= 2 * SMALL.streams

    def teardown(self) -> None:
        if not self.joined:
            self.resume()
        for _ in range(1000):
            before = [len(side.got) + sum(map(len, side.got.values())) for side in self.sides]
            for who in (0, 1):
                self.consume(who, 1)
                side = self.sides[who]
                for tag, stream in list(side.streams.items()):
                    if stream.sending is Half.OPEN:
                        self.put(side, tag, 8, True)
                    side.session.release(stream)
            self.s.settle()
            if before == [len(side.got) + sum(map(len, side.got.values())) for side in self.sides] and not (
                self.s.x.buffered or self.s.y.buffered or self.s.x.places.streams or self.s.y.places.streams
            ):
                break
        else:
            raise AssertionError(f"it never comes to rest: {self.s.x.places.streams} {self.s.y.places.streams}")
        self.order_and_credit()
        for mine, theirs in (self.sides, self.sides[::-1]):
            for tag, sent in theirs.sent.items():
                if tag not in mine.broken | theirs.broken:
                    assert mine.got[tag] == sent, tag
            assert mine.session.sender.window.sent == theirs.session.receiver.window.received
            assert mine.session.idle and not mine.session.pending()
            assert mine.session.places.spare == SMALL.spare
            assert mine.session.receiver.permits.free == SMALL.permits
            assert mine.session.receiver.window.extra == 0


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


# ------------------------------------------------------------------ states
def test_a_session_goes_live_only_with_the_peers_link_and_loses_nothing_between() -> None:
    s = Sessions(SMALL)
    assert s.x.state is SessionState.DETACHED
    s.x.detach()  # harmless
    marks = s.x.attach()
    assert marks == (WRAP, WRAP) and s.x.state is SessionState.RESUMING
    with pytest.raises(UsageError):
        Sessions(SMALL).x.peer_link(WRAP, WRAP)
    s.x.peer_link(WRAP, WRAP)
    assert s.x.state is SessionState.LIVE
    assert [e[0] for e in s.x.events] == [Event.LIVE]
    s.x.detach()
    assert [e[0] for e in s.x.events] == [Event.LIVE, Event.DETACHED]


def test_the_end_is_told_once_and_is_the_end() -> None:
    s = Sessions(SMALL).join()
    s.x.end(Reason.SHUTDOWN, "bye")
    s.x.end(Reason.IDLE, "again")
    assert of(s.x, Event.ENDED) == [(Event.ENDED, None, Reason.SHUTDOWN, "bye", 0)]
    assert s.x.reason is Reason.SHUTDOWN
    assert not s.x.pending() and s.x.take() == (b"", b"")
    with pytest.raises(UsageError, match="ended"):
        s.x.open()
    with pytest.raises(UsageError):
        s.x.attach()
    s.x.detach()
    assert s.x.state is SessionState.ENDED


@pytest.mark.parametrize(("mark", "fates"), [(None, ["unknown", "unknown", "no"]), (WRAP + 1, ["unknown", "no", "no"])])
def test_what_the_peer_had_received_separates_not_run_from_unknown(mark: int | None, fates: list[str]) -> None:
    s = Sessions(SMALL).join()
    streams = [s.x.open() for _ in range(3)]
    for stream in streams[:2]:
        s.x.send(stream, b"work")
    s.cut()
    s.x.send(streams[2], b"never numbered")
    s.x.end(Reason.EXPIRED, peer_mark=mark)
    assert [s.x.fate(stream) for stream in streams] == fates


def test_a_stream_above_the_last_accepted_never_ran() -> None:
    s = Sessions(SMALL).join()
    streams = [s.x.open() for _ in range(3)]
    for stream in streams:
        s.x.send(stream, b"work")
    s.x.end(Reason.SHUTDOWN, peer_last=3)
    assert [s.x.fate(stream) for stream in streams] == ["unknown", "unknown", "no"]


def test_silent_handlers_are_shown_alive_once_a_period() -> None:
    s = Sessions(SMALL).join()
    s.x.send(s.x.open(), b"think")
    s.pump()
    s.y.keep_warm(10.0, 5.0)
    (warm,) = [f for f in split([s.y.take()[0]]) if f.type == Type.WARM]
    assert warm.stream == 1
    s.y.keep_warm(12.0, 5.0)
    assert not s.y.pending()
    s.y.keep_warm(20.0, 5.0)
    s.y.reset(arrived(s.y)[0])
    assert Type.WARM not in [f.type for f in split(s.y.take())]


def test_a_reset_is_cut_to_its_limit_and_harmless_on_what_is_done() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"a")
    s.pump()
    s.x.reset(stream, b"e" * 10_000)
    s.x.reset(stream, b"again")
    s.pump()
    assert [len(e[2]) for e in of(s.y, Event.RESET)] == [4096]
    s.y.reset(arrived(s.y)[0])
    s.y.release(arrived(s.y)[0])
    s.x.release(stream)
    s.settle()
    assert s.x.idle and s.y.idle


@pytest.mark.attack(23)
@given(
    st.integers(0, 2**64 - 1) | st.integers(WRAP - 3, WRAP + 13),
    st.integers(0, 2**64 - 1) | st.integers(WRAP - 3, WRAP + 13),
)
def test_attack_23_a_lying_link_is_refused_or_was_true(recv_next: int, send_next: int) -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    for n in range(10):
        s.x.send(stream, b"%d" % n)
        if n == 4:
            s.settle()  # five are acknowledged
    s.cut()
    eat(s.y)
    s.x.events.clear()
    s.x.attach()
    honest = WRAP + 5 <= recv_next <= WRAP + 10 and send_next >= WRAP
    if not honest:
        with pytest.raises(ProtocolError):
            s.x.peer_link(recv_next, send_next)
        assert s.x.state is SessionState.RESUMING and not s.x.events and not s.x.pending()
        return
    s.x.peer_link(recv_next, send_next)
    again = split(iter(lambda: s.x.take()[1], b""))
    assert [f.body for f in again] == [b"%d" % n for n in range(recv_next - WRAP, 10)]


@pytest.mark.attack(21)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_attack_21_each_message_once_however_often_the_link_is_replaced(delays: list[int]) -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    got: list[bytes] = []
    for n, delay in enumerate(delays):
        s.x.send(stream, b"%d" % n)
        for _ in range(delay):
            s.give(s.x, s.y)
        s.join()  # a newer link, the old one still there
        got += messages(s.y)
        s.y.events.clear()
    s.settle()
    assert got + eat(s.y) == [b"%d" % n for n in range(len(delays))]


def test_positions_beyond_2_to_the_32_resume() -> None:
    s = Sessions(Config(first_sequence=2**40 - 2)).join()
    stream = s.x.open()
    for n in range(5):
        s.x.send(stream, b"%d" % n)
    s.x.take()  # lost
    s.cut()
    s.join()
    s.settle()
    assert eat(s.y) == [b"%d" % n for n in range(5)]
    assert s.x.sender.replay.acked == 2**40 + 3 and s.x.sent_again == 1


def test_a_reset_that_was_lost_is_replayed() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"a")
    s.pump()
    s.x.reset(stream, b"enough")
    s.x.take()
    s.cut()
    s.join()
    s.pump()
    assert [e[2] for e in of(s.y, Event.RESET)] == [b"enough"]


def test_buffered_counts_unread_and_unacknowledged() -> None:
    s = Sessions(SMALL).join()
    stream = s.x.open()
    s.x.send(stream, b"x" * 1000)
    s.pump()
    assert s.x.buffered == 1000 + 19 and s.y.buffered == 1000
    s.settle()
    eat(s.y)
    assert s.x.buffered == 0 and s.y.buffered == 0
    s.x.receive(data(2, WRAP, b"y", 1), 1.0, other_fails)
    assert s.x.buffered == 64


def test_stream_ids_wrap_in_a_long_session() -> None:
    s = Sessions(SMALL).join()
    s.x.places._next_id, s.y.places._next_id = 0xFFFFFFF9, 0xFFFFFFFA
    seen = []
    for n in range(8):
        for giver, taker in ((s.x, s.y), (s.y, s.x)):
            stream = giver.open()
            giver.send(stream, b"%d" % n, True)
            s.settle()
            (theirs,) = arrived(taker)
            assert eat(taker) == [b"%d" % n] and theirs.id == stream.id
            taker.send(theirs, b"done", True)
            taker.release(theirs)
            s.settle()
            assert eat(giver) == [b"done"]
            giver.release(stream)
            seen.append(stream.id)
    assert seen[::2] == [0xFFFFFFF9, 0xFFFFFFFB, 0xFFFFFFFD, 0xFFFFFFFF, 1, 3, 5, 7]
    assert seen[1::2] == [0xFFFFFFFA, 0xFFFFFFFC, 0xFFFFFFFE, 2, 4, 6, 8, 10]
    assert s.x.idle and s.y.idle


def test_a_thousand_streams_one_after_the_other_need_no_more_places_than_are_free() -> None:
    s = Sessions(SMALL).join()
    for n in range(1000):
        stream = s.x.open()
        s.x.send(stream, b"%d" % n, True)
        s.pump()
        (theirs,) = arrived(s.y)
        eat(s.y)
        s.y.send(theirs, b"done", True)
        s.y.release(theirs)
        s.pump()
        eat(s.x)
        s.x.release(stream)
    assert s.x.places.opened == 1000 and s.y.places.granted == 1000 + SMALL.streams
