"""Keys, records and a judge for the registry's tests."""

import os

import msgspec
import pytest

from hermes_peer.crypto.keys import Identity
from hermes_peer.registry.record import Record, sign_record

NOW = 1_800_000_000.0


@pytest.fixture(scope="session")
def keys():
    return [Identity.generate(os.urandom) for _ in range(3)]


def record_of(identity, name="worker", **more):
    values = {
        "agent_id": name,
        "instance_id": "i-1",
        "key": identity.public.hex(),
        "addresses": ["hermes://192.0.2.7:7891"],
        "capabilities": ["text"],
        "seq": 1,
        "issued_ms": int(NOW * 1000),
        "lease_s": 60.0,
        **more,
    }
    return Record(**values)


def signed(identity, name="worker", **more):
    return sign_record(identity, record_of(identity, name, **more))


def forged(identity, data):
    """Rightly signed bytes that our own signer would refuse: what a hostile node can do."""
    from hermes_peer.crypto.keys import Context

    data = data if isinstance(data, bytes) else msgspec.json.encode(data)
    return data + b"\n" + identity.sign(Context.RECORD, data).hex().encode()
