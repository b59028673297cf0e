"""`python -m bench --peers hermes,grpc --workloads W1,W2,W3 --repeat 3`: measure and tell.

Knows: the command line. Refuses to know: how anything is measured.
Called by: `make bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.app import make_certificates
from bench.peers import PEERS, Peer
from bench.report import ROWS, US, Book, table, targets
from bench.run import Result, measure
from bench.workloads import WORKLOADS

PACKAGES = ("hermes-peer", "uvloop", "msgspec", "cryptography", "grpcio", "websockets", "picows", "nats-py", "a2a-sdk")


def main() -> int:
    options = _options()
    peers = _present(options.peers)
    if not peers:
        print("None of these peers can run here.", file=sys.stderr)
        return 2
    started = time.monotonic()

    def told(result: Result) -> None:
        row = next(row for row in ROWS if row.workload == result["workload"])
        value = result.get(row.key)
        text = f"failed: {result['error']}" if "error" in result else f"{row.label} {value or 0:,.{row.digits}f}"
        name = f"{result['repeat'] + 1}/{options.repeat} {result['peer']:10} {result['workload']:3}"
        print(f"[{time.monotonic() - started:5.0f} s] {name} {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="hb-") as where:
        make_certificates(Path(where))
        results = measure(
            peers,
            options.workloads,
            options.repeat,
            Path(where),
            quick=options.quick,
            verbose=options.verbose,
            told=told,
        )
    book = Book(results)
    if options.json:
        about = {"machine": _machine(), "versions": _versions(), "quick": options.quick, "results": results}
        Path(options.json).write_text(json.dumps(about, indent=1) + "\n")
    print(f"{_machine()}; medians of {options.repeat} repeats; (…x): hermes is so many times better, inside this run")
    print()
    print(table(book))
    print()
    print(targets(book))
    for error in dict.fromkeys(f"{r['peer']} {r['workload']} failed: {r['error']}" for r in results if "error" in r):
        print(error)
    return int(any("error" in r for r in results if r["peer"] == US))


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m bench", description="hermes beside what one would take instead")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma list (default: %(default)s)")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="comma list (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="how often everything runs (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all results there as well")
    parser.add_argument("--quick", action="store_true", help="small and short: to see that it works, not how fast")
    parser.add_argument("--verbose", action="store_true", help="show what the processes write to stderr")
    options = parser.parse_args()
    for name, known in (("peers", PEERS), ("workloads", WORKLOADS)):
        asked = list(dict.fromkeys(getattr(options, name).split(",")))
        unknown = [word for word in asked if word not in known]
        if unknown:
            parser.error(f"unknown {name}: {', '.join(unknown)}; there are {', '.join(known)}")
        setattr(options, name, [word for word in known if word in asked])
    if options.repeat < 1:
        parser.error("--repeat is at least 1")
    return options


def _present(names: list[str]) -> list[Peer]:
    here = []
    for name in names:
        lacking = PEERS[name].lacking()
        if lacking is None:
            here.append(PEERS[name])
        else:
            print(f"{name} is left out: {lacking}.", file=sys.stderr)
    return here


def _machine() -> str:
    return f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found


if __name__ == "__main__":
    sys.exit(main())
