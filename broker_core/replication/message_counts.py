"""Estimates the number of messages between two positions, from marks set as the log grows. Pure.

The number of records below a position is not stored. The master marks (position, messages so far)
once per turn of the loop; between two marks, and before the first one of this run, messages are
assumed to be spread evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

# Beyond this, every second mark of the older half is removed.
MARKS_MAX: Final = 4096


class MessageCounts:
    """Ascending marks; the owner sets them in order."""

    def __init__(self, start: int, end: int, message_count: int) -> None:
        """The log `[start, end)` has `message_count` messages when it is opened."""
        self._positions = [start, end] if end > start else [end]
        self._counts = [0, message_count] if end > start else [message_count]
        self._base = message_count

    def mark(self, position: int, appended_count: int) -> None:
        """`appended_count` messages were appended up to `position` since the log was opened."""
        if position <= self._positions[-1]:
            return
        self._positions.append(position)
        self._counts.append(self._base + appended_count)
        if len(self._positions) > MARKS_MAX:
            half = MARKS_MAX // 2
            self._positions[:half] = self._positions[:half:2]
            self._counts[:half] = self._counts[:half:2]

    def behind(self, position: int) -> int:
        """Messages from `position` to the last mark."""
        positions, counts = self._positions, self._counts
        if position >= positions[-1]:
            return 0
        place = bisect_right(positions, position)
        if place == 0:
            return counts[-1] - counts[0]
        first, last = positions[place - 1], positions[place]
        between = counts[place] - counts[place - 1]
        below = between * (position - first) // (last - first)
        # At least one message is missing, even if the estimate rounds to none.
        return max(counts[-1] - counts[place - 1] - below, 1)
