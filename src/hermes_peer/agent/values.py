"""Values with a meaning of their own in a handler's hands.

Knows: `Final`, which ends a generator with a result. Refuses to know: who sends it, and how it travels.
Called by: handlers, and whoever runs them.
"""

from __future__ import annotations

from typing import Any


class Final:
    """`yield Final(value)` ends a generator: `value` is what `await stream.result()` gives (sdk: Stream)."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Final({self.value!r})"
