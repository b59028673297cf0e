"""What was sent and not yet acknowledged, as encoded, to be sent again byte for byte on the next link.

Knows: numbers of DATA frames, 64 bits wide, all streams together (spec: session, section 2).
Refuses to know: streams, credit, links. Called by: session.
"""

from __future__ import annotations

from collections import deque

from hermes_peer.errors import ProtocolError
from hermes_peer.wire.frames import HEADER, HEADER_SIZE, MASK32


class Replay:
    """Batches of DATA frames in the order of their numbers; `acked` <= every kept number < `next`."""

    __slots__ = ("acked", "bytes", "chunks", "next")

    def __init__(self, first: int) -> None:
        self.acked = first
        self.next = first
        self.bytes = 0
        self.chunks: deque[tuple[int, bytes]] = deque()  # (number after the chunk's last frame, frames)

    def keep(self, frames: bytes) -> None:
        """Keep the frames numbered up to `next`, until the peer says that it has them."""
        self.chunks.append((self.next, frames))
        self.bytes += len(frames)

    def ack(self, mark: int) -> bool:
        """The peer has everything below `mark`. False if that is old news.

        Raises ProtocolError for a mark outside [acknowledged, sent]: above means that the peer claims what it
        cannot have, below (on resume) that it forgot what it had confirmed.
        """
        if not self.acked <= mark <= self.next:
            if mark < self.acked:
                return False
            raise ProtocolError(f"the peer acknowledges {mark}, only {self.next} were sent")
        if mark == self.acked:
            return False
        self.acked = mark
        chunks = self.chunks
        while chunks and chunks[0][0] <= mark:
            self.bytes -= len(chunks.popleft()[1])
        return True

    def rewind(self, mark: int) -> deque[bytes]:
        """Everything from `mark` on, to be sent again. Raises ProtocolError as `ack`, and for a mark below."""
        if mark < self.acked:
            raise ProtocolError(f"the peer wants {mark} again, it has acknowledged {self.acked}")
        self.ack(mark)
        again = deque(frames for _, frames in self.chunks)
        if again:
            again[0] = self._from(again[0], mark)
        return again

    @staticmethod
    def _from(frames: bytes, mark: int) -> bytes:
        at = 0
        while at < len(frames):
            _, _, _, _, _, sequence, length = HEADER.unpack_from(frames, at)
            if (sequence - mark) & MASK32 < 1 << 31:  # RFC 1982: not below the mark
                break
            at += HEADER_SIZE + length
        return frames[at:]
