"""From a name to a contact: live links first, then registry records, then pins with an address.

Knows: trust, policy, records, which instances of a name live. Refuses to know: methods, payloads, streams.
Called by: agent. A name counts only if it was granted; a registry introduces and never gives authority.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from hermes_peer.access.names import check_agent_name
from hermes_peer.access.policy import Policy
from hermes_peer.access.trust import Trust
from hermes_peer.core.config import Caps
from hermes_peer.core.node import Verdict
from hermes_peer.core.states import Reason
from hermes_peer.errors import LinkError, UsageError
from hermes_peer.registry.base import Registry
from hermes_peer.registry.record import Record
from hermes_peer.registry.view import View
from hermes_peer.runtime.contact import Contact
from hermes_peer.wire.address import FINGERPRINT, Address

if TYPE_CHECKING:
    from hermes_peer.access.home import Home
    from hermes_peer.runtime.endpoint import Endpoint

log = logging.getLogger("hermes_peer.trust")
FRESH_S = 2.0  # how long a look-up holds: by then an instance that began is chosen, too
ROUTES_MAX = 4096
NOISE_MS = 50  # a queue as short as one slow turn of a loop makes it says nothing
LINKED, UNLINKED, DRAINING = range(3)


OWN_WORK = frozenset({"hermes.settle", "hermes.resume", "hermes.cancel"})  # they serve the submitting key only


class Directory:
    """`route(target)` is the hot path of a call: a dict look-up while nothing changes."""

    def __init__(self, home: Home, own: bytes, own_name: str, registry: Registry) -> None:
        self.trust = Trust(home)
        self.policy = Policy(home)
        self.view = View(registry, self.trust)
        self.endpoint: Endpoint | None = None
        self._own = own
        self._own_name = own_name
        self._routes: dict[str, list[Contact]] = {}
        self._fresh: dict[str, float] = {}
        self._home_keys: dict[bytes, bool] = {}
        self._trust_changed = self._policy_changed = False

    # ------------------------------------------------------------------ who is who
    def judge(self, fingerprint: bytes, caps: Caps) -> Verdict:
        """The trust list's word on a proven key (spec: handshake, section 6)."""
        grant = self.trust.grant(fingerprint.hex(), time.time())
        if (not grant.allowed or caps.agent not in grant.names) and self.reload()[0]:
            grant = self.trust.grant(fingerprint.hex(), time.time())  # an agent of this home that just began
        shown = fingerprint.hex()
        if not grant.allowed:
            return Verdict(
                frozenset(),
                Reason.UNTRUSTED,
                f"the agent that was called does not trust {caps.agent} ({shown[:16]}…); to let it in, run over there: "
                f"hermes-peer trust add {shown} name={caps.agent}",
            )
        if caps.agent not in grant.names:
            names = ", ".join(sorted(grant.names)) or "no name"
            return Verdict(
                frozenset(),
                Reason.NAME,
                f"the agent that was called knows {caps.agent} ({shown[:16]}…) as {names}; rename it, or run over "
                f"there: hermes-peer trust add {shown} name={caps.agent}",
            )
        self._home_keys[fingerprint] = grant.home
        return Verdict(frozenset({caps.agent}))

    def allows(self, contact: Contact, method: str, public: bool = False) -> bool:
        """The permission matrix (mission M11). `public`: its author marked the method so.

        What a submitter does with its own durable work needs no rule of its own.
        """
        if method in OWN_WORK:
            return True
        peer, own = contact.peer, self._own_name
        home = self._home_keys.get(peer.fingerprint, False)
        return self.policy.verdict(peer.names, peer.fingerprint.hex(), home, own, method, public).allowed

    def reload(self, *, patient: bool = False) -> tuple[bool, bool]:
        """Look whether trust or policy changed on disk: (trust changed, policy changed)."""
        trust, policy = self.trust.reload_if_changed(patient=patient), self.policy.reload_if_changed()
        if trust:
            self._routes.clear()
        self._trust_changed |= trust
        self._policy_changed |= policy
        return trust, policy

    def changes(self) -> tuple[bool, bool]:
        """What changed since this was last asked, whoever noticed it first: then running calls are asked again."""
        self.reload(patient=True)
        found = self._trust_changed, self._policy_changed
        self._trust_changed = self._policy_changed = False
        return found

    def changed(self, contact: Contact) -> None:
        """A link came or went."""
        if contact.find_addresses is Contact.no_addresses and contact.peer.names:
            self._contact(contact.peer.fingerprint, min(contact.peer.names))  # it dialled us: we may dial it, too
        for target in [t for t, contacts in self._routes.items() if contact in contacts]:
            del self._routes[target]
        for name in contact.peer.names:
            self._routes.pop(name, None)

    # ------------------------------------------------------------------ where is who
    def route(self, target: str, now: float) -> Contact | None:
        """A contact with a session for `target`, the least loaded of its instances; None: use `find`."""
        routes = self._routes.get(target)
        if routes is None or now > self._fresh[target]:
            return None  # look again: another instance may have begun
        if len(routes) == 1:
            contact = routes[0]
            return contact if contact.session is not None and contact.pump is not None else None
        return min((c for c in routes if c.pump is not None and c.session is not None), key=_load, default=None)

    def linked(self, target: str, now: float) -> Contact | None:
        """Who would be called now, if that needs no dialling. Looks again if the last look was long ago."""
        if target not in self._routes or now > self._fresh[target]:
            try:
                self.find(target, now)
            except (LinkError, UsageError):
                self._keep_route(target, [], now)  # not to look for it again at once
        return self.route(target, now)

    def find(self, target: str, now: float) -> list[Contact]:
        """All contacts that may serve `target`, best first; they may have no link yet. Raises LinkError, UsageError.

        `target` is a granted name, 64 hex digits of a fingerprint, or an address with a fingerprint.
        """
        endpoint = self.endpoint
        assert endpoint is not None
        if not isinstance(target, str) or not target:
            raise UsageError(f"which agent? A call takes a name, a fingerprint or an address, not {target!r}")
        if "://" in target or FINGERPRINT.fullmatch(target):
            contact = self._by_address(Address.parse(target)) if "://" in target else self._by_key(target)
            self._keep_route(target, [contact], now)
            return [contact]
        found = self._known(target)
        if all(_rank(c) == DRAINING for c in found.values()) and self.reload()[0]:
            found = self._known(target)  # an agent that began a moment ago
        if not found:
            raise LinkError(self._unknown(target), reason="address")
        contacts = sorted(found.values(), key=lambda c: (_rank(c), c.session is None, _load(c)))
        rank = _rank(contacts[0])  # one that drains is no route as long as there is another to be dialled
        self._keep_route(target, [c for c in contacts if _rank(c) == rank], now)
        return contacts

    def _known(self, target: str) -> dict[bytes, Contact]:
        assert self.endpoint is not None
        found: dict[bytes, Contact] = {}
        for key, contact in self.endpoint.contacts.items():
            if target in contact.peer.names and contact.session is not None:
                found[key] = contact
        for record in self._lookup(target):
            key = bytes.fromhex(record.fingerprint)
            if key != self._own:
                found.setdefault(key, self._contact(key, target))
        for fingerprint in self.trust.fingerprints(target):
            key = bytes.fromhex(fingerprint)
            if key not in found and key != self._own and self._pinned(target, fingerprint):
                found[key] = self._contact(key, target)
        return found

    def _keep_route(self, target: str, contacts: list[Contact], now: float) -> None:
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[target] = contacts
        self._fresh[target] = now + FRESH_S

    def _lookup(self, name: str) -> list[Record]:
        """The living records of a name; what is linked already can be called without a registry."""
        try:
            return self.view.lookup(name, time.time())
        except OSError as error:
            log.warning("the registry cannot be read: %s", error)
            return []

    def of(self, record: Record) -> Contact:
        """The contact of one listed instance, at the addresses of that very record."""
        assert self.endpoint is not None
        contact = self.endpoint.contact(bytes.fromhex(record.fingerprint))
        if not contact.peer.names:
            contact.peer.names = frozenset({record.agent_id})
        if contact.pump is None:
            contact.find_addresses = record.places
        return contact

    def other(self, target: str, contact: Contact, refused: Collection[Contact] = ()) -> bool:
        """After `contact` refused since it drains: whether there is another instance of `target` that may take calls,
        linked or yet to be dialled, besides those that `refused`."""
        if contact.pump is not None and contact.pump.link is not None:
            beat = contact.pump.link.heartbeat
            beat.load = beat.load._replace(accepting=False)  # its word may have come before its heartbeat's
        self._routes.pop(target, None)
        routes = self.find(target, 0.0)
        return any(c is not contact and c not in refused and _rank(c) != DRAINING for c in routes)

    def all(self) -> list[Record]:
        """Every living record that this home may know (mission M5)."""
        return self.view.all(time.time())

    def _unknown(self, target: str) -> str:
        itself = target == self._own_name or self._own.hex() in self.trust.fingerprints(target)
        own = " (only this agent itself has that name)" if itself else ""
        try:
            own_key = self._own.hex()
            names = sorted({record.agent_id for record in self.all() if record.fingerprint != own_key})
        except OSError as error:
            return f"no agent named {target} is known here{own}: the registry cannot be read ({error})"
        running = f"running: {', '.join(names)}" if names else "no other agent is running"
        return (
            f"no agent named {target} runs in this home{own}: start it first; {running}; for one on another machine: "
            f"'hermes-peer trust add FINGERPRINT name={target} at=hermes://HOST:PORT'"
        )

    def _pinned(self, name: str, fingerprint: str) -> list[Address]:
        return [a for a in self.trust.address(name) if a.fingerprint in ("", fingerprint)]

    def find_key(self, key: bytes, target: str) -> Contact:
        """The contact of one key that was found under `target`. Raises LinkError if it is not trusted any more."""
        if "://" in target:
            contact = self._by_address(Address.parse(target))
            if contact.peer.fingerprint == key:
                return contact
        if "://" in target or FINGERPRINT.fullmatch(target):
            return self._by_key(key.hex())
        return self._contact(key, target)

    def check(self, target: str) -> None:
        """Whether there can be such a target at all; nobody is asked where it is. Raises UsageError."""
        if not isinstance(target, str) or not target:
            raise UsageError(f"which agent? A call takes a name, a fingerprint or an address, not {target!r}")
        if "://" in target:
            Address.parse(target)
        elif FINGERPRINT.fullmatch(target) is None:
            check_agent_name(target)

    def name_of(self, key: bytes) -> str:
        """What the owner of a key is called here, also while it has no line: its granted name, else its digits."""
        if len(key) != 32:
            return key.rstrip(b"\0").decode()  # whoever came by a door
        return min(self.trust.grant(key.hex(), time.time()).names, default=key.hex()[:16])

    def allows_key(self, key: bytes, method: str, public: bool) -> bool:
        """The matrix's word on work whose submitter may have no line now."""
        if len(key) != 32:
            from hermes_peer.agent.local import Principal

            door = Principal(key.rstrip(b"\0").decode())
            return self.policy.verdict(door.names, key.hex(), False, self._own_name, method, public).allowed
        grant = self.trust.grant(key.hex(), time.time())
        if not grant.allowed:
            return False
        return self.policy.verdict(grant.names, key.hex(), grant.home, self._own_name, method, public).allowed

    def _contact(self, key: bytes, name: str) -> Contact:
        assert self.endpoint is not None
        contact = self.endpoint.contact(key)
        if not contact.peer.names:
            contact.peer.names = frozenset({name})

        def addresses() -> Sequence[Address]:
            # Asked anew at each attempt: an instance may have moved (HPC-072).
            fingerprint = key.hex()
            found: dict[Address, None] = {}
            for record in self._lookup(name):
                if record.fingerprint == fingerprint:
                    found.update(dict.fromkeys(record.places()))
            found.update(dict.fromkeys(self._pinned(name, fingerprint)))
            if contact.peer.caps is not None:
                found.update(dict.fromkeys(Address.parse(text) for text in contact.peer.caps.addr))
            return list(found)

        contact.find_addresses = addresses
        return contact

    def _by_key(self, fingerprint: str) -> Contact:
        if bytes.fromhex(fingerprint) == self._own:
            raise LinkError("this is the agent's own key: an agent does not call itself", reason="self", refused=True)
        grant = self.trust.grant(fingerprint, time.time())
        if not grant.allowed and self.reload()[0]:
            grant = self.trust.grant(fingerprint, time.time())  # an agent of this home that began a moment ago
        if not grant.allowed:
            raise LinkError(
                f"the key {fingerprint[:16]}… is not trusted here; if you know it, run: "
                f"hermes-peer trust add {fingerprint} name=NAME",
                reason="untrusted",
                refused=True,
            )
        return self._contact(bytes.fromhex(fingerprint), min(grant.names, default=fingerprint[:16]))

    def _by_address(self, address: Address) -> Contact:
        if not address.fingerprint:
            known = [p for p in self.trust.pins() if p.at is not None and p.at.endpoint == address.endpoint]
            if not known:
                try:
                    records = self.all()
                except OSError as error:
                    raise LinkError(f"the registry cannot be read: {error}", reason="address") from None
                known_records = [r for r in records if any(p.endpoint == address.endpoint for p in r.places())]
                if not known_records:
                    raise UsageError(
                        f"whose address is {address}? Put the fingerprint before it (hermes://FINGERPRINT@HOST:PORT), "
                        f"or pin it: 'hermes-peer trust add FINGERPRINT name=NAME at={address}'; the other side shows "
                        "it with 'hermes-peer trust show'"
                    )
                return self._by_key(known_records[0].fingerprint)
            return self._by_key(known[0].fingerprint)
        contact = self._by_key(address.fingerprint)
        contact.find_addresses = lambda: [address]
        return contact


def _rank(contact: Contact) -> int:
    """Who has a line and takes calls, before who may be dialled, before who drains."""
    if contact.pump is None:
        return UNLINKED
    link = contact.pump.link
    return LINKED if link is None or link.heartbeat.load.accepting else DRAINING


def _load(contact: Contact) -> tuple[bool, int, int]:
    """Sorting key: who accepts, has the shortest queue, and the fewest calls in work (mission M4, L7)."""
    link = contact.pump.link if contact.pump is not None else None
    session = contact.session
    load = link.heartbeat.load if link is not None else None
    ours = session.places.open_mine if session is not None else 0
    if load is None:
        return True, 0, ours
    return not load.accepting, load.queue_ms // NOISE_MS, load.in_flight - load.ours + ours
