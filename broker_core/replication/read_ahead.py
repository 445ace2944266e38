"""Holds bytes that were read ahead for a slave that is far behind. Pure.

The newest part of a log is in memory, so it is read on the event loop. Older bytes may be on disk
only: a thread reads them in large pieces, so that producers do not wait.
"""

from __future__ import annotations

from collections import deque
from typing import Final

PIECE_SIZE: Final = 4 << 20
PIECES_MAX: Final = 2


class ReadAhead:
    """Pieces that follow each other; `distance` bytes before the end count as in memory."""

    def __init__(self, distance: int) -> None:
        self._distance = distance
        self._pieces: deque[tuple[int, memoryview]] = deque()

    def is_far(self, position: int, end: int) -> bool:
        """Whether bytes at `position` must not be read on the loop of a log that ends at `end`."""
        return end - position > self._distance

    def wanted(self, position: int, end: int) -> tuple[int, int] | None:
        """(position, size) of the piece to read next for a slave that was sent `position`."""
        if self._pieces:
            last, data = self._pieces[-1]
            position = last + len(data)
        if len(self._pieces) >= PIECES_MAX or not self.is_far(position, end):
            return None
        return position, min(PIECE_SIZE, end - position)

    def give(self, position: int, data: bytes) -> None:
        """A piece that was wanted has been read."""
        if data:
            self._pieces.append((position, memoryview(data)))

    def take(self, position: int, size: int) -> memoryview | None:
        """Up to `size` bytes from `position` on; None when they were not read."""
        while self._pieces:
            start, data = self._pieces[0]
            if start <= position < start + len(data):
                return data[position - start : position - start + size]
            self._pieces.popleft()
        return None
