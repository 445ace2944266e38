"""How old log files are, whatever was done to the wall clock since.

A clock that is set ten years ahead for a minute must not expire everything that was stored, and
one that is set back must not make what is written meanwhile look ten years old. So files age by a
time that does not jump, and none is older than it can be by the last look at it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

from broker_core.codec.record_layout import BORN_HOST_AT, IPV6_EXTRA, SYS_FLAG_AT
from broker_core.runtime.clock import Clock, SteadyTime
from broker_core.storage.segment_file import Segment

_INT, _TIME = struct.Struct(">i"), struct.Struct(">q")
_BORN_HOST_V6 = 0x10
_STORE_TIME_AT = BORN_HOST_AT + 8
_HEADER_SIZE = _STORE_TIME_AT + IPV6_EXTRA + _TIME.size


class FileAges:
    """Owner thread only, asked again and again. Files from `first_new` on are not full yet."""

    def __init__(self, clock: Clock, first_new: int) -> None:
        self._time = SteadyTime(clock)
        self._first_new = first_new
        # When the files were looked at last: those that are full since are not older than that.
        self._looked_at_ms = 0
        # First position of a file that is full -> how old it was when that was seen, and when
        self._seen: dict[int, tuple[int, int]] = {}

    def of(self, segments: Sequence[Segment]) -> list[int]:
        """Milliseconds since each was last written; the last one is still written to."""
        elapsed_ms = self._time.elapsed_ms
        ages = []
        for segment, following in itertools.pairwise(segments):
            seen = self._seen.get(segment.base)
            if seen is None:
                seen = self._first_look(segment, following, elapsed_ms), elapsed_ms
                self._seen[segment.base] = seen
            ages.append(seen[0] + elapsed_ms - seen[1])
        self._looked_at_ms = elapsed_ms
        return [*ages, 0] if segments else []

    def forget_below(self, position: int) -> None:
        """Files below are gone."""
        for base in [base for base in self._seen if base < position]:
            del self._seen[base]

    def _first_look(self, segment: Segment, following: Segment, elapsed_ms: int) -> int:
        # Store times never go back: when the clock did, they tell more than the file's own time.
        written_ms = max(segment.file.modified_ms(), _first_store_time(following))
        age_ms = max(self._time.now_ms - written_ms, 0)
        is_new = segment.base >= self._first_new
        return min(age_ms, elapsed_ms - self._looked_at_ms) if is_new else age_ms


def _first_store_time(segment: Segment) -> int:
    """Of the file's first record; 0 when it cannot be read."""
    try:
        header = segment.file.read(0, _HEADER_SIZE)
    except OSError:
        return 0
    if len(header) < _HEADER_SIZE:
        return 0
    is_v6 = _INT.unpack_from(header, SYS_FLAG_AT)[0] & _BORN_HOST_V6
    return int(_TIME.unpack_from(header, _STORE_TIME_AT + (IPV6_EXTRA if is_v6 else 0))[0])
