"""What the journal keeps, and the port that every journal implements.

Knows: the rows, their states, the bounds, and what may be asked. Refuses to know: disks, threads, clocks, the wire.
Called by: the agent's durable work; operations, rules and both journals build on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import IntEnum, StrEnum
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from hermes_peer.journal.operations import Operation
from hermes_peer.journal.pending import Pending
from hermes_peer.journal.values import Answer, Items, Sent, SentState, Taken, TakenState

T = TypeVar("T")
