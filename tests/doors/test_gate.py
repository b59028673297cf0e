"""The gate: Host, Origin, tokens, loopback, rate (attacks 63 to 66)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_peer import CallError, RateLimited
from hermes_peer.access.home import Home
from hermes_peer.access.tokens import Tokens, add_token, revoke_token
from hermes_peer.doors.gate import FORWARDED, Gate, Refusal, headers_of

LOOP = ("127.0.0.1", 5000)
AWAY = ("192.0.2.7", 5000)


class At:
    """A gate, its home, and a clock that stands still."""

    def __init__(self, home: Path, **options: Any) -> None:
        self.home = Home.open(home)
        self.time = 0.0
        kept = Tokens(self.home)
        self.gate = Gate(lambda: kept, now=lambda: self.time, **options)

    def admit(self, client: Any = LOOP, subprotocols: Any = (), **headers: str) -> str:
        raw = {"host": "127.0.0.1:8080", **headers}
        pairs = [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in raw.items() if v is not None]
        scope = {"client": client, "headers": pairs, "subprotocols": subprotocols}
        return self.gate.admit(scope, headers_of(scope))

    def refusal(self, *args: Any, **headers: Any) -> Refusal:
        with pytest.raises(Refusal) as refused:
            self.admit(*args, **headers)
        return refused.value


@pytest.fixture
def at(home: Path) -> At:
    return At(home, hosts=["agent.example", "other.example:8443"], origins=["https://good.example"])


HOSTS = {
    "127.0.0.1": True,
    "127.0.0.1:8080": True,
    "localhost": True,
    "LOCALHOST:1": True,
    "[::1]:8080": True,
    "[::1]": True,
    "agent.example": True,
    "agent.example:443": True,
    "other.example:8443": True,
    "other.example": False,
    "other.example:1": False,
    "evil.example": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example": False,
    "evil.example:127.0.0.1": False,
    "localhost@evil.example": False,
    "0.0.0.0:8080": False,
    "127.0.0.2": False,
    "::1": False,
    "localhost.": False,
    "localhost:x": False,
    "": False,
    " ": False,
}


@pytest.mark.attack(65)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("origin", [None, "https://good.example", "http://evil.example"])
def test_the_host_is_looked_at_always(at: At, host: str, origin: str | None) -> None:
    token = add_token(at.home, "page", 0)
    if HOSTS[host] and origin != "http://evil.example":
        assert at.admit(host=host, origin=origin, authorization=f"Bearer {token}") == "door:page"
        return
    refusal = at.refusal(host=host, origin=origin, authorization=f"Bearer {token}")
    assert refusal.status == (403 if HOSTS[host] else 400 if not host else 421)


def test_no_host_at_all(at: At) -> None:
    assert at.refusal(host=None).status == 400


@pytest.mark.attack(64, 66)
def test_pages_need_to_be_listed_and_to_have_a_token(at: At) -> None:
    token = add_token(at.home, "page", 0)
    assert at.refusal(origin="https://evil.example").status == 403
    assert at.refusal(origin="null", authorization=f"Bearer {token}").status == 403
    assert at.refusal(origin="https://good.example.evil").status == 403
    assert at.refusal(origin="http://127.0.0.1:8080").status == 403  # also a page of the machine itself
    refusal = at.refusal(origin="https://good.example")
    assert refusal.status == 401 and (b"www-authenticate", b'Bearer realm="hermes"') in refusal.headers
    assert at.admit(origin="https://good.example", authorization=f"Bearer {token}") == "door:page"
    assert at.admit(origin="https://good.example", subprotocols=["hermes.v1", f"token.{token}"]) == "door:page"
    for site in ("cross-site", "same-site"):  # a GET of an image has no Origin, but says this
        assert at.refusal(sec_fetch_site=site).status == 403
    for site in ("none", "same-origin"):
        assert at.admit(sec_fetch_site=site) == "door:loopback"


@pytest.mark.attack(63)
def test_who_is_on_this_machine(at: At) -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert at.admit((host, 1)) == "door:loopback"
    for client in (AWAY, ("10.0.0.1", 1), ("::ffff:192.0.2.7", 1), ("", 0), None, ("unix", 0)):
        assert at.refusal(client).status == 401, client
    for name in FORWARDED:  # a proxy of this machine speaks for somebody else
        assert at.refusal(**{name.decode().replace("-", "_"): "127.0.0.1"}).status == 401


def test_tokens_come_and_go(at: At) -> None:
    token = add_token(at.home, "dashboard", 0)
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert at.admit(AWAY, authorization=f"{scheme} {token}") == "door:dashboard"
    assert at.admit(authorization=f"Bearer {token}") == "door:dashboard"  # not loopback: it said who it is
    for wrong in (
        "Bearer",
        "Bearer  ",
        f"Basic {token}",
        token,
        "Bearer x",
        f"Bearer {token}x",
        f"Bearer {token[:-1]}",
    ):
        refusal = at.refusal(authorization=wrong)
        assert refusal.status == 401 and refusal.error.details["auth_method"] == "bearer", wrong
        assert token not in refusal.error.message and token not in str(refusal.error.details)
    revoke_token(at.home, "dashboard")
    assert at.refusal(authorization=f"Bearer {token}").status == 401


def test_what_decides_comes_once() -> None:
    for name in (b"host", b"authorization", b"content-type", b"content-length", b"origin", b"sec-fetch-site"):
        with pytest.raises(Refusal) as refused:
            headers_of({"headers": [(name, b"a"), (name, b"b")]})
        assert refused.value.status == 400
    assert headers_of({"headers": [(b"accept", b"a"), (b"accept", b"b")]}) == {b"accept": b"a,b"}


def test_the_rate_of_each_principal(home: Path) -> None:
    at = At(home, rate=2)
    for _ in range(4):
        at.gate.spend("door:a")
    with pytest.raises(RateLimited) as limited:
        at.gate.spend("door:a")
    assert limited.value.retry_after == 0.5 and limited.value.retryable and limited.value.details == {"per_second": 2}
    at.gate.spend("door:b")
    at.time = 0.5
    at.gate.spend("door:a")
    with pytest.raises(CallError):
        at.gate.spend("door:a")
    at.time = 1000
    for _ in range(4):
        at.gate.spend("door:a")
    with pytest.raises(CallError):
        at.gate.spend("door:a")
    for _ in range(100):
        At(home.parent / "none").gate.spend("door:a")
