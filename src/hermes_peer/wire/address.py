"""Addresses of agents as text: `hermes://[FP@]host:port`, `hermes+unix://[FP@]/path`, `hermes+memory://[FP@]name`.

Knows: their grammar. Refuses to know: name resolution, sockets, whether anybody lives there.
Called by: everything that reads an address from a person, a pin or a registry record.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Literal

from hermes_peer.errors import UsageError

DEFAULT_PORT = 7891
# sun_path is 108 bytes on Linux and 104 on macOS, with its closing zero.
PATH_MAX = 103

FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SCOPE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_MEMORY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_EXAMPLE_TCP = "hermes://192.0.2.7:7891"
_EXAMPLE_UNIX = "hermes+unix:///run/user/1000/hermes-peer/worker.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """One place to dial or to listen at (protocol decisions, section 3).

    `scheme` "tcp" (host, port), "unix" (path, absolute) or "memory" (path, a name within this event loop);
    `fingerprint` is "" or 64 lower-case hex digits. Port 0 is for listeners that let the system choose.
    Made by `parse`, `tcp`, `unix` or `memory`, which check it.
    """

    scheme: Literal["tcp", "unix", "memory"]
    host: str = ""
    port: int = 0
    path: str = ""
    fingerprint: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address that `text` writes. Nothing is percent-decoded. Raises UsageError."""
        if not isinstance(text, str):
            raise UsageError(f"An address is a text such as {_EXAMPLE_TCP}, not {type(text).__name__}.")
        scheme, colon, rest = text.partition("://")
        if colon and scheme == "hermes":
            at = rest.rpartition("@")
            host, port = _host_port(at[2], text)
            return cls.tcp(host, port, _prefix(at, text))
        if colon and scheme == "hermes+unix":
            # A path may hold '@', so a fingerprint is looked for only before the first '/'.
            before, slash, path = rest.partition("/")
            head = (before.removesuffix("@"), "@" if before.endswith("@") else "", "")
            if before and not head[1]:
                raise _bad(text, "the path must be absolute", _EXAMPLE_UNIX)
            return cls.unix(slash + path, _prefix(head, text))
        if colon and scheme == "hermes+memory":
            at = rest.rpartition("@")
            return cls.memory(at[2], _prefix(at, text))
        raise _bad(text, "it must start with hermes:// or hermes+unix://", _EXAMPLE_TCP)

    @classmethod
    def tcp(cls, host: str, port: int = DEFAULT_PORT, fingerprint: str = "") -> Address:
        """A TCP address; `host` is a name, an IPv4 or an IPv6 address without brackets. Raises UsageError."""
        if not 0 <= port <= 65535:
            raise _bad(f"{host}:{port}", "the port must be 0 to 65535", _EXAMPLE_TCP)
        return cls("tcp", _host(host), port, "", _fingerprint(fingerprint))

    @classmethod
    def unix(cls, path: str, fingerprint: str = "") -> Address:
        """A Unix socket address; `path` is absolute, printable, at most 103 bytes. Raises UsageError."""
        if not path.startswith("/") or path == "/":
            raise _bad(path, "the path must be absolute", _EXAMPLE_UNIX)
        if not path.isprintable():
            raise _bad(path, "the path must have printable characters only", _EXAMPLE_UNIX)
        if len(path.encode()) > PATH_MAX:
            raise _bad(path, f"the path of a Unix socket has at most {PATH_MAX} bytes", _EXAMPLE_UNIX)
        return cls("unix", "", 0, path, _fingerprint(fingerprint))

    @classmethod
    def memory(cls, name: str, fingerprint: str = "") -> Address:
        """A place within one event loop, for tests without sockets. Raises UsageError."""
        if _MEMORY.fullmatch(name) is None:
            raise _bad(name, "a name has 1 to 64 of A-Z, a-z, 0-9, _, . and -", "hermes+memory://worker")
        return cls("memory", "", 0, name, _fingerprint(fingerprint))

    def with_fingerprint(self, fingerprint: str) -> Address:
        """The same place with this key ("" or 64 hex digits). Raises UsageError."""
        return replace(self, fingerprint=_fingerprint(fingerprint))

    @property
    def endpoint(self) -> Address:
        """The same place without a fingerprint: what a socket needs."""
        return replace(self, fingerprint="") if self.fingerprint else self

    def __str__(self) -> str:
        key = f"{self.fingerprint}@" if self.fingerprint else ""
        if self.scheme == "unix":
            return f"hermes+unix://{key}{self.path}"
        if self.scheme == "memory":
            return f"hermes+memory://{key}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"hermes://{key}{host}:{self.port}"


def _bad(text: str, why: str, example: str) -> UsageError:
    shown = ascii(text)
    shown = shown if len(shown) <= 120 else shown[:116] + "...'"
    return UsageError(f"{shown} is not an address: {why} (example: {example}).")


def _prefix(head: tuple[str, str, str], text: str) -> str:
    if head[1] and not head[0]:
        raise _bad(text, "there is no fingerprint before the '@'", _EXAMPLE_TCP)
    return head[0]


def _fingerprint(text: str) -> str:
    lower = text.lower() if text.isascii() else text
    if lower and FINGERPRINT.fullmatch(lower) is None:
        raise UsageError(
            f"{text[:80]!a} is not a fingerprint: it must be 64 hex digits, as `hermes-peer trust show` prints them."
        )
    return lower


def _host_port(text: str, whole: str) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, tail = text[1:].partition("]")
        if not bracket or ":" not in host:
            raise _bad(whole, "an IPv6 address stands in brackets", "hermes://[2001:db8::7]:7891")
        if tail and not tail.startswith(":"):
            raise _bad(whole, "after the bracket comes ':' and the port", "hermes://[2001:db8::7]:7891")
        port = tail[1:] if tail else str(DEFAULT_PORT)
    else:
        if text.count(":") > 1:
            raise _bad(whole, "an IPv6 address stands in brackets", "hermes://[2001:db8::7]:7891")
        host, colon, port = text.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise _bad(whole, "the port must be 0 to 65535 and nothing may follow it", _EXAMPLE_TCP)
    return host, int(port)


def _host(host: str) -> str:
    if ":" in host:
        try:
            six = ipaddress.IPv6Address(host)
        except ValueError:
            raise _bad(host, "this is no IPv6 address", "hermes://[2001:db8::7]:7891") from None
        if six.scope_id is not None and _SCOPE.fullmatch(six.scope_id) is None:
            raise _bad(host, "this is no interface name after '%'", "hermes://[fe80::7%eth0]:7891")
        return str(six)
    lower = host.lower() if host.isascii() else ""
    labels = lower.split(".")
    if len(lower) > 253 or any(_LABEL.fullmatch(label) is None for label in labels):
        raise _bad(host, "the host must be a name in ASCII or an IP address", _EXAMPLE_TCP)
    if _NUMBER.fullmatch(labels[-1]):
        # "127.1", "0x7f.1" and "2130706433" are loopback to some resolvers: only the full form counts
        # (attack 62).
        try:
            return str(ipaddress.IPv4Address(lower))
        except ValueError:
            raise _bad(host, "an IPv4 address has four decimal numbers", _EXAMPLE_TCP) from None
    return lower
