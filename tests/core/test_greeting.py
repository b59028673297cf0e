"""Until the keys stand: one straight path, and silence for whoever leaves it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import hermes_peer.crypto.side as side
from hermes_peer.core.greeting import SEEN_MAX, SEEN_S, Greeting, Seen
from hermes_peer.core.node import NodeEvent
from hermes_peer.core.states import LINK, LinkInput, LinkState, Reason
from hermes_peer.crypto.handshake import Acceptor, Dialler, HandshakeError, Offer
from hermes_peer.crypto.handshake import Refuse as Refusal
from hermes_peer.crypto.kem import MlKem768
from hermes_peer.errors import ProtocolError
from hermes_peer.wire import frames
from hermes_peer.wire.frames import Frame, Refuse, Type

from .rig import SUITE, A, B, C, World, dice, drain, node, split


def nothing(_: bytes) -> None:
    return None


def dialler(offer: Offer = SUITE, label: str = "d", **more: Any) -> Greeting:
    handshake = Dialler(A, B.fingerprint, offer, b"{}", entropy=dice(label), kem=MlKem768(), now_ms=1, **more)
    return Greeting(handshake, nothing, Seen())


def acceptor(offer: Offer = SUITE, seen: Seen | None = None, find: Any = nothing, label: str = "a") -> Greeting:
    handshake = Acceptor(B, offer, entropy=dice(label), kem=MlKem768(), session=b"s" * 16, now_ms=1)
    return Greeting(handshake, find, seen or Seen())


def tell(taker: Greeting, said: bytes, now: float = 1.0) -> bytes:
    """What `taker` answers to the frame `said`."""
    (frame,) = split([said])
    return taker.receive(frame.type, frame.flags, frame.stream, frame.sequence, frame.body, now)


def test_three_frames_and_both_have_the_same_keys() -> None:
    d, a = dialler(), acceptor()
    assert a.begin() == b""
    ready = tell(d, tell(a, d.begin()))
    assert d.outcome is not None and a.outcome is None
    assert tell(a, ready) == b""
    assert a.outcome is not None
    assert d.outcome.send_secret == a.outcome.receive_secret
    assert d.state is a.state is LinkState.LINK


def reach(state: LinkState, dialled: bool) -> tuple[Greeting, dict[int, bytes]]:
    """A greeting in `state`, and the frames with which an honest other side would have gone on or has gone on."""
    d, a = dialler(), acceptor()
    hello = d.begin()
    welcome = tell(acceptor(), hello)
    bodies = {Type.HELLO: hello, Type.WELCOME: welcome, Type.READY: tell(dialler_of(hello), welcome)}
    bodies[Type.REFUSE] = Refuse(Reason.BUSY).encode()
    if dialled:
        if state is LinkState.LINK:
            tell(d, welcome)
        return d, bodies
    if state is not LinkState.HELLO:
        tell(a, hello)
    if state is LinkState.LINK:
        tell(a, bodies[Type.READY])
    return a, bodies


def dialler_of(hello: bytes) -> Greeting:
    twin = dialler()
    assert twin.begin() == hello
    return twin


ALLOWED = {
    (True, LinkState.HELLO, Type.WELCOME),
    (True, LinkState.HELLO, Type.REFUSE),
    (False, LinkState.HELLO, Type.HELLO),
    (False, LinkState.READY, Type.READY),
}
STATES = [
    (True, LinkState.HELLO),
    (True, LinkState.LINK),
    (False, LinkState.HELLO),
    (False, LinkState.READY),
    (False, LinkState.LINK),
]


@pytest.mark.attack(14)
@pytest.mark.parametrize(("dialled", "state"), STATES)
def test_attack_14_every_type_in_every_state_of_the_greeting(dialled: bool, state: LinkState) -> None:
    for kind in range(256):
        g, bodies = reach(state, dialled)
        assert g.state is state
        frame = split([bodies.get(kind, frames.encode(kind, b"\0" * 40))])[0]
        if (dialled, state, kind) in ALLOWED:
            g.receive(*frame[:4], frame.body, 1.0)
            assert (state, LinkInput[Type(kind).name]) in LINK if kind != Type.REFUSE else g.refusal is not None
        else:
            with pytest.raises(HandshakeError):
                g.receive(*frame[:4], frame.body, 1.0)


@pytest.mark.parametrize("field", ["flags", "stream", "sequence"])
def test_a_handshake_frame_has_no_flags_stream_or_sequence(field: str) -> None:
    for (dialled, state), value in product([(True, LinkState.HELLO), (False, LinkState.HELLO)], (1, 128)):
        g, bodies = reach(state, dialled)
        kind = Type.WELCOME if dialled else Type.HELLO
        frame = Frame(kind, 0, 0, 0, split([bodies[kind]])[0].body)._replace(**{field: value})
        with pytest.raises(HandshakeError, match="frame"):
            g.receive(*frame[:4], frame.body, 1.0)
        assert g.state is state


# ------------------------------------------------------------------ refusals
@pytest.mark.parametrize("code", [*Reason, 77, 255])
def test_a_clear_refusal_counts_for_four_reasons_and_is_else_a_plain_no(code: int) -> None:
    d = dialler()
    d.begin()
    tell(d, Refuse(code, text="because").encode())
    reason = Reason(code) if code in (Reason.VERSION, Reason.SUITE, Reason.BUSY, Reason.DRAINING) else Reason.NONE
    assert d.refusal == (reason, "because")
    assert d.outcome is None


def test_a_refusal_that_is_cut_short_is_a_fault() -> None:
    d = dialler()
    d.begin()
    with pytest.raises(ProtocolError):
        tell(d, frames.encode(Type.REFUSE, b"\2\1"))


@pytest.mark.case("HPC-040")
@pytest.mark.parametrize(
    ("offer", "reason"), [(Offer((2, 9), (2,)), Reason.VERSION), (Offer((1,), (1,)), Reason.SUITE)]
)
def test_hpc_040_no_common_version_or_suite_is_refused_with_both_lists(offer: Offer, reason: Reason) -> None:
    d, a = dialler(offer), acceptor()
    with pytest.raises(HandshakeError) as caught:
        tell(a, d.begin())
    words = a.last_words(caught.value)
    refuse = Refuse.decode(split([words])[0].body)
    assert (refuse.code, refuse.versions, refuse.suites) == (reason, (1,), (2,))
    assert "[1]" in refuse.text and "[2]" in refuse.text
    tell(d, words)
    assert d.refusal is not None and d.refusal[0] is reason


@pytest.mark.case("HPC-040")
def test_hpc_040_a_newer_side_comes_down_to_what_both_speak() -> None:
    d, a = dialler(Offer((9, 2, 1), (77, 2))), acceptor()
    tell(a, tell(d, tell(a, d.begin())))
    assert a.outcome is not None and (a.outcome.version, a.outcome.suite) == (1, 2)


def test_nobody_else_gets_last_words() -> None:
    for error in (HandshakeError("to"), HandshakeError("share")):
        assert acceptor().last_words(error) == b""
    assert dialler().last_words(HandshakeError("version", refuse=Refusal.VERSION)) == b""


# ------------------------------------------------------------------ replayed HELLOs, and what they cost
@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every X25519 exchange and every key pair made for one."""
    count: list[int] = []
    exchange = side.exchange

    def counted(*args: Any) -> bytes:
        count.append(1)
        return exchange(*args)

    for place in ("acceptor", "dialler"):
        monkeypatch.setattr(f"hermes_peer.crypto.{place}.exchange", counted)
    return count


@pytest.mark.attack(4)
def test_attack_4_a_replayed_hello_makes_no_link_and_costs_no_key_work(exchanges: list[int]) -> None:
    w = World().connect()
    session = w.sb
    stream = w.sa.open()
    w.sa.send(stream, b"before")
    w.pump()
    w.dial()
    hello = drain(w.la, w.now)
    w.lb.receive(hello, w.now)
    assert drain(w.lb, w.now)
    done = len(exchanges)
    events = len(w.b.events)
    for n in range(1000):
        link = w.b.accept(w.now + n / 1000, address=str(n))
        link.receive(hello, w.now + n / 1000)
        assert drain(link, w.now) == b"" and link.done
    assert len(exchanges) == done
    assert len(w.b.half_open) == 1  # the honest one
    assert {e[0] for e in w.b.events[events:]} == {NodeEvent.REFUSED}
    assert w.sb is session and session.receiver.next == 1


@pytest.mark.attack(16)
def test_attack_16_a_hello_that_is_not_for_us_costs_one_hash(exchanges: list[int], monkeypatch: Any) -> None:
    w = World().dial()
    hello = bytearray(drain(w.la, w.now))
    monkeypatch.setattr("hermes_peer.crypto.acceptor.decode_hello", None)  # whoever parses, fails
    for at in range(frames.HEADER_SIZE + 4, len(hello)):
        wrong = bytearray(hello)
        wrong[at] ^= 0x40
        link = w.b.accept(w.now)
        link.receive(bytes(wrong), w.now)
        assert link.done and drain(link, w.now) == b""
        assert link.unproven_reason == "to"
    assert not exchanges


@pytest.mark.attack(16)
def test_attack_16_a_flood_of_valid_hellos_costs_no_more_key_work_than_the_address_may_cause(
    exchanges: list[int],
) -> None:
    w = World()

    def knock(n: int, address: str, local: bool = False) -> Any:
        hello = drain(node(C, "c", entropy=dice(f"c {address} {n}")).dial(B.fingerprint, w.now), w.now)
        before = len(exchanges)
        link = w.b.accept(w.now, address=address, local=local)
        link.receive(hello, w.now)
        said = drain(link, w.now)
        assert bool(said) is (len(exchanges) > before) is not link.done
        if link.done:
            assert link.unproven_reason == "busy" and w.b.events[-1][3] is Reason.BUSY
        else:
            link.eof(w.now)
        return bool(said)

    assert sum(knock(n, "10.0.0.1") for n in range(600)) == 500
    assert knock(0, "10.0.0.2")  # others come in as ever
    assert all(knock(n, "unix", local=True) for n in range(510))
    w.now += 1.0
    assert sum(knock(n, "10.0.0.1") for n in range(600, 700)) == 50


def test_what_was_seen_is_forgotten_after_a_minute_and_never_more_than_so_many() -> None:
    seen = Seen()
    hello = b"h" * 200
    assert not seen.before(hello, 1.0)
    seen.note(hello, 1.0)
    assert seen.before(hello, 1.0 + SEEN_S - 0.001)
    assert not seen.before(hello, 1.0 + SEEN_S)
    for n in range(SEEN_MAX + 10):
        seen.note(b"x" * 100 + n.to_bytes(16, "big"), 2.0)
    assert len(seen._when) == SEEN_MAX
    assert not seen.before(b"x" * 100 + (9).to_bytes(16, "big"), 2.0)
    assert seen.before(b"x" * 100 + (10).to_bytes(16, "big"), 2.0)
    seen.note(b"y" * 200, 2.0 + SEEN_S)
    assert len(seen._when) == 1


def test_what_was_not_for_us_pushes_nothing_out() -> None:
    w = World().dial()
    hello = drain(w.la, w.now)
    w.lb.receive(hello, w.now)
    for n in range(SEEN_MAX + 1):
        link = w.b.accept(w.now)
        link.receive(frames.encode(Type.HELLO, n.to_bytes(100, "big")), w.now)
    link = w.b.accept(w.now)
    link.receive(hello, w.now)
    assert link.unproven_reason == "replay"


@pytest.mark.attack(14)
@pytest.mark.parametrize("by_a", [True, False])
def test_attack_14_a_link_that_leaves_the_path_is_over_and_no_handler_hears_of_it(by_a: bool) -> None:
    """The same matrix over real links: what is not awaited ends the link without a word before the keys stand."""
    for kind in range(256):
        w = World(node(A, "a"), node(B, "b")).dial(by_a)
        link = w.la
        drain(link, w.now)
        if kind in (Type.HELLO, Type.WELCOME, Type.REFUSE):
            continue
        link.receive(frames.encode(kind, b"\0" * 64), w.now)
        assert link.done and drain(link, w.now) == b"", kind
        assert w.peer_of_a.session is None
        assert {e[0] for e in w.a.events} == {NodeEvent.DIAL_FAILED if by_a else NodeEvent.REFUSED}
