"""What one seed means: how many nodes, which limits, which loads and faults are on (swarm testing).

Knows: dice. Refuses to know: nodes, time, what a fault does.
Called by: simulator; a failing seed is reported together with this, so that it can be run again by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hermes_peer.core.config import Config

FAULTS = (
    "cut",  # both ends read the end, in the middle of whatever
    "cut_at",  # the same after so many more bytes
    "doomed",  # the next few lines die young: somewhere in the handshake, or as the session resumes
    "hole",  # one direction swallows everything, nobody is told
    "silence",  # both directions do
    "half_close",  # one end reads the end, the other goes on
    "stall",  # one direction delivers nothing for a while, then everything
    "partition",  # two nodes cannot connect for a while, and lose what they had
    "cross",  # both dial at the same time
    "again",  # a dial although a link is up
    "freeze",  # a process stands still, then wakes
    "restart",  # a process comes back without its memory
    "refuse",  # the trust list says no for a while
    "goodbye",  # one side ends the session on purpose
    "give_up",  # a caller cancels all that it has begun
    "squeeze",  # the process is told that it is short of memory
)
LOADS = ("answer", "items_out", "items_in", "asks", "cancel", "abort", "large", "burst", "slow", "early", "think")


@dataclass(frozen=True)
class Plan:
    """Everything that a seed has decided before the world begins; the rest is drawn as the world goes on."""

    nodes: int
    faults: tuple[str, ...]
    loads: tuple[str, ...]
    configs: tuple[Config, ...]
    calls: int
    strikes: int  # how many faults happen
    seconds: float  # for how long calls begin and faults happen
    latency: tuple[float, float]
    buffer: int  # bytes on their way in one direction, beyond which nobody writes; 0: each line has its own
    split: int  # largest piece that is read at once; 0: as it comes
    first_id: int  # 0: as usual; else where the ids of the originator's streams begin
    sealed: bool = True
    overlap: bool = False  # a side sends more again than it was asked for
    quiet: bool = False  # at the end, wait until the links close for idleness
    more: dict[str, float] = field(default_factory=dict)

    @classmethod
    def draw(cls, dice: Random) -> Plan:
        """The swarm: every seed has its own subset of faults and loads, and its own limits."""
        nodes = dice.choice((2, 2, 2, 3, 4))
        faults = tuple(f for f in FAULTS if dice.random() < dice.choice((0.15, 0.5)))
        loads = tuple(load for load in LOADS if dice.random() < 0.5) or ("answer",)
        first = dice.choice((0, 0, 2**31 - 20, 2**32 - 50, 2**32 - 1, 2**33 - 3))
        shared = _limits(dice, first)
        configs = tuple(shared if dice.random() < 0.6 else _limits(dice, first) for _ in range(nodes))
        low = dice.choice((0.0001, 0.001, 0.02))
        buffer = dice.choice((1 << 30, 1 << 16, 3000, 1, 0, 0)) if low < 0.01 else 1 << 30
        return cls(
            nodes=nodes,
            faults=faults,
            loads=loads,
            configs=configs,
            calls=dice.randint(4, 30),
            strikes=dice.randint(0, 12) if faults else 0,
            seconds=dice.choice((2.0, 10.0, 60.0)),
            latency=(low, low * dice.choice((1, 3, 20))),
            buffer=buffer,
            split=dice.choice((0, 0, 0, 1, 7, 100, 1500)),
            first_id=dice.choice((0, 0, 2**31 - 9, 2**32 - 7, 2**32 - 21)),
            sealed=dice.random() < 0.8,
            overlap=dice.random() < 0.3,
            quiet=dice.random() < 0.15,
        )


def _limits(dice: Random, first: int) -> Config:
    window = dice.choice((4096, 4096, 4096, 8192, 8192, 48 * 1024, 256 * 1024))
    busy = dice.choice((1.0, 5.0))
    return Config(
        frame=dice.choice((1024, 1500, 2040, 16_384, 65_517)),
        message=dice.choice((5000, 40 * 1024, 64 * 1024, 64 * 1024)),
        window=window,
        window_max=dice.choice((window, 4 * window, 1 << 22)),
        streams=dice.choice((9, 12, 16, 40, 128)),
        spare=dice.choice((0, 16 * 1024, 1 << 20)),
        permits=dice.choice((1, 2)),
        resume_s=dice.choice((600.0, 600.0, 600.0, 6.0)),
        idle_s=busy * 3,
        busy_s=busy,
        rest_s=dice.choice((1.0, 10.0, 30.0)),
        close_s=dice.choice((1.0, 45.0)),
        keep=dice.random() < 0.2,
        ack_frames=dice.choice((1, 3, 32)),
        ack_bytes=dice.choice((2000, 256 * 1024)),
        ack_s=dice.choice((0.0, 0.02, 0.2)),
        batch=dice.choice((512, 8192)),
        first_sequence=first,
    )
