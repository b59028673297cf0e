"""Who is measured. A peer is a module with `serve(port)` and a class `Conn(port)`.

    async def serve(port) -> list[int] | None      listens when it returns; pids of further processes
    class Conn:                                    cheap to make: what must exist before dialling
        async def open(self)                       the secured connection; may be left to the first request
        async def request(self, body) -> dict      bench.app.echo, on the server
        def stream(self, n, spread)                async iterator over bench.app.tokens(n, spread)
        async def upload(self, blob) -> dict       bench.app.upload
        async def close(self)

Knows: names, what must be installed, smaller sizes for the slow. Refuses to know: libraries (nothing is imported).
Called by: bench.run, bench.worker.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Peer:
    name: str
    module: str
    secure: str
    packages: Mapping[str, str]  # import name -> what to install
    program: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def lacking(self) -> str | None:
        """What is not installed here, in words."""
        for name, package in self.packages.items():
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:  # a bare folder of that name is no package
                return f"the package {package} is not installed"
        if self.program is not None and shutil.which(self.program) is None:
            return f"the program {self.program} is not on the path"
        return None


PEERS = {
    peer.name: peer
    for peer in (
        Peer("hermes", "hermes", "X25519 + Ed25519, AES-GCM", {"hermes_peer": "hermes-peer"}),
        Peer("grpc", "grpc_mtls", "mTLS 1.3", {"grpc": "grpcio"}),
        Peer("websockets", "websockets_tls", "mTLS 1.3", {"websockets": "websockets"}),
        Peer("picows", "picows_tls", "mTLS 1.3", {"picows": "picows"}),
        Peer("nats", "nats", "none", {"nats": "nats-py"}, program="nats-server"),
        Peer(
            "a2a",
            "a2a",
            "mTLS 1.3",
            {"a2a": "a2a-sdk[http-server]", "uvicorn": "uvicorn", "httptools": "httptools"},
            sizes={"tokens": 1000, "streams_tokens": 20, "blobs": 16, "connects": 50, "links": 100},
        ),
        Peer("raw", "raw_tls", "mTLS 1.3", {}),
    )
}
