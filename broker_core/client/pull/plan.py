"""How a range of offsets is split into concurrent requests. Pure.

A width is the number of offsets that one request asks for. `CountWidth` adapts to Apache's brokers,
which cap the count (32) and the bytes (256 KiB, less for old data). `SizeWidth` is for our broker,
which caps only the bytes. Too large a width costs one more round trip for the rest of its slot; too
small a width wastes round trips.
"""

from __future__ import annotations

from typing import Final, Protocol

_STREAK_MOST: Final = 256
_SHORTS_TO_SHRINK: Final = 3
# Recent answers count more: a single huge one fades after a few dozen others.
_FADE: Final = 0.9


class Width(Protocol):
    """Offsets to ask for in one request."""

    width: int

    def note(self, asked: int, covered: int, size: int) -> None:
        """Record that an answer to a request for `asked` offsets had `covered`, in `size` bytes."""


class CountWidth:
    """Shrinks to what answers cover and grows after a streak of full answers.

    A single short answer is ignored: Apache stops at the end of each queue file.
    """

    __slots__ = ("_full_streak", "_has_grown", "_most", "_shorts", "_streak_to_grow", "width")

    def __init__(self, first: int, most: int, streak_to_grow: int = 8) -> None:
        self.width = first
        self._most = most
        self._full_streak = 0
        self._shorts: list[int] = []
        self._has_grown = False
        self._streak_to_grow = streak_to_grow

    def note(self, asked: int, covered: int, size: int) -> None:
        """Uses only requests of the full width."""
        if asked < self.width:
            return
        if covered < asked:
            self._full_streak = 0
            self._shorts.append(covered)
            if len(self._shorts) >= _SHORTS_TO_SHRINK:
                self._shrink()
            return
        self._shorts.clear()
        self._full_streak += 1
        if self._full_streak >= self._streak_to_grow and self.width < self._most:
            self.width = min(self.width * 2, self._most)
            self._full_streak = 0
            self._has_grown = True

    def _shrink(self) -> None:
        if self._has_grown:
            self._streak_to_grow = min(self._streak_to_grow * 2, _STREAK_MOST)
        self.width = max(1, *self._shorts)
        self._shorts.clear()
        self._has_grown = False


class SizeWidth:
    """As many offsets as fill an answer of the wanted size."""

    __slots__ = ("_most", "_size", "width")

    def __init__(self, size: int, most: int) -> None:
        self.width = 1
        self._size = size
        self._most = most

    def note(self, asked: int, covered: int, size: int) -> None:
        """Adapts to the bytes per offset."""
        self.width = max(1, min(self._most, self._size * covered // max(size, 1)))


class OffsetSize:
    """Expected bytes per offset: the recent maximum."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected = 0.0

    def note(self, covered: int, size: int) -> None:
        """Record the size of an answer."""
        self.expected = max(size / max(covered, 1), self.expected * _FADE)
