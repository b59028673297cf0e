"""From results to a table, ratios and targets.

Knows: which number of a workload counts, and which way is better. Refuses to know: processes, libraries.
Called by: bench.__main__.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

US = "hermes"
Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A line of the table. `scale` times the number is shown with `digits`."""

    workload: str
    label: str
    key: str
    more_is_better: bool
    digits: int = 0
    scale: float = 1.0


ROWS = (
    Row("W1", "1 in flight, p50 µs", "p50_us", False),
    Row("W1", "  p99 µs", "p99_us", False),
    Row("W2", "64 in flight, calls/s", "per_s", True),
    Row("W3", "1 stream, tokens/s", "per_s", True),
    Row("W3b", "50 streams, tokens/s", "per_s", True),
    Row("W4", "uploads of 1 MiB, MB/s", "mb_s", True),
    Row("W5", "idle link, server KiB", "server_kib", False, 1),
    Row("W5", "  client KiB", "client_kib", False, 1),
    Row("W5", "  all, server CPU %", "server_cpu", False, 1, 100),
    Row("W5", "  all, client CPU %", "client_cpu", False, 1, 100),
    Row("W6", "connect + call, ms", "ms", False, 2),
)
COST = (("W1", "call"), ("W2", "call"), ("W3", "token"), ("W3b", "token"), ("W4", "MiB"))


class Book:
    """Results by (peer, workload, repeat)."""

    def __init__(self, results: list[Result]) -> None:
        self.results = results
        self.peers = list(dict.fromkeys(r["peer"] for r in results))
        if US in self.peers:
            self.peers.remove(US)
            self.peers.insert(0, US)
        self._at = {(r["peer"], r["workload"], r["repeat"]): r for r in results}
        self.repeats = sorted({r["repeat"] for r in results})

    def values(self, peer: str, workload: str, key: str) -> list[float]:
        found = (self._at.get((peer, workload, repeat), {}).get(key) for repeat in self.repeats)
        return [value for value in found if value is not None]

    def middle(self, peer: str, workload: str, key: str) -> float | None:
        values = self.values(peer, workload, key)
        return median(values) if values else None

    def ratio(self, rival: str, row: Row) -> float | None:
        """How many times better hermes is than a rival, taken inside each repeat; the median of these."""
        found = []
        for repeat in self.repeats:
            ours = self._at.get((US, row.workload, repeat), {}).get(row.key)
            theirs = self._at.get((rival, row.workload, repeat), {}).get(row.key)
            if ours and theirs and ours > 0 and theirs > 0:
                found.append(ours / theirs if row.more_is_better else theirs / ours)
        return median(found) if found else None

    def spread(self, peer: str, row: Row) -> float:
        """Half of largest minus smallest, as a share of the median."""
        values = self.values(peer, row.workload, row.key)
        return (max(values) - min(values)) / 2 / median(values) if len(values) > 1 and median(values) else 0.0


def table(book: Book) -> str:
    """Medians; behind each rival's number how many times better hermes is (under 1: worse)."""
    seen = {r["workload"] for r in book.results}
    rows = [row for row in ROWS if row.workload in seen]
    lines = [["", "", *book.peers]]
    for row in rows:
        lines.append([row.workload, row.label, *(_cell(book, peer, row) for peer in book.peers)])
    lines.append(["", "largest spread ±", *(f"{_noise(book, peer, rows):.0%}" for peer in book.peers)])
    lines.append(["", "CPU that others took, median", *(_others(book, peer) for peer in book.peers)])
    for workload, what in COST:
        if workload in seen:
            cells = (_cost(book, peer, workload) for peer in book.peers)
            lines.append([workload, f"CPU µs a {what}, client + server", *cells])
    return _columns(lines, words=2)


def targets(book: Book) -> str:
    """The targets of the mission, each with what was measured, and "met" or "not met"."""
    lines = []
    for workload, times in (("W1", 3.0), ("W2", 12.0), ("W3", 10.0)):
        row = next(row for row in ROWS if row.workload == workload)
        value = book.ratio("grpc", row)
        lines.append(
            _target(f"{workload} at least {times:g} times grpc with mTLS", value, "x", lambda v, t=times: v >= t)
        )
    for size in (1_000, 10_000):
        value = book.middle(US, "W1", f"p50_us_{size}")
        text = f"M25 a call of {size // 1000} KB within 3 ms (p50)"
        lines.append(_target(text, value and value / 1000, " ms", lambda v: v <= 3))
    enough = (book.middle(US, "W5", "links") or 0) >= 500  # a quick run has fewer
    value = book.middle(US, "W5", "server_cpu") if enough else None
    text = "M25 500 idle links on at most 10 % of a CPU (server)"
    lines.append(_target(text, value and value * 100, " %", lambda v: v <= 10))
    lines.append(_target("M25 sealing at most 8 % of a call (1 and 10 KB)", _sealing(book), " %", lambda v: v <= 8))
    return _columns(lines, words=1)


def _sealing(book: Book) -> float | None:
    shares = []
    for size in (1_000, 10_000):
        seal, call = (book.middle(US, "W1", f"{what}_us_{size}") for what in ("seal", "p50"))
        if seal and call:
            shares.append(100 * seal / call)
    return max(shares) if shares else None


def _target(text: str, value: float | None, unit: str, met: Callable[[float], bool]) -> list[str]:
    if value is None:
        return [text, "–", "not measured"]
    return [text, f"{value:.2f}{unit}", "met" if met(value) else "NOT MET"]


def _cell(book: Book, peer: str, row: Row) -> str:
    value = book.middle(peer, row.workload, row.key)
    if value is None:
        failed = any("error" in r for r in book.results if (r["peer"], r["workload"]) == (peer, row.workload))
        return "failed" if failed else "–"
    shown = f"{value * row.scale:,.{row.digits}f}"
    ratio = None if peer == US else book.ratio(peer, row)
    return shown if ratio is None else f"{shown} ({ratio:.2g}x)" if ratio < 9.95 else f"{shown} ({ratio:.0f}x)"


def _cost(book: Book, peer: str, workload: str) -> str:
    ours, theirs = (book.middle(peer, workload, f"cpu_{side}_us") for side in ("client", "server"))
    return "–" if ours is None or theirs is None else f"{ours:,.1f} + {theirs:,.1f}"


def _noise(book: Book, peer: str, rows: list[Row]) -> float:
    return max((book.spread(peer, row) for row in rows if "p99" not in row.label), default=0.0)


def _others(book: Book, peer: str) -> str:
    shares = [r["others"] for r in book.results if r["peer"] == peer and "others" in r]
    return f"{median(shares):.0%}" if shares else "–"


def _columns(lines: list[list[str]], words: int) -> str:
    """Lines of equal length; the first `words` columns hold words, the others numbers."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
