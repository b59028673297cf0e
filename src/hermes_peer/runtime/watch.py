"""Who blocks the event loop: a thread that looks at the loop's stack when its heart stops (HPC-029).

Knows: one thread's frames. Refuses to know: methods (it is told whose code is whose). Called by: endpoint, which
beats twice a second. It costs a call nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType

LATE_S = 1.0  # without a beat


class Watch:
    """`culprit` is a phrase such as "the method text.shout (agent.py:12 in shout)"; empty if nobody was seen."""

    def __init__(self, whose: Callable[[CodeType], str]) -> None:
        self.beat = time.monotonic()
        self.culprit = ""
        self._whose = whose
        self._thread = threading.get_ident()
        self._over = threading.Event()
        threading.Thread(target=self._look, name="hermes-peer-watch", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def take(self) -> str:
        """What was seen since the last time."""
        self.beat = time.monotonic()
        culprit, self.culprit = self.culprit, ""
        return culprit

    def _look(self) -> None:
        while not self._over.wait(LATE_S / 4):
            if not self.culprit and time.monotonic() - self.beat > LATE_S:
                frame = sys._current_frames().get(self._thread)
                if frame is not None:
                    self.culprit = self._name(frame)

    def _name(self, innermost: FrameType) -> str:
        frame: FrameType | None = innermost
        while frame is not None:
            name = self._whose(frame.f_code)
            if name:
                return f"the method {name} ({_place(frame)})"
            frame = frame.f_back
        return _place(innermost)


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} in {code.co_name}"
