"""Who may come in by an HTTP door, and as whom: Host, Origin, token, loopback, rate.

Knows: headers and addresses as a server hands them over, the tokens. Refuses to know: messages, methods, the policy.
Called by: app, websocket, desk. There are no cookies, so nothing is sent by a browser that its page did not write.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hermes_peer import CallError, Code, PermissionDenied, RateLimited
from hermes_peer.access.tokens import Tokens
from hermes_peer.agent.local import LOOPBACK

Headers = Mapping[bytes, bytes]

HOSTS = ("localhost", "127.0.0.1", "[::1]")
PROTOCOL = "hermes.v1"  # the WebSocket subprotocol; a browser sends its token beside it, as "token.…"
# Headers by which a proxy says that it speaks for somebody else, who is then not of this machine.
FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via", b"x-forwarded-host")
ONCE = frozenset({b"host", b"authorization", b"content-type", b"content-length", b"origin", b"sec-fetch-site"})
BUCKETS_MAX = 10_000


class Refusal(Exception):
    """HTTP itself was wrong, or nobody is let in: a status, and the error that goes into the body."""

    def __init__(self, status: int, error: CallError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.headers = list(headers)


def refused(
    status: int,
    reason: str,
    message: str,
    code: Code = Code.ERROR_INVALID_REQUEST,
    headers: Iterable[tuple[bytes, bytes]] = (),
    **details: Any,
) -> Refusal:
    """A Refusal from its words."""
    return Refusal(status, CallError(reason, message, code=code, details=details or None), headers)


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The headers by lower-case name. Raises Refusal where one that decides something comes twice."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in found:
            if name in ONCE:
                raise refused(400, "header_twice", f"the header {name.decode('latin-1')} comes twice; send it once")
            value = found[name] + b"," + value
        found[name] = value
    return found


class Gate:
    """`hosts` are the names that the door answers to, `origins` the pages that may use it; `rate` is in tasks a
    second for each principal, with bursts of twice that.
    """

    def __init__(
        self,
        tokens: Callable[[], Tokens],
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        rate: float | None = None,
        now: Callable[[], float],
    ) -> None:
        self._tokens = tokens
        self.hosts = frozenset(host.lower() for host in (*HOSTS, *hosts))
        self.origins = frozenset(origins)
        self._rate = rate
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}

    def admit(self, scope: Mapping[str, Any], headers: Headers) -> str:
        """The principal of a request. Raises Refusal: 421 for a foreign Host, 403 for a foreign page, 401."""
        self.check_host(headers)
        origin = self.check_origin(headers)
        token = _bearer(headers) or _subprotocol(scope)
        if token:
            return self.principal(token)
        if origin:
            raise _unauthorised("a page in a browser needs a token", "missing")
        if any(name in headers for name in FORWARDED) or not _loopback(scope.get("client")):
            raise _unauthorised("whoever is not on this machine needs a token", "missing")
        return LOOPBACK

    def principal(self, token: str) -> str:
        """The principal of a token. Raises Refusal."""
        name = self._tokens().name_of(token)
        if name is None:
            raise _unauthorised("the token is not known here, or was revoked", "unknown token")
        return f"door:{name}"

    def check_host(self, headers: Headers) -> None:
        """Always, whatever else a request has: a page under a name of its own may lead here (attack 65)."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name, colon, port = host.rpartition(":")
        if not (colon and port.isdigit()):
            name = host
        if not host:
            raise refused(400, "no_host", "the header Host is missing or empty")
        if name not in self.hosts and host not in self.hosts:
            raise refused(
                421,
                "foreign_host",
                f"this door does not answer to {host[:128]!a}; it is told its names by hosts=[…], or --http-host",
                Code.ERROR_PERMISSION_DENIED,
            )

    def lists(self, headers: Headers) -> bool:
        """Whether this is a page that may use the door."""
        return headers.get(b"origin", b"").decode("latin-1") in self.origins

    def check_origin(self, headers: Headers) -> str:
        """The page that sends this, if it is a browser; empty else. Raises Refusal for a page that is not listed."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"none")
        if (origin and origin not in self.origins) or (not origin and site not in (b"none", b"same-origin")):
            shown = origin[:128] or "another site"
            said = f"pages of {shown!a} may not use this door; origins=[…], or --http-origin, lists those that may"
            raise Refusal(403, PermissionDenied("foreign_origin", said))
        return origin

    def spend(self, principal: str) -> None:
        """Count one task. Raises RateLimited."""
        rate = self._rate
        if rate is None:
            return
        now, most = self._now(), max(1.0, 2 * rate)
        left, seen = self._buckets.get(principal, (most, now))
        left = min(most, left + (now - seen) * rate)
        if left < 1:
            self._buckets[principal] = (left, now)
            wait = (1 - left) / rate
            said = f"{principal} may start {rate:g} tasks a second here"
            raise RateLimited("rate", said, retryable=True, retry_after=round(wait, 3), details={"per_second": rate})
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.clear()
        self._buckets[principal] = (left - 1, now)


def _bearer(headers: Headers) -> str:
    said = headers.get(b"authorization", b"").decode("latin-1")
    if not said:
        return ""
    scheme, _, token = said.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _unauthorised("only `Authorization: Bearer TOKEN` is understood here", f"scheme {scheme[:32]!a}")
    return token.strip()


def _subprotocol(scope: Mapping[str, Any]) -> str:
    for each in scope.get("subprotocols") or ():
        if each.startswith("token."):
            return str(each[6:])
    return ""


def _unauthorised(why: str, error: str) -> Refusal:
    return refused(
        401,
        "unauthorised",
        f"{why}: Authorization: Bearer TOKEN",
        Code.ERROR_AUTH_FAILED,
        [(b"www-authenticate", b'Bearer realm="hermes"')],
        auth_method="bearer",
        error=error,
    )


def _loopback(client: Any) -> bool:
    return bool(client) and _is_loopback(client[0])


@functools.lru_cache(1024)
def _is_loopback(host: Any) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
